"""Checks default values of columns (`initial-default`, `write-default`) against the columns' types."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from deltalakedb.iceberg.metadata.shapes import brief, check, is_int
from deltalakedb.iceberg.metadata.type_names import type_kind

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)
_FRACTION = re.compile(r"\.\d{1,9}", re.ASCII)


def check_default(type_json: Any, value: object, what: str) -> None:
    """Refuse a default value that is not one of the type's values as JSON writes them."""
    kind = type_kind(type_json)
    holds = _CHECKS.get(kind)
    fits = holds is not None and holds(value, type_json)
    shown = type_json if isinstance(type_json, str) else kind
    check(fits, f"Invalid default value for {what}: {brief(value)} is not a {shown} value")


def canonical_default(type_json: Any, value: Any) -> Any:
    """The default value in the spelling that is compared and stored."""
    kind = type_kind(type_json)
    if kind == "uuid":
        return value.lower()
    return value.upper() if kind in ("binary", "fixed") else value


def _decimal(value: object, type_json: str) -> bool:
    precision, scale = (int(digits) for digits in re.findall(r"\d+", type_json))
    try:
        number = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return False
    if number is None or not number.is_finite():
        return False
    _, digits, exponent = number.as_tuple()
    return exponent == -scale and len(digits) <= precision


def _uuid(value: object, _: Any) -> bool:
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        return str(UUID(value)) == value.lower()
    except ValueError:
        return False


def _iso(parse: Callable[[str], object]) -> Callable[[object, Any], bool]:
    def holds(value: object, _: Any) -> bool:
        if not isinstance(value, str):
            return False
        try:
            parse(_FRACTION.sub(lambda match: match[0][:7].ljust(7, "0"), value))
        except ValueError:
            return False
        return True

    return holds


def _local(text: str) -> None:
    if "T" not in text.upper() or datetime.fromisoformat(text).tzinfo is not None:
        raise ValueError(text)


def _utc(text: str) -> None:
    if "T" not in text.upper() or datetime.fromisoformat(text).utcoffset() != timedelta(0):
        raise ValueError(text)


def _fixed(value: object, type_json: str) -> bool:
    return _binary(value, type_json) and len(str(value)) == 2 * int(type_json[6:-1])


def _binary(value: object, _: Any) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


_CHECKS: dict[str, Callable[[object, Any], bool]] = {
    "binary": _binary,
    "boolean": lambda value, _: isinstance(value, bool),
    "date": _iso(date.fromisoformat),
    "decimal": _decimal,
    "double": lambda value, _: isinstance(value, float),
    "fixed": _fixed,
    "float": lambda value, _: isinstance(value, float),
    "int": lambda value, _: is_int(value) and -(2**31) <= int(str(value)) < 2**31,
    "long": lambda value, _: is_int(value),
    "string": lambda value, _: isinstance(value, str),
    "time": _iso(time.fromisoformat),
    "timestamp": _iso(_local),
    "timestamp_ns": _iso(_local),
    "timestamptz": _iso(_utc),
    "timestamptz_ns": _iso(_utc),
    "uuid": _uuid,
}
"""By kind; the others (nested types, variant, unknown, geometry, geography) have no default but null."""
