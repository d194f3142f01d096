"""Who is let in: proves the caller of a request, and does the request's work for this caller."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.runtime.caller import Caller, acting_for
from deltalakedb.serve.limits import RateLimit
from deltalakedb.serve.requests import address_of, note_caller, request_id_of, user_agent_of

SHORTEST_TOKEN = 8
LONGEST_TOKEN = 16 * 1024
"""In bytes; longer ones are not looked at."""

CLIENT_CERTIFICATE = "client_certificate"
"""The key of a request's state that holds the certificate which its client has proven to own."""

Prove = Callable[[str], Awaitable[Caller | None]]
"""Finds out whose token one is; None if it proves nothing."""
Refuse = Callable[[BaseException | str], Response]
"""Makes the answer to a request that is not let in: 401 and a reason, or the answer to an error."""


def check_token(token: str) -> str:
    """The token, if HTTP can carry it and it is not too short; otherwise ConfigError."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"a token has at least {SHORTEST_TOKEN} printable ASCII characters and no space; "
            "make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


class OwnToken:
    """The token that the endpoint was started with; its owner administers the catalog."""

    def __init__(self, token: str, actor: str) -> None:
        self._digest = _digest(token)
        self._caller = Caller(actor, proof="endpoint")

    async def prove(self, token: str) -> Caller | None:
        return self._caller if self.matches(token) else None

    def matches(self, token: str) -> bool:
        """Whether this is the token. Digests have one length, so the time tells nothing about the token."""
        return hmac.compare_digest(_digest(token), self._digest)


class Authenticate:
    """Passes on requests whose caller is proven, or whose path is open to all, and answers 401 to all others.

    `refusals` make the answers of path prefixes whose clients expect another form than the bridge's.
    """

    def __init__(
        self,
        app: ASGIApp,
        provers: Sequence[Prove],
        refuse: Refuse,
        open_paths: Collection[str] = (),
        refusals: Mapping[str, Refuse] | None = None,
        limit: RateLimit | None = None,
    ) -> None:
        self._app = app
        self._provers = tuple(provers)
        self._refuse = refuse
        self._open_paths = frozenset(open_paths)
        self._refusals = dict(refusals or {})
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._prove(scope)
            if caller is not None and self._limit is not None:
                self._limit.check(caller)
        except DeltaError as error:  # the database that has the tokens is away, all threads are busy, or the limit
            await self._refusal(scope, error)(scope, receive, send)
            return
        if caller is None:
            message = "the request carries no token, or one that is unknown, expired or revoked"
            await self._refusal(scope, message)(scope, receive, send)
            return
        await act(self._app, scope, receive, send, caller)

    def _refusal(self, scope: Scope, why: BaseException | str) -> Response:
        refuse = next((make for prefix, make in self._refusals.items() if scope["path"].startswith(prefix)), None)
        return (refuse or self._refuse)(why)

    async def _prove(self, scope: Scope) -> Caller | None:
        token = _bearer_token(scope)
        if token is None:
            certificate = scope.get("state", {}).get(CLIENT_CERTIFICATE)
            has_header = any(key == b"authorization" for key, _ in scope["headers"])
            return None if certificate is None or has_header else caller_of(certificate)
        for prove in self._provers:
            caller = await prove(token)
            if caller is not None:
                return caller
        return None


async def act(app: ASGIApp, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
    """Do the work of a request for its caller."""
    note_caller(scope, caller.name)
    caller = replace(
        caller, address=address_of(scope), user_agent=user_agent_of(scope), request_id=request_id_of(scope)
    )
    with acting_for(caller):
        await app(scope, receive, send)


def caller_of(certificate: Mapping[str, Any]) -> Caller | None:
    """The caller of a checked certificate: its common name, else its first alternative name; its units are groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    others = certificate.get("subjectAltName", ())
    names = _values(subject, "commonName")
    names += [name for kind in ("URI", "email", "DNS") for name in _values(others, kind)]
    if not names:
        return None
    return Caller(names[0], frozenset(_values(subject, "organizationalUnitName")), proof="certificate")


def _values(pairs: Iterable[tuple[str, str]], kind: str) -> list[str]:
    return [value for key, value in pairs if key == kind and value]


def _bearer_token(scope: Scope) -> str | None:
    """The token of a request's header, None without one. Never one of the query, which proxies and clients log."""
    headers = [value for key, value in scope["headers"] if key == b"authorization"]
    scheme, _, token = headers[0].partition(b" ") if len(headers) == 1 else (b"", b"", b"")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token or len(token) > LONGEST_TOKEN or not token.isascii():
        return None
    return token.decode("ascii")


class NoBrowsers:
    """Refuses requests of web pages: without a token, any page open on this machine could send some.

    A page tells its origin with most requests. A page that was loaded under a name which now means this machine (DNS
    rebinding) does not, but names another host than this one.
    """

    def __init__(self, app: ASGIApp, actor: str, refuse: Callable[[str], Response]) -> None:
        self._app = app
        self._caller = Caller(actor, proof="none")
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_of_a_page(scope):
            answer = self._refuse("an endpoint without a token answers no web pages, and only requests to this machine")
            await answer(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await act(self._app, scope, receive, send, self._caller)


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


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
