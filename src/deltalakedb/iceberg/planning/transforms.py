"""Owns partition transforms: what they make of a value, and which of their results a range of values can have."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from deltalakedb.iceberg.planning.types import Primitive, Value, decimal_of, is_decimal, parse_type, unscaled_of
from deltalakedb.log.predicates.ranges import (
    NumberRange,
    Ranges,
    TextRange,
    next_down,
    next_up,
    round_down,
    round_up,
    unite_numbers,
    unite_texts,
)

MAX_HASHED: Final = 200
"""A range of at most this many values is projected to their buckets."""

_TRANSFORM: Final = re.compile(r"(bucket|truncate)\[(\d{1,9})\]")
_SIMPLE: Final = frozenset({"identity", "void", "year", "month", "day", "hour"})
_UNITS_PER_DAY: Final = {"days": 1, "micros": 86_400 * 10**6, "nanos": 86_400 * 10**9}
_TIME_SOURCES: Final = {"year": "days", "month": "days", "day": "days", "hour": "micros"}
_FARTHEST_DAY: Final = 2**40
_EXACT_INTEGER: Final = 2.0**53


@dataclass(frozen=True, slots=True)
class Transform:
    """A partition transform; `unknown` for those of later versions of the format."""

    name: str
    width: int = 0

    def __str__(self) -> str:
        return f"{self.name}[{self.width}]" if self.width else self.name

    def result_type(self, source: Primitive | None) -> Primitive | None:
        """The type of the transform's results; None if it is not known."""
        if source is None or self.name == "unknown":
            return None
        if self.name in ("identity", "truncate", "void"):
            return source
        return parse_type("date" if self.name == "day" else "int")

    def apply(self, source: Primitive, value: Value) -> Value | None:
        """The transform of one value; None if it cannot be computed."""
        if self.name == "identity":
            return value
        if self.name == "bucket":
            raw = hashed_bytes(source, value)
            return None if raw is None else (murmur3(raw) & 0x7FFFFFFF) % self.width
        if self.name == "truncate":
            return self._truncate(source, value)
        if self.name in _TIME_SOURCES and source.family in _UNITS_PER_DAY and isinstance(value, int):
            return self._time(source, value)
        return None

    def _truncate(self, source: Primitive, value: Value) -> Value | None:
        if isinstance(value, str | bytes):
            return value[: self.width]
        if isinstance(value, Decimal):
            unscaled = unscaled_of(source, value)
            return decimal_of(source, unscaled - unscaled % self.width)
        return value - value % self.width if isinstance(value, int) else None

    def _time(self, source: Primitive, value: int) -> int:
        per_day = _UNITS_PER_DAY[source.family]
        if self.name == "hour":
            return value // (per_day // 24) if per_day > 1 else value * 24
        days = value // per_day
        if self.name == "day":
            return days
        months = int(np.datetime64(days, "D").astype("datetime64[M]").astype(np.int64))
        return months if self.name == "month" else months // 12

    def project(self, source: Primitive, ranges: Ranges) -> Ranges | None:
        """The ranges that hold the transform of every value in `ranges`; None if they cannot be told."""
        if self.name == "identity":
            return ranges
        if self.name == "bucket":
            return self._buckets(source, ranges)
        if source.is_text:
            return self._text_prefixes(source, ranges) if self.name == "truncate" else None
        if self.name == "truncate" and source.family == "float":
            return None
        if self.name != "truncate" and (self.name not in _TIME_SOURCES or source.family not in _UNITS_PER_DAY):
            return None
        return unite_numbers(self._monotone(source, item) for item in ranges if isinstance(item, NumberRange))

    def _monotone(self, source: Primitive, item: NumberRange) -> NumberRange:
        low = item.lo if math.isinf(item.lo) else self._end(source, first_whole(source, item.lo))
        high = item.hi if math.isinf(item.hi) else self._end(source, last_whole(source, item.hi))
        if low > high:  # the range holds no value of the type
            low, high = high, low
        # Before 1970 old writers rounded towards zero.
        return NumberRange(round_down(low), round_up(high + (self.name in _TIME_SOURCES and high < 0)))

    def _end(self, source: Primitive, value: int) -> int | float | Fraction:
        """The transform of an end of a range: a whole number, or the digits of a decimal."""
        if self.name == "truncate":
            whole = value - value % self.width
            return Fraction(whole, 10**source.scale) if is_decimal(source) else whole
        if abs(value) > _FARTHEST_DAY * _UNITS_PER_DAY[source.family]:
            return math.copysign(math.inf, value)
        return self._time(source, value)

    def _text_prefixes(self, source: Primitive, ranges: Ranges) -> Ranges:
        width = self.width * (1 if source.family == "text" else 2)  # bytes are compared as hexadecimal digits
        texts = [item for item in ranges if isinstance(item, TextRange)]
        return unite_texts(TextRange(item.lo[:width], None if item.hi is None else item.hi[:width]) for item in texts)

    def _buckets(self, source: Primitive, ranges: Ranges) -> Ranges | None:
        buckets: set[int] = set()
        for number, value in enumerate(values_in(source, ranges)):
            bucket = None if value is None or number >= MAX_HASHED else self.apply(source, value)
            if not isinstance(bucket, int):
                return None
            buckets.add(bucket)
        if not buckets:
            return None
        return unite_numbers(NumberRange(float(bucket), float(bucket)) for bucket in buckets)


