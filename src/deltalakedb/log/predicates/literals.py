"""Reads a literal by a column's type, as the ranges of values that can satisfy a comparison with it.

Engines disagree on what a literal of another type means. Then the ranges cover all readings; if that is not possible,
the comparison is Unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, isnan
from typing import Literal as OneOf

from deltalakedb.log.predicates.atoms import FALSE, FLOATS, Atom, Column, Dnf, Unknown, Within
from deltalakedb.log.predicates.ranges import (
    ALL_NUMBERS,
    ALL_TEXTS,
    MAX_RANGES,
    NumberRange,
    TextRange,
    after_prefix,
    compare_number,
    compare_text,
    numbers_outside,
    texts_outside,
    unite_numbers,
    unite_texts,
)

MICROS_PER_DAY = 86_400_000_000
# java.time, and so Spark, has no offset beyond 18 hours; Postgres stops before 16.
_ANY_ZONE = 18 * 3_600_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})(?:[ T](?P<h>\d{2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:\.(?P<f>\d{1,6}))?)?"
    r"(?: ?(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?))?)?"
)
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
# The error of converting a decimal of up to 38 digits to a double: a few units in the last place.
_DOUBLE_FUZZ = 2.0**-48
# One step of single precision for rounding the literal, one for statistics printed in single precision.
_FLOAT_FUZZ = 2.0**-21
_FLOAT_TINY = 3e-45
_FLOAT_MAX = 3.4e38


@dataclass(frozen=True, slots=True)
class Instant:
    """A timestamp literal: a point in UTC, a wall clock time, or one that engines read either way."""

    micros: int
    clock: OneOf["utc", "local", "either"]


Value = int | float | Decimal | bool | str | date | Instant


class UnreadableLiteralError(Exception):
    """The literal has another type than the column, or a form that engines read differently."""


def compare(column: Column, op: str, *values: Value) -> Dnf:
    """`column op v` with at least one of the values, with op one of = < <= > >=; for op != with all of them."""
    atom = _differs(column, values) if op == "!=" else _holds(column, op, values)
    is_false = isinstance(atom, Within) and not atom.ranges and not atom.nan
    return FALSE if is_false else ((atom,),)


def _holds(column: Column, op: str, values: Sequence[Value]) -> Atom:
    """The atom for `column op v` with at least one of the values."""
    if column.unprunable:
        return Unknown(column.unprunable)
    if column.kind is None:
        return Unknown(f"{column.name} ({column.type_name}) has no bounds")
    if _mixed(column, values):
        return Unknown(f"literals of several types compared with {column.name}")
    try:
        if column.kind == "text":
            return _within_text(column, op, values)
        return _within_number(column, op, values)
    except UnreadableLiteralError:
        return Unknown(f"a literal that is not of the type of {column.name} ({column.type_name})")


def _differs(column: Column, values: Sequence[Value]) -> Atom:
    """The atom for `column <> v` with all of the values."""
    inside = _holds(column, "=", values)
    if not isinstance(inside, Within):
        return inside
    # A range of one point is a literal that was read exactly; other ranges exclude nothing.
    if column.kind == "text":
        texts = [item.lo for item in inside.ranges if isinstance(item, TextRange) and item.lo == item.hi]
        return Within(column, texts_outside(texts), exact=inside.exact)
    points = [item.lo for item in inside.ranges if isinstance(item, NumberRange) and item.lo == item.hi]
    return Within(column, numbers_outside(points), column.type_name in FLOATS and not inside.nan, inside.exact)


def _mixed(column: Column, values: Iterable[Value]) -> bool:
    """Whether the values have several types: engines convert such a list to one type, which changes its values."""
    types = {type(value) for value in values}
    numbers = {int, Decimal} if column.type_name.startswith("decimal") else {int, Decimal, float}
    return len(types) > 1 and not types <= numbers


# ---- text


def _within_text(column: Column, op: str, values: Sequence[Value]) -> Within:
    ranges: list[TextRange] = []
    exact = True
    for value in values:
        if not isinstance(value, str):
            raise UnreadableLiteralError
        storable = _storable(value)
        exact = exact and storable == value
        ranges.extend(compare_text(op, value) if storable == value else _around(op, storable))
    return Within(column, unite_texts(ranges), exact=exact and len(ranges) <= MAX_RANGES)


def _storable(value: str) -> str:
    """Cuts the text at NUL, where stored bounds end, or at a lone surrogate: databases reject both in parameters."""
    for position, char in enumerate(value):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            return value[:position]
    return value


def _around(op: str, prefix: str) -> tuple[TextRange, ...]:
    """The ranges for a comparison with a text of which only a prefix is known."""
    end = after_prefix(prefix)
    if op == "=":
        return (TextRange(prefix, end),)
    if op in ("<", "<="):
        return (TextRange(hi=end),)
    return (TextRange(prefix),)


def starts_with(column: Column, prefix: str, *, rest_matters: bool) -> Atom:
    """The atom for `column like 'prefix%'`; `rest_matters`: the pattern has more conditions than the prefix."""
    if column.unprunable:
        return Unknown(column.unprunable)
    if column.kind != "text":
        return Unknown(f"like on {column.name} ({column.type_name})")
    storable = _storable(prefix)
    span = TextRange(storable, after_prefix(storable), hi_open=True)
    return Within(column, (span,), exact=storable == prefix and not rest_matters)


def not_starts_with(column: Column, prefix: str) -> Atom:
    positive = starts_with(column, prefix, rest_matters=False)
    if not isinstance(positive, Within) or not positive.exact:
        return positive if isinstance(positive, Unknown) else Within(column, ALL_TEXTS, exact=False)
    end = after_prefix(prefix)
    below = (TextRange(hi=prefix, hi_open=True),) if prefix else ()
    above = (TextRange(end),) if end is not None else ()
    return Within(column, (*below, *above))


# ---- numbers, dates, timestamps


def _within_number(column: Column, op: str, values: Sequence[Value]) -> Within:
    ranges: list[NumberRange] = []
    nan, exact = op in (">", ">=") and column.type_name in FLOATS, len(values) <= MAX_RANGES
    for value in values:
        if isinstance(value, float) and isnan(value):
            nan_ranges, with_nan = _against_nan(column, op)
            ranges.extend(nan_ranges)
            nan = nan or with_nan
            continue
        least, most = _read(column, value)
        exact = exact and least == most and abs(least) != inf
        ranges.extend(compare_number(op, least, most))
    return Within(column, unite_numbers(ranges), nan, exact)


def _against_nan(column: Column, op: str) -> tuple[tuple[NumberRange, ...], bool]:
    """The ranges for a comparison with NaN, which equals itself and is above everything else."""
    if column.type_name not in FLOATS:
        raise UnreadableLiteralError
    return ALL_NUMBERS if op in ("<", "<=") else (), op in ("=", "<=", ">=")


Span = tuple[int | float | Decimal, int | float | Decimal]


def _read(column: Column, value: Value) -> Span:
    """The numbers between which the literal lies, in the unit of the column's bounds."""
    if column.kind == "date":
        return _read_date(value)
    if column.kind == "timestamp":
        return _read_timestamp(column, value)
    if column.type_name == "boolean":
        return _read_boolean(value)
    if column.type_name in _INTEGERS:
        return _read_integer(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnreadableLiteralError
    if column.type_name.startswith("decimal"):
        return _read_decimal(column, value)
    return _read_float(column, value)


def _read_boolean(value: Value) -> Span:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if not isinstance(value, bool):
        raise UnreadableLiteralError
    return int(value), int(value)


def _read_integer(value: Value) -> Span:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnreadableLiteralError
    if isinstance(value, float | Decimal):
        # Some engines read a literal with a point as a double, and compare the column as doubles.
        return (value, value) if abs(_nearest(value)) < 2.0**53 else _fuzz(value, _DOUBLE_FUZZ)
    return (value, value) if _digits(value) <= 19 else _fuzz(value, _DOUBLE_FUZZ)


def _nearest(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf


def _read_decimal(column: Column, value: int | float | Decimal) -> Span:
    if isinstance(value, float):
        return _fuzz(value, _DOUBLE_FUZZ)
    match = _DECIMAL.fullmatch(column.type_name.replace(" ", ""))
    precision, scale = (int(match[1]), int(match[2])) if match else (38, 38)
    common = max(precision - scale, _digits(value) - _scale(value)) + max(scale, _scale(value))
    return (value, value) if common <= 38 else _fuzz(value, _DOUBLE_FUZZ)


def _read_float(column: Column, value: int | float | Decimal) -> Span:
    if column.fuzzy_float:
        least, most = _fuzz(value, _FLOAT_FUZZ)
        return (
            least - _FLOAT_TINY if least > -_FLOAT_MAX else -inf,
            most + _FLOAT_TINY if most < _FLOAT_MAX else inf,
        )
    if isinstance(value, float):
        return value, value
    # A quotient or product of two exact doubles is rounded once, so every engine gets the same double.
    if _digits(value) <= 15 and _scale(value) <= 22:
        return float(value), float(value)
    return _fuzz(value, _DOUBLE_FUZZ)


def _fuzz(value: int | float | Decimal, relative: float) -> tuple[float, float]:
    try:
        nearest = float(value)
    except OverflowError:
        nearest = inf if value > 0 else -inf
    if abs(nearest) == inf:
        return (nearest, nearest) if isinstance(value, float) else (min(nearest, 1e308), max(nearest, -1e308))
    slack = abs(nearest) * relative
    return nearest - slack, nearest + slack


def _digits(value: int | Decimal) -> int:
    if isinstance(value, int):
        return len(str(abs(value))) if abs(value) < 10**40 else 41
    _, digits, exponent = value.as_tuple()
    return max(len(digits), len(digits) + int(exponent), -int(exponent))


def _scale(value: int | Decimal) -> int:
    return 0 if isinstance(value, int) else max(0, -int(value.as_tuple().exponent))


def _read_date(value: Value) -> Span:
    if isinstance(value, str):
        parsed = parse_date(value)
        if parsed is None:
            raise UnreadableLiteralError
        value = parsed
    if isinstance(value, date):
        days = value.toordinal() - _EPOCH_DAY
        return days, days
    if isinstance(value, Instant):
        days = value.micros // MICROS_PER_DAY
        return days - 1, days + 2
    raise UnreadableLiteralError


def _read_timestamp(column: Column, value: Value) -> Span:
    if isinstance(value, str):
        instant = parse_instant(value)
        if instant is None:
            raise UnreadableLiteralError
    elif isinstance(value, Instant):
        instant = value
    elif isinstance(value, date):
        instant = Instant((value.toordinal() - _EPOCH_DAY) * MICROS_PER_DAY, "local")
    else:
        raise UnreadableLiteralError
    same_clock = instant.clock == ("local" if column.type_name == "timestamp_ntz" else "utc")
    # A partition value of type timestamp is often written without a zone, in the zone of its writer.
    if same_clock and (column.type_name == "timestamp_ntz" or not column.is_partition):
        return instant.micros, instant.micros
    return instant.micros - _ANY_ZONE, instant.micros + _ANY_ZONE


def parse_date(text: str) -> date | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def parse_instant(text: str) -> Instant | None:
    """Parses a timestamp in ISO form, with or without zone; None if it is not one, or finer than microseconds."""
    match = _TIMESTAMP.fullmatch(text)
    day = parse_date(match["date"]) if match else None
    if match is None or day is None:
        return None
    hour, minute, second = int(match["h"] or 0), int(match["m"] or 0), int(match["s"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    micros = (day.toordinal() - _EPOCH_DAY) * MICROS_PER_DAY
    micros += ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((match["f"] or "").ljust(6, "0"))
    zone = match["zone"]
    if zone is None:
        return Instant(micros, "local")
    return Instant(micros - _offset_minutes(zone) * 60_000_000, "utc")


def _offset_minutes(zone: str) -> int:
    if zone in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if zone[0] == "-" else minutes


def instant_of(value: datetime) -> Instant:
    if value.tzinfo is None:
        return Instant((value.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND, "local")
    return Instant((value - _EPOCH) // _MICROSECOND, "utc")
