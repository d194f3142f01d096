"""Converts the literals of expressions to values that can be compared with a column's."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from deltalakedb.exceptions import PredicateError
from deltalakedb.iceberg.planning.expressions import Literal
from deltalakedb.iceberg.planning.types import Primitive, Value, is_decimal, parse_type

_DATE: Final = r"(?P<year>[+-]?\d{4,9})-(?P<month>\d{2})-(?P<day>\d{2})"
_TIME: Final = r"(?P<h>\d{2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:\.(?P<f>\d{1,9}))?)?"
_ZONE: Final = r"(?P<zone>Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?"
_FORMS: Final = {
    "days": re.compile(_DATE),
    "time": re.compile(_TIME),
    "micros": re.compile(f"{_DATE}[T ]{_TIME}{_ZONE}"),
    "nanos": re.compile(f"{_DATE}[T ]{_TIME}{_ZONE}"),
}
_PER_SECOND: Final = {"time": 10**6, "micros": 10**6, "nanos": 10**9}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


class AmbiguousLiteralError(Exception):
    """Clients may read the literal in several ways: nothing is pruned by it."""


def to_value(literal: Literal, type_: Primitive) -> Value:
    """The value of a literal, compared with a column of a type. PredicateError if the type has no such value."""
    raw = literal.value
    if literal.data_type is not None:
        own_type = parse_type(str(literal.data_type))
        if own_type is None or own_type.family != type_.family:
            raise AmbiguousLiteralError
    value = _convert(raw, type_)
    if value is None:
        raise PredicateError(f"Invalid value for conversion to type {type_.name}: {raw!r}")
    return value


def _convert(raw: Any, type_: Primitive) -> Value | None:
    family = type_.family
    if family == "boolean":
        return int(raw) if isinstance(raw, bool) else None
    if isinstance(raw, bool):
        return None
    if family == "text":
        return raw if isinstance(raw, str) else None
    if family == "bytes":
        return _bytes(raw, type_)
    if is_decimal(type_) or (family in ("integer", "float") and isinstance(raw, str)):
        return _number(raw)
    if family in _FORMS:
        if isinstance(raw, int) and family == "nanos":
            raise AmbiguousLiteralError  # some clients send microseconds
        return _moment(raw, family, type_) if isinstance(raw, str) else _whole(raw)
    return raw if isinstance(raw, int | float) else None


def _whole(raw: Any) -> int | None:
    return raw if isinstance(raw, int) else None


def _number(raw: Any) -> Decimal | None:
    try:
        value = Decimal(raw) if isinstance(raw, int) else Decimal(str(raw))
    except InvalidOperation:
        return None
    return value if value.is_finite() and value.adjusted() < 400 else None


def _bytes(raw: Any, type_: Primitive) -> bytes | None:
    if not isinstance(raw, str):
        return None
    if type_.name == "uuid":
        return bytes.fromhex(raw.replace("-", "")) if _UUID.fullmatch(raw) else None
    return bytes.fromhex(raw) if _HEX.fullmatch(raw) else None


def _moment(text: str, family: str, type_: Primitive) -> int | None:
    match = _FORMS[family].fullmatch(text)
    if match is None:
        return None
    days = 0 if family == "time" else _days(match["year"], match["month"], match["day"])
    if days is None or family == "days":
        return days
    zone = None if family == "time" else match["zone"]
    if family != "time" and (zone is None) == type_.name.startswith("timestamptz"):
        raise AmbiguousLiteralError
    per_second = _PER_SECOND[family]
    fraction = int((match["f"] or "").ljust(9, "0"))
    if fraction % (10**9 // per_second):
        raise AmbiguousLiteralError  # finer than the column: clients round it
    seconds = days * 86_400 + int(match["h"]) * 3600 + int(match["m"]) * 60 + int(match["s"] or 0) - _offset(zone)
    return seconds * per_second + fraction // (10**9 // per_second)


def _days(year: str, month: str, day: str) -> int | None:
    try:
        if 0 < int(year) < 10_000:
            return date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
        return int(np.datetime64(f"{int(year):05d}-{month}-{day}", "D").astype(np.int64))
    except ValueError:
        return None


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
    return -seconds if zone[0] == "-" else seconds
