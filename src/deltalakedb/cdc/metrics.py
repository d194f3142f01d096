"""What a capture tells the metrics: rows, batches, lag and failures."""

from __future__ import annotations

from collections.abc import Mapping

from deltalakedb import telemetry


def record_batch(
    slot: str, *, seconds: float, rows: Mapping[str, Mapping[str, int]], lsn: int, flushed_lsn: int
) -> None:
    """A batch was committed: `rows` counts its changes by source table and operation (layers.INSERT and so on).

    `flushed_lsn` is how far the source was when somebody last looked.
    """
    telemetry.capture_batch(slot, seconds, {(table, op): n for table, ops in rows.items() for op, n in ops.items()})
    telemetry.capture_lag(slot, num_bytes=max(0, flushed_lsn - lsn))


def record_lag(slot: str, *, num_bytes: int, seconds: float) -> None:
    """How far the lake is behind the source: bytes of its log, and the age of the oldest change that is missing."""
    telemetry.capture_lag(slot, num_bytes=num_bytes, seconds=seconds)


def record_failure(slot: str, error: BaseException) -> None:
    """A batch, a copy or an upkeep failed; it is counted by the kind of its error."""
    telemetry.capture_failed(slot, error)