@lru_cache(maxsize=512)
def parse_transform(text: str) -> Transform:
    name = text.strip().lower()
    if name in _SIMPLE:
        return Transform(name)
    match = _TRANSFORM.fullmatch(name)
    return Transform(match[1], int(match[2])) if match and int(match[2]) else Transform("unknown")


# ---- the values of ranges


def values_in(source: Primitive, ranges: Ranges) -> Iterator[Value | None]:
    """The values of a type within the ranges; None where there are too many, or unknown ones."""
    for item in ranges:
        if isinstance(item, TextRange):
            yield _text_value(source, item)
        else:
            yield from _numbers_in(source, item)


def _text_value(source: Primitive, item: TextRange) -> Value | None:
    if item.hi != item.lo:
        return None
    return item.lo if source.family == "text" else bytes.fromhex(item.lo)


def first_whole(source: Primitive, low: float) -> int:
    """The first value, as a whole number or the digits of a decimal, whose interval of doubles can reach `low`."""
    below = max(next_down(low), -sys.float_info.max)
    if is_decimal(source):
        digits: int = 10**source.scale
        return math.ceil(Fraction(below) * digits)
    return math.ceil(low) if abs(low) < _EXACT_INTEGER else int(below)


def last_whole(source: Primitive, high: float) -> int:
    """The last value whose interval of doubles can reach `high`."""
    above = min(next_up(high), sys.float_info.max)
    if is_decimal(source):
        digits: int = 10**source.scale
        return math.floor(Fraction(above) * digits)
    return math.floor(high) if abs(high) < _EXACT_INTEGER else int(above)


def _numbers_in(source: Primitive, item: NumberRange) -> Iterable[Value | None]:
    if source.family == "float" or not (math.isfinite(item.lo) and math.isfinite(item.hi)):
        return [None]
    first, last = first_whole(source, item.lo), last_whole(source, item.hi)
    if last - first >= MAX_HASHED:
        return [None]
    if is_decimal(source):
        return [decimal_of(source, unscaled) for unscaled in range(first, last + 1)]
    return list(range(first, last + 1))


# ---- hashing


def hashed_bytes(source: Primitive, value: Value) -> bytes | None:
    """The bytes that a bucket is computed from; None if the type has none."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        unscaled = unscaled_of(source, value)
        return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, int) and source.family in ("integer", "days", "time", "micros", "nanos"):
        value = value // 1000 if source.family == "nanos" else value
        return value.to_bytes(8, "little", signed=True) if -(2**63) <= value < 2**63 else None
    return None


def murmur3(data: bytes) -> int:
    """The 32 bit Murmur3 hash (x86, seed 0) of some bytes."""
    hashed = 0
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        hashed ^= _mix(int.from_bytes(data[start : start + 4], "little"))
        hashed = ((hashed << 13 | hashed >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    if whole < len(data):
        hashed ^= _mix(int.from_bytes(data[whole:], "little"))
    hashed ^= len(data)
    hashed = ((hashed ^ hashed >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    hashed = ((hashed ^ hashed >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _mix(block: int) -> int:
    block = block * 0xCC9E2D51 & 0xFFFFFFFF
    block = (block << 15 | block >> 17) & 0xFFFFFFFF
    return block * 0x1B873593 & 0xFFFFFFFF
