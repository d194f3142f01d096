"""The bearer token, compared in constant time, and the access log, which never contains it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Callable, Collection, Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltalakedb.exceptions import ConfigError
from deltalakedb.serve.problems import answer_unexpected, problem

access_log = logging.getLogger("deltalakedb.access")

SHORTEST_TOKEN = 8


def check_token(token: str) -> str:
    """The token, if HTTP can carry it and it is not too short; otherwise ConfigError."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"a token has at least {SHORTEST_TOKEN} printable ASCII characters and no space; "
            "make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


class BearerToken:
    """Passes on requests that carry the token, or that ask for one, and answers 401 to all others.

    `refusals` are the 401 answers of path prefixes whose clients expect another form.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        open_paths: Collection[str] = (),
        refusals: Mapping[str, Callable[[str], Response]] | None = None,
    ) -> None:
        self._app = app
        self._digest = _digest(token.encode())
        self._open_paths = frozenset(open_paths)
        self._refusals = dict(refusals or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        message = "the request carries no token, or another one than the endpoint was started with"
        refuse = next((make for prefix, make in self._refusals.items() if scope["path"].startswith(prefix)), None)
        answer = refuse(message) if refuse else problem(401, "UnauthorizedError", message)
        await answer(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        headers = [value for key, value in scope["headers"] if key == b"authorization"]
        scheme, _, token = headers[0].partition(b" ") if len(headers) == 1 else (b"", b"", b"")
        # Digests have the same length whatever was sent, so the comparison reveals nothing about the token.
        return hmac.compare_digest(_digest(token.strip()), self._digest) and scheme.lower() == b"bearer"


class NoBrowsers:
    """Refuses requests of web pages: without a token, any page open on this machine could send some.

    A page tells its origin with most requests. A page that was loaded under a name which now means this machine (DNS
    rebinding) does not, but names another host than this one.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[str], Response] | None = None) -> None:
        self._app = app
        self._refuse = refuse or (lambda message: problem(403, "ForbiddenError", message))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_of_a_page(scope):
            answer = self._refuse("an endpoint without a token answers no web pages, and only requests to this machine")
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_of_a_page(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    if b"origin" in headers:
        return True
    host = headers.get(b"host", b"127.0.0.1").decode("latin-1").lower()
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    try:
        return name != "localhost" and not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return True


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class AccessLog:
    """Logs one line per request on `deltalakedb.access`; the outermost layer, so it also answers unexpected errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:  # the outermost handler: a bug is logged here, and answered without details
            answer = answer_unexpected(error)
            if status:  # the answer was partly sent: only the connection can be ended
                raise
            await answer(scope, receive, note)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                spent_ms = (time.perf_counter() - began) * 1000
                client = (scope.get("client") or ("-",))[0]
                # Only the path: the query may be long, and has users' folder names.
                access_log.info("%s %s %s %d %.1f ms", client, scope["method"], scope["path"], status, spent_ms)
