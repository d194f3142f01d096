"""What the package reports: a function for each thing that happens, called by whoever does it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass

from deltalakedb.log.actions import Action, AddFile, RemoveFile
from deltalakedb.telemetry import instruments, metrics
from deltalakedb.telemetry.events import events, log_event
from deltalakedb.telemetry.guard import never_raises
from deltalakedb.telemetry.metrics import (
    CDC_BATCH_SECONDS,
    CDC_BATCHES,
    CDC_FAILURES,
    CDC_LAG_BYTES,
    CDC_LAG_SECONDS,
    CDC_ROWS,
    COMMIT_LATENCY,
    CONFLICTS,
    FILES,
    MIRROR_FAILURES,
    MIRROR_LAG,
    MIRROR_LATENCY,
    OPEN_LATENCY,
    VERSIONS,
    Described,
)


@dataclass(frozen=True, slots=True)
class CommittedVersion:
    """One version of a commit, for its metrics and its log event."""

    table: str
    version: int
    operation: str = ""
    num_actions: int = 0
    num_files: int | None = None
    """Live files after it."""
    table_id: int | None = None
    actions: Sequence[Action] = ()
    """What it consists of; looked at only when somebody listens to events."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that commits add and remove, by their actions, and the bytes in them."""

    num_added_files: int = 0
    added_bytes: int = 0
    num_removed_files: int = 0
    removed_bytes: int = 0
    num_removed_without_size: int = 0
    """Of the removed files, those whose action does not say a size (it may not): `removed_bytes` is without them."""

    @classmethod
    def of(cls, actions: Iterable[Action]) -> FileChanges:
        added: list[int] = []
        removed: list[int | None] = []
        for action in actions:
            if isinstance(action, AddFile):
                added.append(action.size)
            elif isinstance(action, RemoveFile):
                removed.append(action.size)
        sizes = [size for size in removed if size is not None]
        return cls(len(added), sum(added), len(removed), sum(sizes), len(removed) - len(sizes))

    def __add__(self, other: FileChanges) -> FileChanges:
        return FileChanges(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def to_fields(self) -> dict[str, int]:
        """The fields of an event; files without a size are mentioned only where there are some."""
        fields = asdict(self)
        if not self.num_removed_without_size:
            del fields["num_removed_without_size"]
        return fields


@never_raises
def observe_open(milliseconds: float) -> None:
    """A table was opened."""
    _observe(OPEN_LATENCY, milliseconds)


@never_raises
def observe_commit(
    *,
    txn_id: str,
    milliseconds: float,
    versions: Sequence[CommittedVersion],
    committed_at_ms: int | None = None,
    attempts: int = 1,
    actor: str | None = None,
    message: str | None = None,
    repeated: bool = False,
) -> None:
    """A transaction was committed in SQL; once per transaction, however many tables it has.

    `repeated`: an earlier attempt had committed it, and only now is that known.
    """
    _observe(COMMIT_LATENCY, milliseconds)
    for version in versions:
        _add(VERSIONS, version.table)
        if version.num_files is not None:
            _set(FILES, version.table, version.num_files)
    if events.isEnabledFor(logging.INFO):
        changes = [FileChanges.of(version.actions) for version in versions]
        log_event(
            "commit",
            txn_id=txn_id,
            committed_at_ms=committed_at_ms,
            milliseconds=round(milliseconds, 3),
            attempts=attempts,
            actor=actor,
            message=message,
            repeated=repeated or None,
            **sum(changes, FileChanges()).to_fields(),
            versions=[_version_fields(*one) for one in zip(versions, changes, strict=True)],
        )


def _version_fields(version: CommittedVersion, changes: FileChanges) -> dict[str, object]:
    return {
        "table": version.table,
        **({} if version.table_id is None else {"table_id": version.table_id}),
        "version": version.version,
        "operation": version.operation,
        "num_actions": version.num_actions,
        **changes.to_fields(),
    }


@never_raises
def conflict(reason: str) -> None:
    """A commit was refused; the reason is the name of its exception."""
    _add(CONFLICTS, reason)


@never_raises
def observe_mirror(milliseconds: float) -> None:
    """One commit was written into `_delta_log`."""
    _observe(MIRROR_LATENCY, milliseconds)


@never_raises
def mirror_failed(table: str, version: int, error: BaseException | str) -> None:
    """A version could not be written into `_delta_log`; it will be tried again."""
    _add(MIRROR_FAILURES, table)
    log_event("mirror_failed", level=logging.WARNING, table=table, version=version, error=str(error))


@never_raises
def mirror_lag(table: str, seconds: float) -> None:
    """How old the oldest commit is that `_delta_log` does not have; 0 when it has all."""
    _set(MIRROR_LAG, table, seconds)


@never_raises
def files_active(table: str, num_files: int) -> None:
    """How many files are live at the head."""
    _set(FILES, table, num_files)


@never_raises
def forget_table(table: str) -> None:
    """A table was dropped, renamed or detached: its gauges would stand still for ever."""
    for metric in (MIRROR_LAG, FILES):
        metrics.forget(metric, (table,))


@never_raises
def capture_batch(slot: str, seconds: float, rows: Mapping[tuple[str, str], int]) -> None:
    """A batch of a capture was committed, with so many changes by source table and operation."""
    _observe(CDC_BATCH_SECONDS, seconds)
    _add(CDC_BATCHES, slot)
    for (table, op), count in rows.items():
        _add(CDC_ROWS, table, op, value=count)


@never_raises
def capture_lag(slot: str, *, num_bytes: int | None = None, seconds: float | None = None) -> None:
    """How far a capture is behind its source; what is None stays as it was."""
    if num_bytes is not None:
        _set(CDC_LAG_BYTES, slot, num_bytes)
    if seconds is not None:
        _set(CDC_LAG_SECONDS, slot, seconds)


@never_raises
def capture_failed(slot: str, error: BaseException) -> None:
    """Something of a capture failed; what it was, the stream or its upkeep, says the event."""
    _add(CDC_FAILURES, slot, type(error).__name__)
    log_event("cdc_failed", level=logging.WARNING, slot=slot, error=f"{type(error).__name__}: {error}")


class Stopwatch:
    """Milliseconds since it was made."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def milliseconds(self) -> float:
        return (time.perf_counter() - self._start) * 1000


# -- each value is counted here, and passed on to the application's meters if it has any


def _observe(metric: Described, value: float) -> None:
    metrics.observe(metric, value)
    instruments.tell(metric, value, ())


def _add(metric: Described, *labels: str, value: float = 1) -> None:
    metrics.add(metric, labels, value)
    instruments.tell(metric, value, labels)


def _set(metric: Described, label: str, value: float) -> None:
    metrics.assign(metric, (label,), value)
    instruments.tell(metric, value, (label,))
