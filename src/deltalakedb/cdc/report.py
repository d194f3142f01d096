"""The report of a capture's run, and of each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from deltalakedb.cdc.lsn import format_lsn


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
