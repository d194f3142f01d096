"""The status of a capture: its lag, its runner, its slot, its tables, and problems with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.catalog.instants import to_epoch_ms, to_iso
from deltalakedb.cdc.captured_table import NOT_ASKED_FOR
from deltalakedb.cdc.control import Capture, Server, load_capture
from deltalakedb.cdc.copy.copies import parts_read
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.presence import RunningCapture, find_runner
from deltalakedb.cdc.source.postgres import connect, flush_lsn, identify, translate_errors
from deltalakedb.cdc.source.publication import Coverage, look_at_coverage
from deltalakedb.cdc.source.slots import Slot, find_slot
from deltalakedb.cdc.source.source_catalog import read_relations
from deltalakedb.cdc.source_names import quote_name
from deltalakedb.exceptions import CaptureError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.catalog.entries import TableInfo
    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.settings import CaptureSettings

RATE_SECONDS: Final = 60
_LATE_HEARTBEATS: Final = 3
_LITTLE_WAL: Final = 1 << 30
_LITTLE_PART: Final = 5


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A captured table and its two tables in the lake."""

    source: str
    current: str
    changes: str
    stage: str
    start_lsn: int | None
    """The LSN of its copy."""
    rows: int | None
    """Rows of the table of current rows."""
    captured: int | None
    """Changes in the table of changes."""
    version: int | None
    """Of the table of current rows."""
    last_commit_at: datetime | None
    """When one of the two tables last changed."""
    rows_per_second: float
    """Captured changes, over the last minute."""
    reason: str | None
    incomplete_since: int | None
    """Transactions from this LSN on are in the lake without their changes to this table."""
    notes: tuple[str, ...]

    def to_value(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "start_lsn": _lsn(self.start_lsn),
            "last_commit_at": _iso(self.last_commit_at),
            "rows_per_second": round(self.rows_per_second, 1),
            "incomplete_since": _lsn(self.incomplete_since),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """A capture as both sides see it. Fields of the source are None if it could not be asked."""

    slot_name: str
    publication: str
    control: str
    at: datetime
    capture: Capture | None
    """None before the first start."""
    progress_at: datetime | None = None
    """When the lake last recorded progress: a batch, or a heartbeat while there was nothing to capture."""
    server: Server | None = None
    """The server at the source's address now."""
    runner: RunningCapture | None = None
    slot: Slot | None = None
    flushed_lsn: int | None = None
    coverage: Coverage | None = None
    """The summary of the publication; None if it does not exist."""
    memberships: Mapping[str, int | None] = field(default_factory=dict)
    """The present oids of the publication's entries, for tables that follow the stream, by source table."""
    tables: tuple[TableStatus, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Problems, each with what to do about it."""

    @property
    def state(self) -> str:
        """`new`, `running` or `stopped`; `unknown` if the source could not be asked."""
        if self.capture is None:
            return "new"
        if self.flushed_lsn is None:
            return "unknown"
        return "running" if self.runner is not None else "stopped"

    @property
    def lag_bytes(self) -> int | None:
        """The source's log that is not in the lake, whatever it contains."""
        if self.capture is None or self.flushed_lsn is None:
            return None
        return max(0, self.flushed_lsn - self.capture.lsn)

    @property
    def lag_seconds(self) -> float | None:
        """The age of the last progress; 0 if everything is in the lake. An idle capture stays within its heartbeat."""
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
        """Whether the slot no longer has what is missing in the lake, so that all tables need another copy."""
        if self.capture is None or self.flushed_lsn is None or not self.capture.streaming:
            return False
        if self.server != self.capture.server or self.slot is None or self.slot.is_lost:
            return True
        return self.slot.confirmed_lsn > self.capture.lsn

    @property
    def is_publication_anew(self) -> bool:
        """Whether all tables that follow the stream have new entries in the publication."""
        if self.capture is None or self.server != self.capture.server:
            return False
        memberships = [(table.membership, self.memberships.get(table.source)) for table in self.capture.streaming]
        return bool(memberships) and all(None not in (before, now) and before != now for before, now in memberships)

    @property
    def rows_per_second(self) -> float:
        return sum(table.rows_per_second for table in self.tables)

    def to_value(self) -> dict[str, Any]:
        """The JSON form."""
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
            "left_out": {} if self.coverage is None else dict(self.coverage.left_out),
            "problems": list(self.problems),
        }


def capture_status(catalog: Catalog, settings: CaptureSettings) -> CaptureStatus:
    """Read the status from the lake, and from the source if it answers; only from the lake if `source` is empty."""
    now = datetime.now(UTC)
    capture = load_capture(catalog, settings)
    values: dict[str, Any] = {
        "slot_name": settings.slot,
        "publication": settings.publication,
        "control": settings.control_table,
        "at": now,
        "capture": capture,
    }
    if capture is not None:
        infos = {info.full_name.lower(): info for info in catalog.table_infos()}
        values["progress_at"] = _committed_at(infos.get(capture.control.lower()))
        parts = parts_read(catalog, capture)
        values["tables"] = tuple(
            _table_status(catalog, _with_parts(table, parts), infos, now) for table in capture.tables.values()
        )
    unasked = None
    try:
        values |= _ask_source(settings, capture) if settings.source else {}
    except CaptureError as error:
        unasked = f"the source could not be asked: {' '.join(str(error).split())}"
    status = CaptureStatus(**values)
    problems = [*([unasked] if unasked else []), *_find_problems(status, settings)]
    return CaptureStatus(**values, problems=tuple(problems))


def _ask_source(settings: CaptureSettings, capture: Capture | None) -> dict[str, Any]:
    followed = {} if capture is None else {table.oid: table.source for table in capture.streaming}
    with connect(settings.source) as conn, translate_errors():
        relations = read_relations(conn, followed, settings.publication) if followed else {}
        return {
            "memberships": {followed[oid]: relation.membership for oid, relation in relations.items()},
            "server": identify(conn),
            "runner": find_runner(conn, settings.slot),
            "slot": find_slot(conn, settings.slot),
            "flushed_lsn": flush_lsn(conn),
            "coverage": look_at_coverage(conn, settings.publication),
        }


def _table_status(catalog: Catalog, table: CapturedTable, infos: Mapping[str, TableInfo], now: datetime) -> TableStatus:
    # Before its first copy a table of its name in the lake is somebody else's.
    is_begun = table.start_lsn is not None
    current, changes = (infos.get(name.lower()) if is_begun else None for name in (table.current, table.changes))
    commits = [moment for moment in (_committed_at(current), _committed_at(changes)) if moment is not None]
    return TableStatus(
        source=table.source,
        current=table.current,
        changes=table.changes,
        stage=table.stage,
        start_lsn=None if current is None and changes is None else table.start_lsn,
        rows=None if current is None else current.num_records,
        captured=None if changes is None else changes.num_records,
        version=None if current is None else current.version,
        last_commit_at=max(commits, default=None),
        rows_per_second=_rate(catalog, changes, now),
        reason=table.reason,
        incomplete_since=table.stopped_lsn if table.stage == "stopped" else None,
        notes=table.notes,
    )


def _with_parts(table: CapturedTable, parts: Mapping[str, tuple[int, int]]) -> CapturedTable:
    """The table with a note on the progress of its copy."""
    if table.source not in parts:
        return table
    done, total = parts[table.source]
    return replace(table, notes=(*table.notes, f"{done} of {total} parts of its copy are read"))


def _rate(catalog: Catalog, changes: TableInfo | None, now: datetime) -> float:
    """Changes per second, from the metrics of the commits of the last minute."""
    since_ms = to_epoch_ms(now) - RATE_SECONDS * 1000
    if changes is None or (changes.committed_at_ms or 0) < since_ms:
        return 0.0
    entries = catalog.history(changes.full_name, since=since_ms)
    rows = sum(int(entry.get("operationMetrics", {}).get("numOutputRows", 0)) for entry in entries)
    return rows / RATE_SECONDS


def _find_problems(status: CaptureStatus, settings: CaptureSettings) -> Iterator[str]:
    yield from _stopped_tables(status)
    if status.flushed_lsn is None:
        return
    if status.coverage is not None and not status.coverage.tables:
        yield empty_publication(status.coverage.quoted)
    if status.capture is None:
        return
    if status.is_publication_anew:
        yield (
            f"the publication {status.publication}, or all that is captured of it, was dropped and made anew, and what "
            "was changed meanwhile is in no message: dl cdc stop, dl cdc resnapshot, then dl cdc start"
        )
    if status.coverage is None and status.server == status.capture.server:
        yield (
            f"the source has no publication {status.publication} any more: create publication "
            f"{quote_name(status.publication)} for all tables, then dl cdc resnapshot; what is changed meanwhile "
            "is in no message"
        )
    if status.server != status.capture.server:
        yield (
            f"the source is not the server (or database) that was captured, {status.capture.server.database} of "
            f"system {status.capture.server.system_id}, timeline {status.capture.server.timeline}: correct the DSN; "
            "if it took the other one's place, dl cdc resnapshot copies every table from it"
        )
        return
    if status.capture.streaming:
        yield from _slot_problems(status, status.capture)
        yield from _limit_problems(status, settings)
    if status.runner is not None and status.lag_bytes and status.progress_at is not None:
        silent = (status.at - status.progress_at).total_seconds()
        if silent > max(_LATE_HEARTBEATS * settings.heartbeat_seconds, 10 * settings.batch_seconds):
            yield (
                f"the runner has noted no progress for {silent:.0f} s: see its log; a large copy or a large batch "
                "looks like this too"
            )
    for table in status.tables:
        if table.stage in ("pending", "copying") and status.runner is None:
            waits = "waits for its copy" if table.stage == "pending" else "is not copied to the end"
            yield f"{table.source} {waits}: dl cdc start makes it"


def _stopped_tables(status: CaptureStatus) -> Iterator[str]:
    """Problems of stopped tables, which the lake has whether the source answers or not."""
    for table in () if status.capture is None else status.tables:
        if table.stage != "stopped" or table.reason == NOT_ASKED_FOR:
            continue
        since = "" if table.incomplete_since is None else f" since {format_lsn(table.incomplete_since)}"
        yield (
            f"{table.source} is stopped: {table.reason}; transactions that touched it are incomplete in the lake{since}"
        )


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


def _limit_problems(status: CaptureStatus, settings: CaptureSettings) -> Iterator[str]:
    """Problems of a slot that will soon be lost, or that fills the source's disk."""
    slot = status.slot
    if slot is None or slot.is_lost:
        return
    if is_close_to_limit(slot):
        yield f"{describe_limit(slot)}: start the capture, or raise max_slot_wal_keep_size on the source"
    if settings.slot_alert_bytes and (status.retained_bytes or 0) > settings.slot_alert_bytes:
        yield (
            f"the source keeps {(status.retained_bytes or 0) >> 20} MB of log for the slot {slot.name}, more than "
            f"slot_alert = {settings.slot_alert_bytes >> 20} MB: start the capture, or find out what holds it up"
        )
    if slot.idle_seconds is not None and slot.idle_seconds < _LATE_HEARTBEATS * settings.heartbeat_seconds:
        yield (
            f"the source gives up slots that nobody has read for {slot.idle_seconds} s "
            "(idle_replication_slot_timeout), and an idle capture reads its own every "
            f"{settings.heartbeat_seconds:g} s: raise the one or lower the other"
        )


def is_close_to_limit(slot: Slot) -> bool:
    """Whether little of what the server may keep for a slot is left: a fifth of its limit, or a gigabyte."""
    if slot.wal_status == "unreserved":
        return True
    little = _LITTLE_WAL if slot.keep_bytes is None else min(_LITTLE_WAL, slot.keep_bytes // _LITTLE_PART)
    return slot.safe_wal_size is not None and slot.safe_wal_size < little


def describe_limit(slot: Slot) -> str:
    """The message for a slot for which `is_close_to_limit`."""
    remaining = "" if slot.safe_wal_size is None else f", {slot.safe_wal_size >> 20} MB of log before it is lost"
    return f"the slot {slot.name} is close to its end ({slot.wal_status}{remaining})"


def empty_publication(quoted: str) -> str:
    """The message for a publication without tables."""
    return (
        f"the publication {quoted} has no tables, so that there is nothing to capture: alter publication {quoted} add "
        "table ...; tables that join are captured within seconds"
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
        "keep_bytes": slot.keep_bytes,
        "idle_seconds": slot.idle_seconds,
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
