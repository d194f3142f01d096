"""Places in the source's log as a stream keeps them, where its next batch ends, and how a range is shared out."""

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
"""Less log than this is read faster by one task than by two: each decodes what lies before its own part."""
_MOST_EMPTY: Final = 16
_MOST_SPARSE: Final = 3
"""Doublings of a range: of the log of one huge transaction, and of log that has something in it and may have more."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in the log of one server."""

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
        """Refuse a server in whose log this place means something else."""
        if (self.system_id, self.timeline) != (server.system_id, server.timeline):
            raise WrongServerError(
                f"the stream is at {format_lsn(self.lsn)} of the server {self.system_id}, timeline {self.timeline}, "
                f"and the source is {server.system_id}, timeline {server.timeline}: correct the DSN, or begin a new "
                "query with a checkpoint of its own"
            )


class Pace:
    """Where the next batch ends: a full one at once, whatever there is when the window has passed."""

    def __init__(self, num_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes, self._seconds, self._clock = num_bytes, seconds, clock
        self._begun = clock() - seconds
        self.last: int | None = None
        """Where the newest batch ends."""

    def begin(self, lsn: int) -> None:
        """The next batch begins here."""
        self.last = lsn

    def next_end(self, flushed: int, stretch: int = 0) -> int:
        """The end of the next batch, which is where it begins while there is none (`stretch`: see `stretch_after`)."""
        if self.last is None:  # a query goes on where its checkpoint says, which we are told later: take all there is
            self.last, self._begun = flushed, self._clock()
            return flushed
        now, gathered = self._clock(), flushed - self.last
        most = self._bytes << stretch
        if gathered >= most or (gathered > 0 and now - self._begun >= self._seconds):
            self.last += min(gathered, most)
            self._begun = now
        return self.last


def stretch_after(stretch: int, log_bytes: int, held_bytes: int, batch_bytes: int) -> int:
    """How often the size of a batch is doubled for the next range, after one of so much log that held so much.

    The log may have far more bytes than there are to capture: a whole page with the first change of it after a
    checkpoint, and tables that nobody captures. Then the fixed cost of a batch counts, which looks through the keys of
    all rows, and a range is larger. Of a transaction that is larger than a batch nothing can be read before its end,
    and all of it is decoded each time: after ranges without anything the next one is twice as large.
    """
    if log_bytes < batch_bytes:  # it was all there was, and says nothing of what comes
        return 0
    if not held_bytes:
        return min(stretch + 1, _MOST_EMPTY)
    # A quarter of a batch is aimed at, because the next range may hold more than the last one did.
    times = log_bytes // (4 * held_bytes)
    return max(0, min(times.bit_length() - 1, stretch + 2, _MOST_SPARSE))


def split_range(start: int, end: int, tasks: int, batch_bytes: int | None = None) -> list[tuple[int, int]]:
    """Parts of a range, one for each task; none of an empty range.

    One that is larger than a batch holds little: to read over the log is most of the work, and would be done twice.
    """
    if end <= start:
        return []
    is_stretched = batch_bytes is not None and end - start > batch_bytes
    count = 1 if is_stretched else max(1, min(tasks, (end - start) // _TASK_BYTES))
    cuts = [start + (end - start) * place // count for place in range(count + 1)]
    return list(itertools.pairwise(cuts))
