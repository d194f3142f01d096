"""Offsets of a stream in the source's log, the end of its next batch, and the division of a range into tasks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.cdc.control import Server
from deltalakedb.cdc.lsn import format_lsn, parse_lsn
from deltalakedb.exceptions import WrongServerError

_TASK_BYTES: Final = 8 << 20
"""Less log than this is read faster by one task than by two, because each decodes what lies before its own part."""
_MOST_EMPTY: Final = 16
_MOST_SPARSE: Final = 3
"""Doublings of a range: for log of one huge transaction, and for log with few changes, which may have more."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the log of one server."""

    lsn: int
    system_id: str
    timeline: int

    @classmethod
    def of(cls, lsn: int, server: Server) -> Offset:
        return cls(lsn, server.system_id, server.timeline)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Offset:
        return cls(parse_lsn(value["lsn"]), value["systemId"], value["timeline"])

    def to_value(self) -> dict[str, Any]:
        return {"lsn": format_lsn(self.lsn), "systemId": self.system_id, "timeline": self.timeline}

    def check(self, server: Server) -> None:
        """WrongServerError if the server is another one, in whose log this position is meaningless."""
        if (self.system_id, self.timeline) != (server.system_id, server.timeline):
            raise WrongServerError(
                f"the stream is at {format_lsn(self.lsn)} of the server {self.system_id}, timeline {self.timeline}, "
                f"and the source is {server.system_id}, timeline {server.timeline}: correct the DSN, or begin a new "
                "query with a checkpoint of its own"
            )


class Pace:
    """Decides where the next batch ends: at once if it is full, otherwise when the window has passed."""

    def __init__(self, num_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes, self._seconds, self._clock = num_bytes, seconds, clock
        self._begun = clock() - seconds
        self.last: int | None = None
        """Where the newest batch ends."""

    def begin(self, lsn: int) -> None:
        """The next batch begins here."""
        self.last = lsn

    def next_end(self, flushed: int, stretch: int = 0) -> int:
        """The end of the next batch; its beginning if none is due (`stretch`: see `stretch_after`)."""
        if self.last is None:  # a restarted query learns its offset later: return everything there is
            self.last, self._begun = flushed, self._clock()
            return flushed
        now, gathered = self._clock(), flushed - self.last
        limit = self._bytes << stretch
        if gathered >= limit or (gathered > 0 and now - self._begun >= self._seconds):
            self.last += min(gathered, limit)
            self._begun = now
        return self.last


def stretch_after(stretch: int, log_bytes: int, held_bytes: int, batch_bytes: int) -> int:
    """How often to double the size of a batch for the next range, after `log_bytes` that held `held_bytes`.

    The log may have far more bytes than there are to capture: a whole page with the first change to it after a
    checkpoint, and tables that are not captured. Then the fixed cost of a batch, which looks through the keys of all
    rows, matters, and a range is larger. Of a transaction that is larger than a batch nothing can be read before its
    end, and all of it is decoded each time: after ranges without any change the next one is twice as large.
    """
    if log_bytes < batch_bytes:  # it was all there was, and says nothing about the next range
        return 0
    if not held_bytes:
        return min(stretch + 1, _MOST_EMPTY)
    # It aims at a quarter of a batch, because the next range may hold more than the last one did.
    times = log_bytes // (4 * held_bytes)
    return max(0, min(times.bit_length() - 1, stretch + 2, _MOST_SPARSE))


def split_range(start: int, end: int, tasks: int, batch_bytes: int | None = None) -> list[tuple[int, int]]:
    """Divide a range into parts, one for each task; an empty range has none.

    A range larger than a batch holds little: decoding the log is most of the work, and would be done twice.
    """
    if end <= start:
        return []
    is_stretched = batch_bytes is not None and end - start > batch_bytes
    count = 1 if is_stretched else max(1, min(tasks, (end - start) // _TASK_BYTES))
    cuts = [start + (end - start) * place // count for place in range(count + 1)]
    return list(itertools.pairwise(cuts))
