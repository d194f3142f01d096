"""Proves named tokens, which are rows in SQL; an answer of the database is used again for a short time."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from deltalakedb.runtime.caller import Caller
from deltalakedb.serve.workers import Workers
from deltalakedb.store import Store
from deltalakedb.store.connection import LIVE
from deltalakedb.store.tokens import TokenProof, delete_ended_tokens, insert_token, read_proof, token_id_of

REVOKED_WITHIN_SECONDS = 2.0
"""How long a token that was just revoked may still be let in."""
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the database said about an id, and when."""

    proof: TokenProof | None
    at: float

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.at


class NamedTokens:
    """Finds out whose token one is. Requests with the same token wait for one look-up."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Answer]] = {}

    async def prove(self, token: str) -> Caller | None:
        """The caller with this token; None if it is unknown, wrong, expired or revoked."""
        proof = await self.find(token)
        return None if proof is None else Caller(proof.actor, proof.groups)

    async def find(self, token: str) -> TokenProof | None:
        """What is known of a token that is valid now; None otherwise."""
        token_id = token_id_of(token)
        if token_id is None:
            return None
        answer = self._answers.get(token_id)
        if answer is None or answer.age_seconds > REVOKED_WITHIN_SECONDS:
            answer = await self._ask_once(token_id)
        proof = answer.proof
        if proof is None or not proof.proves(token, proof.read_at_ms + round(answer.age_seconds * 1000)):
            return None
        return proof

    async def issue(self, proof: TokenProof, lifetime_seconds: int) -> tuple[str, int]:
        """Make a short-lived token for one that is valid; return it, and for how many seconds it is."""
        return await self._workers.run(lambda: self._issue(proof, lifetime_seconds))

    def _issue(self, proof: TokenProof, lifetime_seconds: int) -> tuple[str, int]:
        with self._store.write(durable=False) as conn:
            delete_ended_tokens(conn)
            token, text = insert_token(
                conn,
                proof.name,
                actor=proof.actor,
                groups=proof.groups,
                lifetime_ms=lifetime_seconds * 1000,
                created_by=None,
                parent_id=proof.parent_id or proof.token_id,
            )
        ends_ms = min(proof.ends_ms or LIVE, token.expires_ms or LIVE)
        # Rounded down; a repeat of the request is better than a token that ends early.
        return text, max(1, (ends_ms - token.created_at_ms) // 1000)

    async def _ask_once(self, token_id: str) -> _Answer:
        asking = self._asking.get(token_id)
        if asking is None:
            asking = self._asking[token_id] = asyncio.create_task(self._ask(token_id))
            asking.add_done_callback(lambda _: self._asking.pop(token_id, None))
        # A client that goes away must not end the look-up that others wait for.
        return await asyncio.shield(asking)

    async def _ask(self, token_id: str) -> _Answer:
        at = time.monotonic()  # before the database answers: a token may be revoked right after that
        answer = _Answer(await self._workers.run(lambda: self._read(token_id)), at)
        self._answers[token_id] = answer
        self._answers.move_to_end(token_id)
        while len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    def _read(self, token_id: str) -> TokenProof | None:
        with self._store.read() as conn:
            return read_proof(conn, token_id)
