"""Requests with an idempotency key take effect once: a repeat gets the first answer, also from another process."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from deltalakedb.runtime.caller import current_caller
from deltalakedb.serve.iceberg.call import Call, Reply
from deltalakedb.serve.iceberg.errors import Refusal, bad_request
from deltalakedb.store import Store
from deltalakedb.store.idempotency import (
    Claim,
    KeyedRequest,
    answer_key,
    claim_key,
    delete_expired_keys,
    release_key,
    take_over_key,
)
from deltalakedb.store.names import TableName

HEADER = "idempotency-key"
LIFETIME_MINUTES = 60
"""How long a repeat gets the first answer, as the configuration tells clients."""
_LIFETIME_MS = (LIFETIME_MINUTES + 5) * 60_000
_REPEAT_AFTER_MS = 2_000
"""When a commit is tried again beside the first try: its token lets only one of them happen."""
_TAKE_OVER_AFTER_MS = 60_000
"""When any other request counts as dead with its process."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Handler = Callable[[Call], Reply]
"""Answers a request; an error is an answer too."""


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """A request with its key and what tells it from other requests."""

    key: str
    request_hash: str

    @classmethod
    def of(cls, call: Call, route: str, body: bytes) -> KeyedCall | None:
        """Return the key of a request; None if it has none."""
        key = call.headers.get(HEADER, "").lower()
        if not key:
            return None
        if not _UUID.fullmatch(key):
            raise bad_request("the header Idempotency-Key must be a UUID")
        caller = current_caller()
        name = caller.name if caller else ""  # nobody gets the answer to another user's request
        parts = (route.encode(), json.dumps(sorted(call.query.items())).encode(), name.encode(), body)
        return cls(key, hashlib.sha256(b"\0".join(parts)).hexdigest())

    @property
    def token(self) -> str:
        """The client token of the commit. It differs for another request, so that an old key never meets its commit."""
        return f"iceberg:{self.key}:{self.request_hash[:16]}"


class Replays:
    """Runs requests under their keys."""

    def __init__(self, store: Store, load: Callable[[Call, TableName, str], Reply]) -> None:
        self._store = store
        self._load = load

    def run(self, keyed: KeyedCall, call: Call, handler: Handler, *, is_commit: bool, noun: str) -> Reply | None:
        """Answer a request, or repeat the answer to it; None while the first try is still running."""
        with self._store.write(durable=False) as conn:
            claim = claim_key(conn, keyed.key, keyed.request_hash, lifetime_ms=_LIFETIME_MS)
            first = claim if isinstance(claim, KeyedRequest) else None
            if first is not None and first.request_hash == keyed.request_hash and first.answer_status is None:
                after_ms = _REPEAT_AFTER_MS if is_commit else _TAKE_OVER_AFTER_MS
                claim = take_over_key(conn, keyed.key, first, after_ms=after_ms) or first
        if isinstance(claim, Claim):
            return self._answer(claim, replace(call, token=keyed.token), handler, is_safe=first is None or is_commit)
        if claim.request_hash != keyed.request_hash:
            raise Refusal(422, "UnprocessableEntityException", "this Idempotency-Key was used for another request")
        if claim.answer_status is None:
            return None
        return self._repeated(call, claim.answer_status, claim.answer or "{}", noun)

    def sweep(self) -> None:
        """Delete the keys that have expired."""
        with self._store.write(durable=False) as conn:
            delete_expired_keys(conn)

    def _answer(self, claim: Claim, call: Call, handler: Handler, *, is_safe: bool) -> Reply:
        """Run the handler and store its answer; `is_safe`: an error cannot come from an earlier try's own effect."""
        reply = handler(call)
        is_unclear = not is_safe and reply.status in (404, 409)
        with self._store.write(durable=False) as conn:
            if reply.status < 500 and not is_unclear:
                answer_key(conn, claim, reply.status, _to_text(reply))
            else:
                release_key(conn, claim)
        if is_unclear:
            raise Refusal(
                500,
                "CommitStateUnknownException",
                "an earlier try of this request died, and may have had the effect that this one meets; look before "
                "you repeat it with another key",
            )
        return reply

    def _repeated(self, call: Call, status: int, answer: str, noun: str) -> Reply:
        fields = json.loads(answer)
        if "loads" in fields:
            return self._load(call, TableName(*fields["loads"]), noun)
        return Reply(status, fields.get("body"), fields.get("headers", {}))


def _to_text(reply: Reply) -> str:
    """Return a reply as it is stored: without the state of a table, which may be large; a repeat tells the newest."""
    if reply.loads is not None and reply.status == 200:
        return json.dumps({"loads": [reply.loads.namespace, reply.loads.name]})
    return json.dumps({"body": reply.body, "headers": dict(reply.headers)})
