"""What every request has: an id, which is in its answer, and a line in the access log."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltalakedb.serve.problems import answer_unexpected

access_log = logging.getLogger("deltalakedb.access")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
LONGEST_USER_AGENT = 256
_KEY = "deltalakedb"
"""Where a request's id and caller are in the `state` of its scope."""


def request_id_of(scope: Scope) -> str:
    """The id of a request: that of its header `X-Request-ID`, if it is short and plain, otherwise a new one."""
    state = scope.setdefault("state", {}).setdefault(_KEY, {})
    if "request_id" not in state:
        sent = [value for key, value in scope["headers"] if key == b"x-request-id"]
        is_sane = len(sent) == 1 and _SANE_ID.fullmatch(sent[0])
        state["request_id"] = sent[0].decode("ascii") if is_sane else uuid.uuid4().hex
    return str(state["request_id"])


def note_caller(scope: Scope, name: str) -> None:
    """Let the access log name the caller of a request."""
    scope.setdefault("state", {}).setdefault(_KEY, {})["caller"] = name


def user_agent_of(scope: Scope) -> str | None:
    """The program that sends a request, as it says itself: printable, and cut off where it is long."""
    for key, value in scope["headers"]:
        if key == b"user-agent":
            return printable(value[:LONGEST_USER_AGENT].decode("latin-1"))
    return None


def address_of(scope: Scope) -> str | None:
    """The address that a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else None


def printable(text: str) -> str:
    """A text for one line of a log: what is not printable is escaped, so that nobody can write lines of his own."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class AccessLog:
    """Logs one line per request on `deltalakedb.access`; the outermost layer, so it also answers unexpected errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, request_id = time.perf_counter(), 0, request_id_of(scope)

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode("ascii"))]
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:  # the outermost handler: a bug is logged here, and answered without details
            answer = answer_unexpected(error, request_id)
            if status:  # the answer was partly sent: only the connection can be ended
                raise
            await answer(scope, receive, note)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                spent_ms = (time.perf_counter() - began) * 1000
                # Only the path: the query may be long, and has users' folder names.
                access_log.info(
                    "%s %s %s %d %.1f ms %s %s",
                    address_of(scope) or "-",
                    printable(scope["method"]),
                    printable(scope["path"]),
                    status,
                    spent_ms,
                    printable(scope["state"][_KEY].get("caller") or "-"),
                    request_id,
                )
