"""What a capture tells the metrics: rows, batches, lag and failures."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from deltalakedb import telemetry

_LOOK_SECONDS: Final = 1.0
_LOOKS: Final = 3600
"""A lag of more than an hour is not told apart from an hour's."""


def record_batch(
    slot: str, *, seconds: float, rows: Mapping[str, Mapping[str, int]], lsn: int, flushed_lsn: int
) -> None:
    """A batch was committed: `rows` counts its changes by source table and operation (layers.INSERT and so on).

    `flushed_lsn` is how far the source was when somebody last looked.
    """
    telemetry.capture_batch(slot, seconds, {(table, op): n for table, ops in rows.items() for op, n in ops.items()})
    telemetry.capture_lag(slot, num_bytes=max(0, flushed_lsn - lsn))


class LagMeter:
    """Measures how late a capture is: what the source's log had at a look is in when the capture is past it."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)
        self._next = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def record(self, *, flushed_lsn: int, lsn: int) -> None:
        """The source is at the one, the capture at the other."""
        now = time.monotonic()
        self._next = now + _LOOK_SECONDS
        self._looks.append((now, flushed_lsn))
        while len(self._looks) > 1 and self._looks[1][1] <= lsn:
            self._looks.popleft()
        seconds = 0.0 if flushed_lsn <= lsn else now - self._looks[0][0]
        telemetry.capture_lag(self._slot, num_bytes=max(0, flushed_lsn - lsn), seconds=seconds)


def record_failure(slot: str, error: BaseException) -> None:
    """A batch, a copy or an upkeep failed; it is counted by the kind of its error."""
    telemetry.capture_failed(slot, error)
