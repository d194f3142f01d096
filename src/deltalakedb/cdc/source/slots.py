"""Replication slots: the capture's own, and snapshots exported at a slot."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import errors

from deltalakedb.cdc.lsn import format_lsn, parse_lsn
from deltalakedb.cdc.source.postgres import Connection, connect, read_sql, translate_errors
from deltalakedb.exceptions import CaptureError, CaptureSetupError, SlotLostError

_log = logging.getLogger(__name__)

PLUGIN: Final = "pgoutput"
_CHECK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 10.0
WAITS: Final = (
    "a snapshot of the source waits for transactions that have been open since before it was asked for; see "
    "select pid, xact_start, state, query from pg_stat_activity where xact_start is not null order by xact_start"
)
_SLOT: Final = read_sql("select_slot")
_RESTART: Final = read_sql("select_restart")


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as the server reports it; a field that this version of Postgres does not have is None."""

    name: str
    database: str | None
    confirmed_lsn: int
    """Transactions that commit before this LSN can no longer be read from the slot."""
    restart_lsn: int | None
    """The log is kept from this LSN on; None if the slot is lost."""
    wal_status: str | None
    """reserved, extended, unreserved (soon lost) or lost."""
    safe_wal_size: int | None
    """Bytes that may be written before the slot is lost; None if no limit is set, or it is lost."""
    active_pid: int | None
    invalidation_reason: str | None
    inactive_since: datetime | None
    keep_bytes: int | None = None
    """The server's max_slot_wal_keep_size: how much log it keeps for a slot; None: as much as its disk holds."""
    idle_seconds: int | None = None
    """The server's idle_replication_slot_timeout: a slot without a reader is lost after this time; None: never."""

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidation_reason is not None or self.restart_lsn is None


def find_slot(conn: Connection, slot: str) -> Slot | None:
    """The slot of this name, or None."""
    with translate_errors():
        row = conn.execute(_SLOT, [slot]).fetchone()
    return None if row is None else _parse(row[0])


def _parse(row: Mapping[str, Any]) -> Slot:
    since, restart = row.get("inactive_since"), row.get("restart_lsn")
    confirmed, safe = row.get("confirmed_flush_lsn"), row.get("safe_wal_size")
    return Slot(
        name=row["slot_name"],
        database=row.get("database"),
        confirmed_lsn=parse_lsn(confirmed) if confirmed else 0,
        restart_lsn=parse_lsn(restart) if restart else None,
        wal_status=row.get("wal_status"),
        safe_wal_size=None if safe is None else int(safe),
        active_pid=row.get("active_pid"),
        invalidation_reason=row.get("invalidation_reason"),
        inactive_since=datetime.fromisoformat(since) if since else None,
        keep_bytes=row.get("keep_bytes"),
        idle_seconds=row.get("idle_seconds"),
    )


def create_slot(conn: Connection, slot: str) -> int:
    """Create the capture's slot; returns its LSN: transactions that commit from there on can be read.

    The server waits for the transactions that are running now.
    """
    try:
        with translate_errors():
            row = conn.execute(
                "select lsn::text from pg_create_logical_replication_slot(%s, %s)", [slot, PLUGIN]
            ).fetchone()
    except psycopg.Error as error:
        raise _not_made(error, slot) from error
    assert row is not None, "the function returns one row"
    return parse_lsn(row[0])


def advance_slot(conn: Connection, slot: str, lsn: int) -> None:
    """Let the server delete log of commits before `lsn`. A slot that is further already stays where it is."""
    current = find_slot(conn, slot)
    if current is None or current.is_lost:
        raise _slot_lost(slot, current)
    if current.confirmed_lsn >= lsn:
        return
    with _slot_errors(slot), translate_errors():
        conn.execute("select pg_replication_slot_advance(%s, %s::pg_lsn)", [slot, format_lsn(lsn)])


def keep_restart_near(conn: Connection, slot: str, most_bytes: int) -> bool:
    """Write a restart position into the log if reading starts more than `most_bytes` before the slot's position.

    Every reader decodes the log from such a position on. The server writes one every 15 seconds; a busy one writes
    much else in between. Returns whether one was written: it takes Postgres 16, and the privilege.
    """
    with translate_errors():
        row = conn.execute(_RESTART, [most_bytes, slot]).fetchone()
        if row is None or not row[0]:
            return False
        conn.execute("select pg_catalog.pg_log_standby_snapshot()")
        return True


def drop_slot(conn: Connection, slot: str) -> None:
    """Drop a slot, if it exists."""
    with _slot_errors(slot), translate_errors(), suppress(errors.UndefinedObject):
        conn.execute("select pg_drop_replication_slot(%s)", [slot])


