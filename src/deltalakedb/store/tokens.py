"""Named tokens in SQL, of whose secrets only hashes are stored, and the requests of those who used `dl serve`."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from deltalakedb.runtime.caller import Caller
from deltalakedb.store.connection import Connection, Row

_FORM = re.compile(r"dlt_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token without its secret: its name, and whom it stands for. Times are epoch milliseconds."""

    token_id: str
    name: str
    actor: str
    groups: tuple[str, ...]
    created_by: str | None
    created_at_ms: int
    expires_ms: int | None
    revoked_at_ms: int | None

    @classmethod
    def of(cls, row: Row) -> NamedToken:
        values = {key: value for key, value in row.items() if key != "actor_groups"}
        return cls(**values, groups=tuple(json.loads(row["actor_groups"])))


@dataclass(frozen=True, slots=True)
class TokenProof:
    """What a token is compared with, and whom it stands for, as the database had it at `read_at_ms`."""

    token_id: str
    parent_id: str | None
    name: str
    actor: str
    groups: frozenset[str]
    ends_ms: int | None
    """When it expires, or was revoked; None if neither."""
    read_at_ms: int
    secret_hash: str = field(repr=False)

    def proves(self, token: str, now_ms: int) -> bool:
        """Whether this is the token, at a time of the database's clock."""
        is_equal = hmac.compare_digest(hash_token(token), self.secret_hash)
        return is_equal and (self.ends_ms is None or now_ms < self.ends_ms)


def token_id_of(token: str) -> str | None:
    """The public part of a named token; None for a text of another form."""
    match = _FORM.fullmatch(token)
    return match[1] if match else None


def hash_token(token: str) -> str:
    """The hash that is stored: a token has 256 random bits, so a slow hash would protect nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def insert_token(
    conn: Connection,
    name: str,
    *,
    actor: str,
    groups: Iterable[str],
    lifetime_ms: int | None,
    created_by: str | None,
    parent_id: str | None = None,
) -> tuple[NamedToken, str]:
    """Make a token; return it, and the text that clients send, which cannot be found out later."""
    now_ms = conn.now_ms()
    token_id = secrets.token_hex(8)
    text = f"dlt_{token_id}_{secrets.token_urlsafe(32)}"
    token = NamedToken(
        token_id=token_id,
        name=name,
        actor=actor,
        groups=tuple(sorted(set(groups))),
        created_by=created_by,
        created_at_ms=now_ms,
        expires_ms=None if lifetime_ms is None else now_ms + lifetime_ms,
        revoked_at_ms=None,
    )
    conn.run(
        "insert_token",
        token_id=token_id,
        name=name,
        actor=actor,
        actor_groups=json.dumps(token.groups),
        secret_hash=hash_token(text),
        parent_id=parent_id,
        created_by=created_by,
        created_at_ms=now_ms,
        expires_ms=token.expires_ms,
    )
    return token, text


def list_tokens(conn: Connection) -> list[NamedToken]:
    """The tokens that were created by name, revoked and expired ones too; the newest first."""
    return [NamedToken.of(row) for row in conn.all("select_tokens")]


def find_token(conn: Connection, name: str) -> NamedToken | None:
    """The token of a name, expired or not, that is not revoked."""
    row = conn.one("select_token_by_name", name=name)
    return NamedToken.of(row) if row else None


def revoke_token(conn: Connection, token: NamedToken) -> bool:
    """Revoke a token, and with it those that clients got for it; False if it was revoked before."""
    return bool(conn.run("revoke_token", token_id=token.token_id, revoked_at_ms=conn.now_ms()))


def delete_ended_tokens(conn: Connection) -> int:
    """Delete short-lived tokens whose time is over; return how many."""
    return conn.run("delete_ended_tokens", now_ms=conn.now_ms())


def read_proof(conn: Connection, token_id: str) -> TokenProof | None:
    """What proves the token of this id; None if there is none."""
    row = conn.one("select_token_by_id", token_id=token_id)
    if row is None:
        return None
    ends = [row[key] for key in ("expires_ms", "revoked_at_ms", "parent_expires_ms", "parent_revoked_at_ms")]
    return TokenProof(
        token_id=row["token_id"],
        parent_id=row["parent_id"],
        name=row["name"],
        actor=row["actor"],
        groups=frozenset(json.loads(row["actor_groups"])),
        ends_ms=min((end for end in ends if end is not None), default=None),
        read_at_ms=conn.now_ms(),
        secret_hash=row["secret_hash"],
    )


def request_row(txn_id: str, caller: Caller) -> dict[str, str | None]:
    """The row of `dl_requests` of a transaction that an endpoint commits for a caller."""
    return {
        "txn_id": txn_id,
        "request_id": caller.request_id,
        "proof": caller.proof,
        "address": caller.address,
        "user_agent": caller.user_agent,
    }
