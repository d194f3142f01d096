"""The state of a capture: how far behind it is, who runs it, what its slot holds, and what became of each table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.control import Capture, Server, load_capture
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.presence import RunningCapture, find_runner
from deltalakedb.cdc.server import connect, flush_lsn, identify, translate_errors
from deltalakedb.cdc.slots import Slot, find_slot
from deltalakedb.exceptions import CaptureError
from deltalakedb.instants import to_epoch_ms, to_iso

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable
    from deltalakedb.registered import TableInfo

RATE_SECONDS: Final = 60
_LATE_HEARTBEATS: Final = 3
_LITTLE_WAL: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A captured table and its two tables in the lake."""

    source: str
    current: str
    changes: str
    stage: str
    start_lsn: int | None
    """Where its copy was made."""
    rows: int | None
    """Rows of the table of current rows."""
    captured: int | None
    """Changes in the table of changes."""
    version: int | None
    """Of the table of current rows."""
    last_commit_at: datetime | None
    """When one of the two tables last changed."""
    rows_per_second: float
    """Changes captured, over the last minute."""
    reason: str | None
    incomplete_since: int | None
    """Transactions from this LSN on are in the lake without what they did to this table."""
    notes: tuple[str, ...]

    def to_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "current": self.current,
            "changes": self.changes,
            "stage": self.stage,
            "start_lsn": _lsn(self.start_lsn),
            "rows": self.rows,
            "captured": self.captured,
            "version": self.version,
            "last_commit_at": _iso(self.last_commit_at),
            "rows_per_second": round(self.rows_per_second, 1),
            "reason": self.reason,
            "incomplete_since": _lsn(self.incomplete_since),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """A capture as both sides see it. What only the source knows is None when nobody could ask it."""

    slot_name: str
    publication: str
    control: str
    at: datetime
    capture: Capture | None
    """None before the first start."""
    progress_at: datetime | None = None
    """When the lake last noted progress: a batch, or a heartbeat while there was nothing to capture."""
    server: Server | None = None
    """The one that answers at the source's address now."""
    runner: RunningCapture | None = None
    slot: Slot | None = None
    flushed_lsn: int | None = None
    tables: tuple[TableStatus, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """What is wrong, each with what to do about it."""

    @property
    def state(self) -> str:
        """`new`, `running` or `stopped`; `unknown` when the source could not be asked."""
        if self.capture is None:
            return "new"
        if self.flushed_lsn is None:
            return "unknown"
        return "running" if self.runner is not None else "stopped"

    @property
    def lag_bytes(self) -> int | None:
        """The source's log that is not in the lake, whatever it is about."""
        if self.capture is None or self.flushed_lsn is None:
            return None
        return max(0, self.flushed_lsn - self.capture.lsn)

    @property
    def lag_seconds(self) -> float | None:
        """How long ago everything was in the lake; 0 when everything is. An idle capture stays within its heartbeat."""
        if self.lag_bytes is None or self.progress_at is None:
            return None
        return max(0.0, (self.at - self.progress_at).total_seconds()) if self.lag_bytes else 0.0

    @property
    def retained_bytes(self) -> int | None:
        """The log that the source keeps for the slot."""
        if self.slot is None or self.slot.restart_lsn is None or self.flushed_lsn is None:
            return None
        return max(0, self.flushed_lsn - self.slot.restart_lsn)

    @property
    def is_slot_lost(self) -> bool:
        """Whether the slot does not have what the lake lacks, so that all tables need another copy."""
        if self.capture is None or self.flushed_lsn is None:
            return False
        if self.server != self.capture.server or self.slot is None or self.slot.is_lost:
            return True
        return self.slot.confirmed_lsn > self.capture.lsn

    @property
    def rows_per_second(self) -> float:
        return sum(table.rows_per_second for table in self.tables)

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "slot": self.slot_name,
            "publication": self.publication,
            "control": self.control,
            "state": self.state,
            "at": _iso(self.at),
            "lsn": _lsn(None if self.capture is None else self.capture.lsn),
            "flushed_lsn": _lsn(self.flushed_lsn),
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_seconds,
            "progress_at": _iso(self.progress_at),
            "rows_per_second": round(self.rows_per_second, 1),
            "runner": None if self.runner is None else _runner_value(self.runner),
            "slot_health": None if self.slot is None else {**_slot_value(self.slot), "retained": self.retained_bytes},
            "tables": [table.to_value() for table in self.tables],
            "problems": list(self.problems),
        }


def capture_status(catalog: Catalog, settings: CaptureSettings) -> CaptureStatus:
    """Ask the lake, and the source if it answers; with `settings.source` empty only the lake."""
    now = datetime.now(UTC)
    capture = load_capture(catalog, settings)
    given: dict[str, Any] = {
        "slot_name": settings.slot,
        "publication": settings.publication,
        "control": settings.control_table,
        "at": now,
        "capture": capture,
    }
    if capture is not None:
        infos = {info.full_name.lower(): info for info in catalog.table_infos()}
        given["progress_at"] = _committed_at(infos.get(capture.control.lower()))
        given["tables"] = tuple(_table_status(catalog, table, infos, now) for table in capture.tables.values())
    unasked = None
    try:
        given |= _ask_source(settings) if settings.source else {}
    except CaptureError as error:
        unasked = f"the source could not be asked: {' '.join(str(error).split())}"
    found = CaptureStatus(**given)
    problems = [*([unasked] if unasked else []), *_find_problems(found, settings)]
    return CaptureStatus(**given, problems=tuple(problems))


