"""What SQL remembers of the mirror: how far the files are, what failed and when to try again, who may checkpoint."""

from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from deltalakedb.exceptions import StoreError, redact
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.registry import TableRow

MAX_BACKOFF_SECONDS = 300.0
MAX_ERROR_CHARACTERS = 2_000
LEASE_SECONDS = 10.0
FRESH_SECONDS = 0.25
"""How long after a commit its file is put without asking SQL again whether the table is still there."""
PURGE_DELAY_SECONDS = 2 * FRESH_SECONDS
"""How long after the last commit a purge waits with the files, if that commit may not be in them yet."""


@dataclass(frozen=True, slots=True)
class Unmirrored:
    """A table whose files are behind SQL."""

    table: TableRow
    current_version: int
    mirrored_version: int
    oldest_unmirrored_ms: int | None
    next_try_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A version that could not be mirrored: how often, and in how many seconds to try again."""

    version: int
    attempts: int
    wait_seconds: float
    oldest_unmirrored_ms: int | None
    now_ms: int

    @property
    def lag_seconds(self) -> float:
        """How long the oldest commit that is not in the files has waited, on the database's clock."""
        return 0.0 if self.oldest_unmirrored_ms is None else max(0, self.now_ms - self.oldest_unmirrored_ms) / 1000


# -- how far


def mark(conn: Connection, marks: Mapping[int, int]) -> None:
    """The files of these tables (by id) hold everything up to a version. In table order, as every writer locks."""
    for table_id, version in sorted(marks.items()):
        conn.run("mark_mirrored", table_id=table_id, version=version)
        conn.run("clear_mirror_status", table_id=table_id, version=version)


def unmirrored_tables(conn: Connection) -> list[Unmirrored]:
    """Every table with something to mirror, dropped and detaching ones included; frozen ones wait for a decision."""
    return [
        Unmirrored(
            registry.to_table_row(row),
            row["current_version"],
            row["mirrored_version"],
            row["oldest_unmirrored_ms"],
            row["next_try_ms"],
            row["error"],
        )
        for row in conn.all("select_unmirrored_tables")
    ]


def last_table_row(conn: Connection, table_id: int) -> tuple[TableRow, bool] | None:
    """A table as it is registered or was last, and whether it still is."""
    row = conn.one("select_last_table_row", table_id=table_id)
    return None if row is None else (registry.to_table_row(row), row["until_ms"] == LIVE)


# -- failures


def backoff_seconds(attempts: int, first_seconds: float) -> float:
    """The wait after so many failures: doubling, five minutes at most, spread so that not all tables come at once."""
    longest = min(MAX_BACKOFF_SECONDS, first_seconds * 2.0 ** min(attempts - 1, 30))
    return longest * random.uniform(0.5, 1.0)


def record_failure(store: Store, table_id: int, version: int, error: str, *, first_seconds: float) -> Failure | None:
    """Remember that a version could not be mirrored, and when to try again; None when somebody else has mirrored it."""
    with store.write() as conn:
        head = registry.lock_head(conn, table_id)
        if head is not None and head.mirrored_version >= version:
            return None
        known = conn.one("select_mirror_status", table_id=table_id, version=version)
        attempts = 1 if known is None else known["attempts"] + 1
        wait = backoff_seconds(attempts, first_seconds)
        now_ms = conn.now_ms()
        conn.run(
            "put_mirror_status",
            table_id=table_id,
            version=version,
            attempts=attempts,
            error=redact(error)[:MAX_ERROR_CHARACTERS],
            next_try_ms=now_ms + int(wait * 1000),
        )
        oldest = conn.one("select_version", table_id=table_id, version=version)
    return Failure(version, attempts, wait, oldest["committed_at_ms"] if oldest else None, now_ms)


def freeze(store: Store, table: TableRow, version: int, evidence: str, *, actor: str | None = None) -> bool:
    """Let nobody commit to a table into whose files somebody else wrote; False when it was frozen before.

    A table that is no longer registered has no state to change: its mirror stops all the same, by its failure row.
    """
    with store.write() as conn:
        registry.lock_head(conn, table.table_id)
        found = last_table_row(conn, table.table_id)
        now, is_registered = found if found is not None else (table, False)
        if now.state == "frozen":
            return False
        now_ms = registry.next_change_ms(conn)
        if is_registered:
            registry.change_table(conn, table.table_id, at_ms=now_ms, state="frozen")
        details = {"version": version, "state_before": now.state, "evidence": evidence, "location": table.location}
        write_audit(conn, action="freeze", at_ms=now_ms, actor=actor, origin="mirror", table=now, details=details)
        conn.run(
            "put_mirror_status",
            table_id=table.table_id,
            version=version,
            attempts=1,
            error=redact(evidence)[:MAX_ERROR_CHARACTERS],
            # Nobody tries again by himself.
            next_try_ms=LIVE,
        )
    return True


# -- leases


def new_holder() -> str:
    """A name for one holder of claims, of this process and thread."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def take_lease(conn: Connection, lease: str, holder: str) -> bool:
    """Claim something for ten seconds, or keep it for ten more; False while another holder has it."""
    now_ms = conn.now_ms()
    until_ms = now_ms + int(LEASE_SECONDS * 1000)
    return conn.run("take_lease", lease=lease, holder=holder, until_ms=until_ms, now_ms=now_ms) > 0


def release_lease(conn: Connection, lease: str, holder: str) -> None:
    conn.run("release_lease", lease=lease, holder=holder)


@contextmanager
def renewed(store: Store, lease: str, holder: str) -> Iterator[None]:
    """Keep a lease while the block works, however long. A lost one is harmless: others write the same."""
    done = threading.Event()

    def renew() -> None:
        while not done.wait(LEASE_SECONDS / 3):
            try:
                with store.write() as conn:
                    until_ms = conn.now_ms() + int(LEASE_SECONDS * 1000)
                    # Only what is still ours: one that was given back meanwhile must not come to life again.
                    conn.run("renew_lease", lease=lease, holder=holder, until_ms=until_ms)
            except StoreError:  # tried again in a moment; at worst somebody else does the work too
                continue

    thread = threading.Thread(target=renew, name="deltalakedb-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
