"""The OAuth2 token endpoint, for clients that ask the catalog itself: it gives the endpoint's token for that token."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote_plus

from starlette.responses import JSONResponse, Response

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LIFETIME_SECONDS = 86_400
"""The token does not expire; clients that want to know when to ask again do so once a day."""


def grant_token(token: str | None, headers: Mapping[str, str], body: bytes) -> Response:
    """Answer a token request: the client secret, or the token to be exchanged, must be the endpoint's token."""
    form = _parse_form(body)
    match form.get("grant_type"):
        case "client_credentials":
            secret = form.get("client_secret") or _basic_secret(headers)
        case grant if grant == TOKEN_EXCHANGE:
            secret = form.get("subject_token", "")
        case _:
            return _refuse(400, "unsupported_grant_type", "use client_credentials or token exchange")
    if token is not None and not hmac.compare_digest(secret.encode(), token.encode()):
        return _refuse(401, "invalid_client", "the client secret is not the token that the endpoint was started with")
    return JSONResponse(
        {
            "access_token": token or "none",
            "token_type": "bearer",
            "issued_token_type": ACCESS_TOKEN,
            "expires_in": LIFETIME_SECONDS,
        },
        headers={"Cache-Control": "no-store"},
    )


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
