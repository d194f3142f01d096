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

    def next_end(self, flushed: int, empty: int = 0) -> int:
        """The end of the next batch, which is where it begins while there is none.

        Of a transaction that is larger than a batch nothing can be read before its end, and all of it is decoded each
        time: after ranges without anything (`empty` of them) the next one is twice as large.
        """
        if self.last is None:  # a query goes on where its checkpoint says, which we are told later: take all there is
            self.last, self._begun = flushed, self._clock()
            return flushed
        now, gathered = self._clock(), flushed - self.last
        most = self._bytes << min(empty, 16)
        if gathered >= most or (gathered > 0 and now - self._begun >= self._seconds):
            self.last += min(gathered, most)
            self._begun = now
        return self.last


def split_range(start: int, end: int, tasks: int) -> list[tuple[int, int]]:
    """Parts of a range, one for each task; none of an empty range."""
    if end <= start:
        return []
    count = max(1, min(tasks, (end - start) // _TASK_BYTES))
    cuts = [start + (end - start) * place // count for place in range(count + 1)]
    return list(itertools.pairwise(cuts))