def _ask_source(settings: CaptureSettings) -> dict[str, Any]:
    with connect(settings.source) as conn, translate_errors():
        return {
            "server": identify(conn),
            "runner": find_runner(conn, settings.slot),
            "slot": find_slot(conn, settings.slot),
            "flushed_lsn": flush_lsn(conn),
        }


def _table_status(catalog: Catalog, table: CapturedTable, infos: Mapping[str, TableInfo], now: datetime) -> TableStatus:
    current, changes = infos.get(table.current.lower()), infos.get(table.changes.lower())
    commits = [at for at in (_committed_at(current), _committed_at(changes)) if at is not None]
    return TableStatus(
        source=table.source,
        current=table.current,
        changes=table.changes,
        stage=table.stage,
        start_lsn=table.start_lsn,
        rows=None if current is None else current.num_records,
        captured=None if changes is None else changes.num_records,
        version=None if current is None else current.version,
        last_commit_at=max(commits, default=None),
        rows_per_second=_rate(catalog, changes, now),
        reason=table.reason,
        incomplete_since=table.stopped_lsn if table.stage == "stopped" else None,
        notes=table.notes,
    )


def _rate(catalog: Catalog, changes: TableInfo | None, now: datetime) -> float:
    """Changes a second, by what the commits of the last minute say of themselves."""
    since_ms = to_epoch_ms(now) - RATE_SECONDS * 1000
    if changes is None or (changes.committed_at_ms or 0) < since_ms:
        return 0.0
    entries = catalog.history(changes.full_name, since=since_ms)
    rows = sum(int(entry.get("operationMetrics", {}).get("numOutputRows", 0)) for entry in entries)
    return rows / RATE_SECONDS


def _find_problems(status: CaptureStatus, settings: CaptureSettings) -> Iterator[str]:
    if status.capture is None or status.flushed_lsn is None:
        return
    if status.server != status.capture.server:
        yield (
            f"the source is not the server (or database) that was captured, {status.capture.server.database} of "
            f"system {status.capture.server.system_id}, timeline {status.capture.server.timeline}: correct the DSN; "
            "if it took the other one's place, dl cdc resnapshot copies every table from it"
        )
        return
    yield from _slot_problems(status, status.capture)
    if status.runner is not None and status.lag_bytes and status.progress_at is not None:
        silent = (status.at - status.progress_at).total_seconds()
        if silent > max(_LATE_HEARTBEATS * settings.heartbeat_seconds, 10 * settings.batch_seconds):
            yield (
                f"the runner has noted no progress for {silent:.0f} s: see its log; a large copy or a large batch "
                "looks like this too"
            )
    for table in status.tables:
        if table.stage == "stopped":
            since = "" if table.incomplete_since is None else f" since {format_lsn(table.incomplete_since)}"
            yield (
                f"{table.source} is stopped: {table.reason}; transactions that touched it are incomplete in the "
                f"lake{since}"
            )
        elif table.stage == "pending" and status.runner is None:
            yield f"{table.source} waits for its copy: dl cdc start makes it"


def _slot_problems(status: CaptureStatus, capture: Capture) -> Iterator[str]:
    slot, anew = status.slot, f"copy the tables anew: dl cdc resnapshot --slot {status.slot_name}, then dl cdc start"
    if slot is None:
        yield f"the slot {status.slot_name} is gone, what was committed since is lost to the lake: {anew}"
    elif slot.is_lost:
        why = slot.invalidation_reason or slot.wal_status
        yield f"the slot {slot.name} is lost ({why}), what was committed since is lost to the lake: {anew}"
    elif slot.confirmed_lsn > capture.lsn:
        yield (
            f"the slot {slot.name} was moved to {format_lsn(slot.confirmed_lsn)} by somebody else, past "
            f"{format_lsn(capture.lsn)}: {anew}"
        )
    elif slot.wal_status == "unreserved" or (slot.safe_wal_size is not None and slot.safe_wal_size < _LITTLE_WAL):
        left = "" if slot.safe_wal_size is None else f", {slot.safe_wal_size >> 20} MB of log before it is lost"
        yield (
            f"the slot {slot.name} is close to its end ({slot.wal_status}{left}): start the capture, or raise "
            "max_slot_wal_keep_size on the source"
        )


def _committed_at(info: TableInfo | None) -> datetime | None:
    if info is None or info.committed_at_ms is None:
        return None
    return datetime.fromtimestamp(info.committed_at_ms / 1000, UTC)


def _runner_value(runner: RunningCapture) -> dict[str, Any]:
    return {"pid": runner.pid, "host": runner.host, "backend_pid": runner.backend_pid, "since": _iso(runner.since)}


def _slot_value(slot: Slot) -> dict[str, Any]:
    return {
        "wal_status": slot.wal_status,
        "safe_wal_size": slot.safe_wal_size,
        "confirmed_lsn": _lsn(slot.confirmed_lsn),
        "restart_lsn": _lsn(slot.restart_lsn),
        "active_pid": slot.active_pid,
        "inactive_since": _iso(slot.inactive_since),
        "invalidation_reason": slot.invalidation_reason,
    }


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else to_iso(to_epoch_ms(at))
