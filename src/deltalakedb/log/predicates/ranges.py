"""Owns ranges of column values, and the set operations that predicates need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter
from typing import NamedTuple

Number = int | float | Decimal | Fraction

MAX_RANGES = 1000


class NumberRange(NamedTuple):
    """Keeps a file if `lower <= hi and upper >= lo`; ends are doubles, rounded so that no real value is lost.

    Values exist between two adjacent doubles (decimals, big integers), so a range may be inverted by one step (`hi` is
    the double below `lo`): it stands for the open gap between the two.
    """

    lo: float = -inf
    hi: float = inf

    def keeps(self, lower: float, upper: float) -> bool:
        return lower <= self.hi and upper >= self.lo


class TextRange(NamedTuple):
    """A range in code point order, which is the byte order of UTF-8; `hi` None means no upper end."""

    lo: str = ""
    hi: str | None = None
    lo_open: bool = False
    hi_open: bool = False

    def keeps(self, lower: str, upper: str | None) -> bool:
        if self.hi is not None and (lower > self.hi or (self.hi_open and lower == self.hi)):
            return False
        return upper is None or upper > self.lo or (upper == self.lo and not self.lo_open)


Ranges = tuple[NumberRange, ...] | tuple[TextRange, ...]

ALL_NUMBERS = (NumberRange(),)
ALL_TEXTS = (TextRange(),)


def round_down(value: Number) -> float:
    """The largest double that is not above `value`."""
    nearest = _nearest(value)
    return nearest if nearest <= value else next_down(nearest)


def round_up(value: Number) -> float:
    """The smallest double that is not below `value`."""
    nearest = _nearest(value)
    return nearest if nearest >= value else next_up(nearest)


def _nearest(value: Number) -> float:
    try:
        return float(value) + 0.0
    except OverflowError:
        return inf if value > 0 else -inf


def next_up(value: float) -> float:
    return nextafter(value, inf) + 0.0  # + 0.0 turns -0.0 into 0.0: stored bounds do not distinguish them


def next_down(value: float) -> float:
    return nextafter(value, -inf) + 0.0


def compare_number(op: str, least: Number, most: Number) -> tuple[NumberRange, ...]:
    """The ranges of v for which `v op x` can hold, with op one of = < <= > >=, and x somewhere in [least, most]."""
    if op == "=":
        return (NumberRange(round_down(least), round_up(most)),)
    if op == "<":
        return (NumberRange(hi=next_down(round_up(most))),)
    if op == "<=":
        return (NumberRange(hi=round_down(most)),)
    if op == ">":
        return (NumberRange(lo=next_up(round_down(least))),)
    return (NumberRange(lo=round_up(least)),)


def compare_text(op: str, value: str) -> tuple[TextRange, ...]:
    if op == "=":
        return (TextRange(value, value),)
    if op == "<":
        return (TextRange(hi=value, hi_open=True),)
    if op == "<=":
        return (TextRange(hi=value),)
    if op == ">":
        return (TextRange(value, lo_open=True),)
    return (TextRange(value),)


def numbers_outside(points: Sequence[float]) -> tuple[NumberRange, ...]:
    """All numbers except these (sorted) points."""
    starts = [-inf, *(next_up(point) for point in points)]
    ends = [*(next_down(point) for point in points), inf]
    return _fewer_numbers([NumberRange(lo, hi) for lo, hi in zip(starts, ends, strict=True)])


def texts_outside(points: Sequence[str]) -> tuple[TextRange, ...]:
    starts = [TextRange(), *(TextRange(point, lo_open=True) for point in points)]
    ends: list[str | None] = [*points, None]
    ranges = [TextRange(s.lo, hi, s.lo_open, hi is not None) for s, hi in zip(starts, ends, strict=True)]
    return _fewer_texts([item for item in ranges if item.hi != ""])


def after_prefix(prefix: str) -> str | None:
    """The smallest text above every text that starts with `prefix`; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[: end - 1] + chr(code)
    return None


def unite_numbers(ranges: Iterable[NumberRange]) -> tuple[NumberRange, ...]:
    united: list[NumberRange] = []
    for item in sorted(ranges):
        if united and item.lo <= united[-1].hi:
            united[-1] = NumberRange(united[-1].lo, max(united[-1].hi, item.hi))
        elif not united or item.hi > united[-1].hi:
            united.append(item)
    return _fewer_numbers(united)


def _fewer_numbers(ranges: list[NumberRange]) -> tuple[NumberRange, ...]:
    """Reduces to at most MAX_RANGES by closing the smallest gaps."""
    if len(ranges) <= MAX_RANGES:
        return tuple(ranges)
    gaps = sorted(range(1, len(ranges)), key=lambda i: ranges[i - 1].hi - ranges[i].lo)
    cuts = [0, *sorted(gaps[: MAX_RANGES - 1]), len(ranges)]
    return tuple(NumberRange(ranges[a].lo, ranges[b - 1].hi) for a, b in pairwise(cuts))


def intersect_numbers(left: Sequence[NumberRange], right: Sequence[NumberRange]) -> tuple[NumberRange, ...]:
    intersection: list[NumberRange] = []
    i = j = 0
    while i < len(left) and j < len(right):
        lo, hi = max(left[i].lo, right[j].lo), min(left[i].hi, right[j].hi)
        if lo <= next_up(hi):
            intersection.append(NumberRange(lo, hi))
        if left[i].hi <= right[j].hi:
            i += 1
        else:
            j += 1
    return tuple(intersection)


def unite_texts(ranges: Iterable[TextRange]) -> tuple[TextRange, ...]:
    united: list[TextRange] = []
    for item in sorted(ranges, key=lambda r: (r.lo, r.lo_open)):
        if not united or not _touch(united[-1], item):
            united.append(item)
            continue
        last = united[-1]
        if last.hi is None or (item.hi is not None and item.hi < last.hi):
            continue
        hi_open = item.hi_open and (item.hi != last.hi or last.hi_open)
        united[-1] = TextRange(last.lo, item.hi, last.lo_open, hi_open)
    return _fewer_texts(united)


def _touch(last: TextRange, item: TextRange) -> bool:
    return last.hi is None or item.lo < last.hi or (item.lo == last.hi and not (item.lo_open and last.hi_open))


def _fewer_texts(ranges: list[TextRange]) -> tuple[TextRange, ...]:
    if len(ranges) <= MAX_RANGES:
        return tuple(ranges)
    step = -(-len(ranges) // MAX_RANGES)
    runs = (ranges[i : i + step] for i in range(0, len(ranges), step))
    return tuple(TextRange(run[0].lo, run[-1].hi, run[0].lo_open, run[-1].hi_open) for run in runs)


def intersect_texts(left: Sequence[TextRange], right: Sequence[TextRange]) -> tuple[TextRange, ...]:
    intersection: list[TextRange] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        lo, lo_open = max((a.lo, a.lo_open), (b.lo, b.lo_open))
        a_ends_first = b.hi is None or (a.hi is not None and (a.hi, not a.hi_open) <= (b.hi, not b.hi_open))
        hi, hi_open = (a.hi, a.hi_open) if a_ends_first else (b.hi, b.hi_open)
        if hi is None or lo < hi or (lo == hi and not lo_open and not hi_open):
            intersection.append(TextRange(lo, hi, lo_open, hi_open))
        if a_ends_first:
            i += 1
        else:
            j += 1
    return tuple(intersection)