def check_slot(conn: Connection, slot: str, lsn: int) -> Slot:
    """The slot, if it still has everything that commits from `lsn` on; otherwise SlotLostError."""
    current = find_slot(conn, slot)
    if current is None or current.is_lost:
        raise _slot_lost(slot, current)
    if current.confirmed_lsn > lsn:
        raise SlotLostError(
            f"the slot {slot} was moved to {format_lsn(current.confirmed_lsn)} by somebody else, and the lake has the "
            f"changes before {format_lsn(lsn)} only: those between are lost. Copy the tables anew: "
            f"dl cdc resnapshot --slot {slot}"
        )
    return current


@contextmanager
def exported_snapshot(dsn: str, check: Callable[[], None] | None = None) -> Iterator[tuple[str, int]]:
    """Export a snapshot for other sessions; yields its name and its LSN, before which everything is in the snapshot.

    It lives as long as the block, on a connection that stays open and idle. The server waits for the transactions that
    are running; `check` is called meanwhile, and may raise to give up.
    """
    name = f"dl_copy_{uuid.uuid4().hex}"
    conn = connect(dsn, replication=True)
    try:
        command = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL {PLUGIN} (SNAPSHOT 'export')"
        try:
            with translate_errors():
                row = _execute_checked(conn, command.encode(), check)
        except psycopg.Error as error:
            raise _not_made(error, name) from error
        assert row is not None, "the command returns one row"
        yield str(row[2]), parse_lsn(row[1])
    finally:
        conn.close()  # this drops the slot too


def _execute_checked(conn: Connection, command: bytes, check: Callable[[], None] | None) -> Any:
    with ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-snapshot") as pool:
        pending = pool.submit(lambda: conn.execute(command).fetchone())
        warn_at = time.monotonic() + _PATIENCE_SECONDS
        try:
            while not wait([pending], _CHECK_SECONDS).done:
                if check is not None:
                    check()
                if time.monotonic() >= warn_at:
                    warn_at = float("inf")
                    _log.warning("%s", WAITS)
        except BaseException:
            with suppress(psycopg.Error):
                conn.cancel_safe(timeout=_PATIENCE_SECONDS)
            raise
        return pending.result()


def _not_made(error: psycopg.Error, slot: str) -> CaptureError:
    message = error.diag.message_primary or str(error)
    hints = {
        errors.DuplicateObject: f"another capture has it: choose another slot, or {_drop_sql(slot)}",
        errors.ConfigurationLimitExceeded: (
            "drop a slot that nobody needs (select slot_name, active from pg_replication_slots), or alter system set "
            "max_replication_slots and restart the server"
        ),
        errors.InsufficientPrivilege: "alter role <role> replication",
        errors.ObjectNotInPrerequisiteState: "alter system set wal_level = logical; then restart the server",
    }
    hint = next((text for kind, text in hints.items() if isinstance(error, kind)), None)
    if hint is None:
        return CaptureError(f"the slot {slot} cannot be made: {message}")
    return CaptureSetupError(f"the slot {slot} cannot be made: {message}; {hint}")


@contextmanager
def _slot_errors(slot: str) -> Iterator[None]:
    """Translate errors about a slot: gone, unusable, or in use."""
    try:
        yield
    except errors.UndefinedObject as error:
        raise _slot_lost(slot, None) from error
    except errors.ObjectInUse as error:
        raise CaptureError(
            f"the slot {slot} is in use: {error.diag.message_primary}; only this capture may read it. "
            "See pg_replication_slots.active_pid, and end that session with select pg_terminate_backend(pid)"
        ) from error
    except errors.ConfigurationLimitExceeded as error:
        raise _not_made(error, slot) from error
    except errors.ObjectNotInPrerequisiteState as error:
        raise SlotLostError(
            f"the slot {slot} cannot be used any more: {error.diag.message_primary}. Copy the tables anew: "
            f"dl cdc resnapshot --slot {slot}"
        ) from error


def _slot_lost(slot: str, lost: Slot | None) -> SlotLostError:
    if lost is None:
        what = "is not there any more: somebody dropped it, or the server is another one"
    else:
        what = f"is lost ({lost.invalidation_reason or lost.wal_status}): its log was removed before it was read"
    return SlotLostError(
        f"the slot {slot} {what}. What was committed since is not in the lake; copy the tables anew: "
        f"dl cdc resnapshot --slot {slot}"
    )


def _drop_sql(slot: str) -> str:
    return f"select pg_drop_replication_slot('{slot}')"
