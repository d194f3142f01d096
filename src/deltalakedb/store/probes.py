"""Turns a column's ranges into windows of the planning index: one set for each width class of the column's bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, ldexp
from typing import NamedTuple

from deltalakedb.log.predicates.atoms import IsNotNull, IsNull, Within
from deltalakedb.log.predicates.ranges import NumberRange, TextRange, next_down
from deltalakedb.log.statistics.intervals import EMPTY, POINT, UNBOUNDED

MAX_RECHECKED = 16
"""Up to this many ranges, rows found by a merged window are compared with each range again."""

ABOVE_ALL_TEXT = "\U0010ffff" * 17
"""Stored texts have at most 64 bytes, 16 of the largest characters, so none sorts above this one."""


@dataclass(frozen=True, slots=True)
class IndexedAtom:
    """An atom on a column with bounds; files below `first_file_id` have none."""

    atom: Within | IsNull | IsNotNull
    column_id: int
    first_file_id: int
    width_classes: tuple[int, ...]

    @property
    def is_probe(self) -> bool:
        """Whether the index can find its files; it holds neither NaN nor null counts."""
        return isinstance(self.atom, Within) and not self.atom.nan

    @property
    def is_text(self) -> bool:
        return self.atom.column.kind == "text"

    @property
    def num_ranges(self) -> int:
        return len(self.atom.ranges) if isinstance(self.atom, Within) else 0

    @property
    def numbers(self) -> list[NumberRange]:
        return [r for r in self.atom.ranges if isinstance(r, NumberRange)] if isinstance(self.atom, Within) else []

    @property
    def texts(self) -> list[TextRange]:
        return [r for r in self.atom.ranges if isinstance(r, TextRange)] if isinstance(self.atom, Within) else []


class NumberProbe(NamedTuple):
    """Selects rows of a class with `lower between low and high and upper >= reach`."""

    width_class: int
    low: float
    high: float
    reach: float


class TextProbe(NamedTuple):
    """Selects rows by text bounds, like NumberProbe; a flag is 1 if that end is exclusive."""

    width_class: int
    low: str
    high: str
    high_open: int
    reach: str
    reach_open: int


def number_probes(ranges: Sequence[NumberRange], width_classes: Iterable[int]) -> tuple[list[NumberProbe], bool]:
    """Returns windows that do not overlap within a class, and whether some cover several ranges."""
    probes: list[NumberProbe] = []
    merged = False
    for width_class in width_classes:
        if width_class == EMPTY:
            continue
        first = len(probes)
        for item in ranges:
            low = _farthest_lower(item, width_class)
            if low > item.hi:
                continue
            if len(probes) > first and low <= probes[-1].high:
                last = probes[-1]
                probes[-1] = NumberProbe(width_class, last.low, max(last.high, item.hi), min(last.reach, item.lo))
                merged = True
            else:
                probes.append(NumberProbe(width_class, low, item.hi, item.lo))
    return probes, merged


def _farthest_lower(item: NumberRange, width_class: int) -> float:
    """The lowest lower bound of an interval of the class that can still reach the range, rounded down."""
    if width_class == POINT:
        return item.lo
    if width_class >= min(UNBOUNDED, 1024) or item.lo == -inf:
        return -inf
    return next_down(item.lo - ldexp(1.0, width_class))


def text_probes(ranges: Sequence[TextRange], width_classes: Iterable[int]) -> tuple[list[TextProbe], bool]:
    """Returns windows for text, like `number_probes`; a class is the length of the common prefix of a file's bounds.

    A file of class n that reaches a text shares its first n characters or is above them, so its lower bound is not
    below that prefix.
    """
    probes: list[TextProbe] = []
    merged = False
    for width_class in width_classes:
        if width_class == EMPTY:
            continue
        first = len(probes)
        for item in ranges:
            low = item.lo if width_class == POINT else item.lo[:width_class]
            high, high_open = (ABOVE_ALL_TEXT, 0) if item.hi is None else (item.hi, int(item.hi_open))
            if len(probes) > first and low <= probes[-1].high:
                probes[-1] = probes[-1]._replace(high=high, high_open=high_open)
                merged = True
            else:
                probes.append(TextProbe(width_class, low, high, high_open, item.lo, int(item.lo_open)))
    return probes, merged
