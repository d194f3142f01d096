"""The OAuth2 token endpoint, for clients that ask the catalog itself: they get a token for the one that they have."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote_plus

from starlette.responses import JSONResponse, Response

from deltalakedb.serve.auth import OwnToken
from deltalakedb.serve.identity.named_tokens import NamedTokens

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
OWN_LIFETIME_SECONDS = 86_400
"""The endpoint's own token does not expire; clients that want to know when to ask again do so once a day."""
LIFETIME_SECONDS = 3_600
"""How long a token is valid that a client gets for a named one."""


class TokenEndpoint:
    """Answers token requests. The client secret, or the token to be exchanged, is a token that the endpoint accepts."""

    def __init__(self, own: OwnToken | None, named: NamedTokens, issuer: str | None) -> None:
        self._own = own
        self._named = named
        self._issuer = issuer

    async def grant(self, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer a token request."""
        form = _parse_form(body)
        grant_type = form.get("grant_type")
        if grant_type == "client_credentials":
            secret = form.get("client_secret") or _basic_secret(headers)
        elif grant_type == TOKEN_EXCHANGE:
            secret = form.get("subject_token", "")
        else:
            return _refuse(400, "unsupported_grant_type", "use client_credentials or token exchange")
        if self._own is None:
            return _granted("none", OWN_LIFETIME_SECONDS)
        if self._own.matches(secret):
            return _granted(secret, OWN_LIFETIME_SECONDS)
        proof = await self._named.find(secret)
        # A short-lived token can be renewed while it is valid, as Iceberg's clients do; it is no client secret.
        if proof is None or (proof.parent_id is not None and grant_type != TOKEN_EXCHANGE):
            return _refuse(401, "invalid_client", self._why())
        token, seconds = await self._named.issue(proof, LIFETIME_SECONDS)
        return _granted(token, seconds)

    def _why(self) -> str:
        message = "the client secret is no token that this endpoint accepts"
        if self._issuer is None:
            return message
        return f"{message}; tokens of users come from the identity provider {self._issuer}"


def _granted(token: str, seconds: int) -> Response:
    fields = {"access_token": token, "token_type": "bearer", "issued_token_type": ACCESS_TOKEN, "expires_in": seconds}
    return JSONResponse(fields, headers={"Cache-Control": "no-store"})


def _parse_form(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(body.decode(), max_num_fields=32)
    except ValueError:
        return {}
    return {key: values[0] for key, values in fields.items()}


def _basic_secret(headers: Mapping[str, str]) -> str:
    """The client secret of an `Authorization: Basic` header, empty if there is none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        _, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return ""
    return unquote_plus(secret)


def _refuse(status: int, error: str, description: str) -> Response:
    headers = {"WWW-Authenticate": "Basic"} if status == 401 else {}
    return JSONResponse({"error": error, "error_description": description}, status, headers)
