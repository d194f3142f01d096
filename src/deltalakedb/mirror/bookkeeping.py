"""The mirror's rows in SQL: how far the files are, what failed and when to retry it, leases for checkpoints."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from deltalakedb.exceptions import StoreError, redact
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.registry import TableRow

MAX_BACKOFF_SECONDS = 300.0
MAX_ERROR_CHARACTERS = 2_000
LEASE_SECONDS = 10.0
FRESH_SECONDS = 0.25
"""How long after a commit its file may be put without asking SQL again whether the table still exists."""
PURGE_DELAY_SECONDS = 2 * FRESH_SECONDS
"""How long after the last commit a purge keeps the files, if that commit may not be in them yet."""


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
    """A version that could not be mirrored: the number of attempts, and the seconds until the next one."""

    version: int
    attempts: int
    wait_seconds: float
    oldest_unmirrored_ms: int | None
    now_ms: int

    @property
    def lag_seconds(self) -> float:
        """How long the oldest unmirrored commit has waited, by the database's clock."""
        return 0.0 if self.oldest_unmirrored_ms is None else max(0, self.now_ms - self.oldest_unmirrored_ms) / 1000


# -- progress


def mark(conn: Connection, marks: Mapping[int, int]) -> None:
    """Record the version up to which each table's files are mirrored. Sorted by id, the order in which writers lock."""
    for table_id, version in sorted(marks.items()):
        conn.run("mark_mirrored", table_id=table_id, version=version)
        conn.run("clear_mirror_status", table_id=table_id, version=version)


def unmirrored_tables(conn: Connection) -> list[Unmirrored]:
    """All tables with unmirrored commits, also dropped and detaching ones; frozen ones wait for a decision."""
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
    """The table's last registry row, and whether it is still registered."""
    row = conn.one("select_last_table_row", table_id=table_id)
    return None if row is None else (registry.to_table_row(row), row["until_ms"] == LIVE)


# -- failures


def backoff_seconds(attempts: int, first_seconds: float) -> float:
    """The wait after a number of failures: doubling, at most five minutes, randomized so that tables spread out."""
    return Backoff(first_seconds, MAX_BACKOFF_SECONDS).seconds(attempts - 1)


def record_failure(store: Store, table_id: int, version: int, error: str, *, first_seconds: float) -> Failure | None:
    """Record that a version could not be mirrored, and when to retry; None if another process has mirrored it."""
    with store.write() as conn:
        head = registry.lock_head(conn, table_id)
        if head is not None and head.mirrored_version >= version:
            return None
        status = conn.one("select_mirror_status", table_id=table_id, version=version)
        attempts = 1 if status is None else status["attempts"] + 1
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
    """Freeze a table into whose files another program wrote; False if it was frozen already.

    A table that is no longer registered has no state to change; its failure row stops its mirror all the same.
    """
    with store.write() as conn:
        registry.lock_head(conn, table.table_id)
        last_row = last_table_row(conn, table.table_id)
        row, is_registered = last_row if last_row is not None else (table, False)
        if row.state == "frozen":
            return False
        now_ms = registry.next_change_ms(conn)
        if is_registered:
            registry.change_table(conn, table.table_id, at_ms=now_ms, state="frozen")
        details = {"version": version, "state_before": row.state, "evidence": evidence, "location": table.location}
        write_audit(conn, action="freeze", at_ms=now_ms, actor=actor, origin="mirror", table=row, details=details)
        conn.run(
            "put_mirror_status",
            table_id=table.table_id,
            version=version,
            attempts=1,
            error=redact(evidence)[:MAX_ERROR_CHARACTERS],
            # Not retried automatically.
            next_try_ms=LIVE,
        )
    return True


# -- leases


def new_holder() -> str:
    """A unique name for a holder of leases in this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def take_lease(conn: Connection, lease: str, holder: str) -> bool:
    """Take a lease for ten seconds, or extend it by ten; False while another holder has it."""
    now_ms = conn.now_ms()
    until_ms = now_ms + int(LEASE_SECONDS * 1000)
    return conn.run("take_lease", lease=lease, holder=holder, until_ms=until_ms, now_ms=now_ms) > 0


def release_lease(conn: Connection, lease: str, holder: str) -> None:
    conn.run("release_lease", lease=lease, holder=holder)


@contextmanager
def renewed(store: Store, lease: str, holder: str) -> Iterator[None]:
    """Renew a lease while the block runs. Losing it is harmless: another process would write the same."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_SECONDS / 3):
            try:
                with store.write() as conn:
                    until_ms = conn.now_ms() + int(LEASE_SECONDS * 1000)
                    # Only a lease that is still held: a released one must not be taken again.
                    conn.run("renew_lease", lease=lease, holder=holder, until_ms=until_ms)
            except StoreError:  # retried in a moment; at worst another process does the work too
                continue

    thread = threading.Thread(target=renew, name="deltalakedb-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
