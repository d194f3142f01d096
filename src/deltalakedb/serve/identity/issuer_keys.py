"""The public keys of an OpenID Connect issuer: fetched when they are needed, and again when a new key is used."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import Key, RSAKey, import_key

from deltalakedb.exceptions import ConfigError, EndpointBusyError, redact
from deltalakedb.serve.workers import Workers

logger = logging.getLogger(__name__)

KEPT_SECONDS = 300.0
"""How old fetched keys may be: a key that the issuer has withdrawn is not accepted for longer."""
AGAIN_SECONDS = 5.0
"""How long after a fetch no other one is made, however many tokens with unknown keys come in."""
FETCH_SECONDS = 10.0
MAX_BYTES = 1024 * 1024
MAX_KEYS = 100
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_LEAST_RSA_BITS = 2048
_PUBLIC = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
"""The fields of a public key; no others are taken over."""


class IssuerKeys:
    """Finds the key of a token. The addresses are the settings' and the issuer's own; never a token's."""

    def __init__(self, issuer: str, jwks: str | None, workers: Workers) -> None:
        self._issuer = check_url("serve.oidc_issuer", issuer)
        self._jwks = None if jwks is None else check_url("serve.oidc_jwks", jwks)
        self._workers = workers
        self._keys: list[Key] = []
        self._fetched: float | None = None
        self._tried: float | None = None
        self._lock = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The issuer's key for a token; None if it has none. EndpointBusyError if the issuer cannot be asked."""
        key = self._choose(kid, algorithm) if self._is_fresh() else None
        if key is not None:
            return key
        async with self._lock:
            if self._may_fetch():
                await self._fetch()
            if not self._is_fresh():
                raise EndpointBusyError("the keys of the identity provider cannot be fetched now; try again later")
            return self._choose(kid, algorithm)

    def _is_fresh(self) -> bool:
        return self._fetched is not None and time.monotonic() - self._fetched < KEPT_SECONDS

    def _may_fetch(self) -> bool:
        return self._tried is None or time.monotonic() - self._tried >= AGAIN_SECONDS

    def _choose(self, kid: str | None, algorithm: str) -> Key | None:
        """The key with this id, or the only one that fits a token without; ids are compared, never used as a path."""
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        if kid is not None:
            fitting = [key for key in fitting if key.kid == kid]
        return fitting[0] if len(fitting) == 1 else None

    async def _fetch(self) -> None:
        self._tried = time.monotonic()
        try:
            keys = await self._workers.run(self._read_keys)
        except (OSError, HTTPException, ValueError) as error:
            # Keys that were fetched before are used until they are too old.
            logger.warning("the keys of %s cannot be fetched: %s", redact(self._issuer), redact(str(error)))
            return
        self._keys, self._fetched = keys, time.monotonic()

    def _read_keys(self) -> list[Key]:
        """Ask the issuer; ValueError if its answer is none that can be used."""
        address = self._jwks or self._read_address()
        answer = fetch_json(address).get("keys")
        if not isinstance(answer, list) or len(answer) > MAX_KEYS:
            raise ValueError(f"{address} is not a set of at most {MAX_KEYS} keys")
        return [key for value in answer if (key := _public_key(value)) is not None]

    def _read_address(self) -> str:
        configuration = fetch_json(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if configuration.get("issuer") != self._issuer:
            raise ValueError(f"the configuration says that the issuer is {str(configuration.get('issuer'))[:200]!r}")
        try:
            return check_url("jwks_uri", str(configuration.get("jwks_uri")))
        except ConfigError as error:
            raise ValueError(str(error)) from None


def _fits(key: Key, algorithm: str) -> bool:
    """Whether a token with this algorithm may be signed with this key: its kind, its purpose and its size."""
    if key.key_type != _KINDS.get(algorithm[:2]) or key.get("use") not in (None, "sig"):
        return False
    if key.get("alg") not in (None, algorithm):
        return False
    return algorithm not in _CURVES or key.get("crv") == _CURVES[algorithm]


def _public_key(value: Any) -> Key | None:
    """A public key for signatures; None for any other, above all for one whose secret both sides have."""
    if not isinstance(value, dict) or value.get("kty") not in _KINDS.values():
        return None
    try:
        key = import_key({name: value[name] for name in _PUBLIC if name in value})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    is_weak = isinstance(key, RSAKey) and key.raw_value.key_size < _LEAST_RSA_BITS
    return None if is_weak else key


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_json(url: str) -> dict[str, Any]:
    """The JSON object at a URL: without redirects, of bounded size and within bounded time."""
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=FETCH_SECONDS) as it:
        data = it.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{url} has more than {MAX_BYTES} bytes")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError(f"{url} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"{url} is not a JSON object")
    return value


def check_url(setting: str, url: str) -> str:
    """The URL, if keys can be fetched from it unchanged: over https, or over http from this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname and not parts.username:
        return url
    if parts.scheme == "http" and parts.hostname and not parts.username and _is_this_machine(parts.hostname):
        return url
    raise ConfigError(f"{setting} must be an https URL without a password; http is accepted for this machine only")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
