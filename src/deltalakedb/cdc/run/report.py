"""What a capture reports: each batch, a run as a whole, and the metrics of its lag, its tables and its slot."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from deltalakedb import telemetry
from deltalakedb.cdc.lsn import format_lsn

if TYPE_CHECKING:
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.source.slots import Slot


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One committed batch."""

    lsn: int
    """Everything that commits before this LSN is in the lake."""
    transactions: int
    changes: Mapping[str, Mapping[str, int]]
    """Counts by source table and operation."""
    seconds: float
    """From the beginning of the read to the end of the commit."""
    last_committed_at: datetime | None = None
    """When the newest of its transactions was committed at the source."""

    @property
    def rows(self) -> int:
        return sum(sum(ops.values()) for ops in self.changes.values())


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """A run of a capture, from its start to its end."""

    slot: str
    control: str
    """The control table, which records the progress."""
    lsn: int
    """Everything that the source committed before this LSN is in the lake."""
    batches: int = 0
    transactions: int = 0
    changes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by source table and operation, without copied rows."""
    copied: tuple[str, ...] = ()
    """Source tables that were copied completely."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Source tables that are stopped, and why."""
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """The number of captured changes."""
        return sum(sum(ops.values()) for ops in self.changes.values())

    def __str__(self) -> str:
        summary = f"{self.slot} is at {format_lsn(self.lsn)}: {self.rows} changes of {self.transactions} transactions"
        return f"{summary} in {self.batches} batches, {len(self.copied)} tables copied, {len(self.stopped)} stopped"


_LOOK_SECONDS: Final = 1.0
_LOOKS: Final = 3600
"""Lags of more than an hour are reported as an hour."""


def record_batch(
    slot: str, *, seconds: float, rows: Mapping[str, Mapping[str, int]], lsn: int, flushed_lsn: int
) -> None:
    """Record a committed batch: `rows` counts its changes by source table and operation (layers.INSERT and so on).

    `flushed_lsn` is how far the source's log was at the last check.
    """
    telemetry.capture_batch(slot, seconds, {(table, op): n for table, ops in rows.items() for op, n in ops.items()})
    telemetry.capture_lag(slot, num_bytes=max(0, flushed_lsn - lsn))


class LagMeter:
    """Measures the lag in seconds: the age of the newest observed end of log that is captured already."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)
        self._next = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def record(self, *, flushed_lsn: int, lsn: int) -> None:
        """Record that the source is at `flushed_lsn` and the capture at `lsn`."""
        now = time.monotonic()
        self._next = now + _LOOK_SECONDS
        self._looks.append((now, flushed_lsn))
        while len(self._looks) > 1 and self._looks[1][1] <= lsn:
            self._looks.popleft()
        seconds = 0.0 if flushed_lsn <= lsn else now - self._looks[0][0]
        telemetry.capture_lag(self._slot, num_bytes=max(0, flushed_lsn - lsn), seconds=seconds)


def record_slot(slot: Slot, flushed_lsn: int) -> None:
    """Record how much log the source keeps for the slot, now that its log is at `flushed_lsn`."""
    retained = 0 if slot.restart_lsn is None else max(0, flushed_lsn - slot.restart_lsn)
    telemetry.capture_slot(slot.name, retained_bytes=retained, left_bytes=slot.safe_wal_size)


def record_tables(capture: Capture) -> None:
    """Record which tables follow the stream."""
    streaming = {source: table.stage == "streaming" for source, table in capture.tables.items()}
    telemetry.capture_tables(capture.slot, streaming)


def record_failure(slot: str, error: BaseException) -> None:
    """Count a failed batch, copy or upkeep, by the class of its error."""
    telemetry.capture_failed(slot, error)
