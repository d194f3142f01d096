"""Idempotency keys in SQL: one request is answered under each, and its answer is kept for repeats."""

from __future__ import annotations

from dataclasses import dataclass

from deltalakedb.store.connection import Connection


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """The request that was first sent with a key; without a status it is still being answered."""

    request_hash: str
    answer_status: int | None
    answer: str | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to answer the request of a key, until another try takes it over."""

    key: str
    created_at_ms: int


def claim_key(conn: Connection, key: str, request_hash: str, *, lifetime_ms: int) -> Claim | KeyedRequest:
    """Claim a key for a request; if it is in use, return the request that was sent with it."""
    now_ms = conn.now_ms()
    conn.run("delete_expired_idempotency_key", idempotency_key=key, now_ms=now_ms)
    inserted = conn.run(
        "claim_idempotency_key",
        idempotency_key=key,
        request_hash=request_hash,
        created_at_ms=now_ms,
        expires_ms=now_ms + lifetime_ms,
    )
    row = conn.one("select_idempotency_key", idempotency_key=key)
    return Claim(key, now_ms) if inserted or row is None else KeyedRequest(**row)


def take_over_key(conn: Connection, key: str, first: KeyedRequest, *, after_ms: int) -> Claim | None:
    """Claim a key whose request was never answered; None while the first try may still run, or another took it."""
    now_ms = conn.now_ms()
    if now_ms < first.created_at_ms + after_ms:
        return None
    created_at_ms = max(now_ms, first.created_at_ms + 1)
    taken = conn.run(
        "take_over_idempotency_key", idempotency_key=key, first_ms=first.created_at_ms, created_at_ms=created_at_ms
    )
    return Claim(key, created_at_ms) if taken else None


def answer_key(conn: Connection, claim: Claim, status: int, answer: str) -> None:
    """Store the final answer of a claimed request."""
    conn.run(
        "answer_idempotency_key",
        idempotency_key=claim.key,
        created_at_ms=claim.created_at_ms,
        answer_status=status,
        answer=answer,
    )


def release_key(conn: Connection, claim: Claim) -> None:
    """Give a claimed request up, so that a repeat is answered anew."""
    conn.run("release_idempotency_key", idempotency_key=claim.key, created_at_ms=claim.created_at_ms)


def delete_expired_keys(conn: Connection) -> int:
    """Delete the keys that have expired; return how many."""
    return conn.run("delete_expired_idempotency_keys", now_ms=conn.now_ms())
