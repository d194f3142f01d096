"""Proves JSON web tokens of one OpenID Connect issuer: their signature, issuer, audience, times, name and groups."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from deltalakedb.exceptions import ConfigError, MissingExtraError, redact
from deltalakedb.runtime.caller import Caller
from deltalakedb.runtime.config import Config
from deltalakedb.serve.identity.issuer_keys import IssuerKeys
from deltalakedb.serve.workers import Workers

try:
    from joserfc import jws, jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import Key, KeySet
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "joserfc":
        raise
    raise MissingExtraError("tokens of an identity provider", "serve") from None

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures with a private key that only the issuer has. Never `none`; never `HS256`, whose key both sides have."""
LONGEST_NAME = 255
MAX_GROUPS = 1_000


class RefusedTokenError(Exception):
    """Why a token proves nothing; for the endpoint's log, not for the client."""


class OidcTokens:
    """Finds out whose token of the issuer one is."""

    def __init__(self, config: Config, workers: Workers) -> None:
        if not config.serve_oidc_issuer:
            raise ConfigError("serve.oidc_issuer is not set: no issuer's tokens can be accepted")
        if not config.serve_oidc_audience:
            raise ConfigError(
                "serve.oidc_audience is not set: without it, tokens that the issuer made for other services would be "
                "accepted; set it to the audience that the issuer puts into tokens for this endpoint"
            )
        self._algorithms = _check_algorithms(config.serve_oidc_algorithms or ALGORITHMS)
        self._issuer = config.serve_oidc_issuer
        self._audiences = frozenset(config.serve_oidc_audience)
        self._name_claim = config.serve_oidc_name_claim
        self._groups_claim = config.serve_oidc_groups_claim
        self._skew_seconds = config.serve_oidc_clock_skew
        self._keys = IssuerKeys(self._issuer, config.serve_oidc_jwks, workers)
        self._registry = jws.JWSRegistry(algorithms=list(self._algorithms))

    async def prove(self, token: str) -> Caller | None:
        """The caller with this token; None if it is none of the issuer's, or not valid."""
        if token.count(".") != 2:
            return None
        try:
            header = self._header_of(token)
            key = await self._keys.find(header.get("kid"), header["alg"])
            if key is None:
                raise RefusedTokenError("no key of the issuer has its `kid`")
            return self._caller_of(self._claims_of(token, key))
        except RefusedTokenError as error:
            logger.info("a token was refused: %s", redact(str(error)))
            return None

    def _header_of(self, token: str) -> Mapping[str, Any]:
        """The header, which nothing proves yet: it only chooses one of the issuer's keys."""
        try:
            header = jws.extract_compact(token.encode("ascii"), registry=self._registry).headers()
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise RefusedTokenError(f"it cannot be read ({type(error).__name__})") from None
        if header.get("alg") not in self._algorithms:
            raise RefusedTokenError("its algorithm is not one of serve.oidc_algorithms")
        if not isinstance(header.get("kid"), str | None):
            raise RefusedTokenError("its `kid` is not a text")
        if header.keys() & {"crit", "jku", "jwk", "x5u", "x5c", "b64"}:
            raise RefusedTokenError("its header brings keys or extensions of its own")
        if str(header.get("typ", "JWT")).lower().removeprefix("application/") not in ("jwt", "at+jwt"):
            raise RefusedTokenError("it is of another type than JWT")
        return header

    def _claims_of(self, token: str, key: Key) -> Mapping[str, Any]:
        """The claims of a token that the issuer has signed for this endpoint, and that is valid now."""
        try:
            claims = jwt.decode(token, KeySet([key]), algorithms=list(self._algorithms), registry=self._registry).claims
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise RefusedTokenError(f"its signature is wrong ({type(error).__name__})") from None
        if claims.get("iss") != self._issuer:
            raise RefusedTokenError("it is of another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one in self._audiences for one in audiences):
            raise RefusedTokenError("it is for another audience")
        self._check_times(claims)
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, skew = time.time(), self._skew_seconds
        expires, not_before, issued = (_seconds_of(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is None:
            raise RefusedTokenError("it never expires")
        if now >= expires + skew:
            raise RefusedTokenError("it has expired")
        if any(at is not None and now < at - skew for at in (not_before, issued)):
            raise RefusedTokenError("it is not valid yet")

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not _is_name(name):
            raise RefusedTokenError(f"it has no name in the claim {self._name_claim!r}")
        groups = claims.get(self._groups_claim, [])
        values = [groups] if isinstance(groups, str) else groups
        if not isinstance(values, list) or len(values) > MAX_GROUPS:
            raise RefusedTokenError(f"the claim {self._groups_claim!r} is not a list of groups")
        return Caller(name, frozenset(group for group in values if isinstance(group, str) and _is_name(group)), "oidc")


def _check_algorithms(algorithms: tuple[str, ...]) -> tuple[str, ...]:
    refused = sorted(set(algorithms) - set(ALGORITHMS))
    if refused:
        raise ConfigError(
            f"serve.oidc_algorithms: {', '.join(refused)} cannot be accepted; choose from {', '.join(ALGORITHMS)}"
        )
    return algorithms


def _seconds_of(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise RefusedTokenError(f"its claim {name!r} is not a time")
    return float(value)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()
