"""Owns the statistics string of a file: its parts, and its values in the types of the schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import orjson

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType
from deltalakedb.log.statistics.moments import Zone, parse_date, parse_timestamp

Value: TypeAlias = bool | int | float | Decimal | str | date | datetime

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  timestamp_ntz has no zone
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_FLOATS = frozenset({"float", "double"})
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class FileStats:
    """Statistics by physical names; nested columns are nested mappings."""

    num_records: int | None = None
    tight_bounds: bool = True
    min_values: Mapping[str, Any] = field(default_factory=dict)
    max_values: Mapping[str, Any] = field(default_factory=dict)
    null_count: Mapping[str, Any] = field(default_factory=dict)


def load_stats(text: str, *, exact: bool = False) -> dict[str, Any] | None:
    """The JSON object in a statistics string; None if it cannot be read, as a file without usable statistics is legal.

    Numbers with a fraction are doubles, or decimals with `exact`.
    """
    try:
        value = json.loads(text, parse_float=Decimal) if exact else orjson.loads(text)
    except (ValueError, RecursionError):
        try:
            value = json.loads(text)  # accepts what orjson rejects: NaN, lone surrogates
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def parse_stats(text: str | None, *, exact: bool = False) -> FileStats | None:
    """Parses a statistics string; None if there is none or it cannot be read. `exact` keeps decimals as written."""
    value = None if text is None else load_stats(text, exact=exact)
    if value is None:
        return None
    return FileStats(
        num_records=count_or_none(value.get("numRecords")),
        tight_bounds=value.get("tightBounds") is not False,
        min_values=_mapping(value.get("minValues")),
        max_values=_mapping(value.get("maxValues")),
        null_count=_mapping(value.get("nullCount")),
    )


def record_count(text: str | None) -> int | None:
    """The number of rows in a statistics string; None if it has no valid one."""
    value = load_stats(text) if text else None
    return None if value is None else count_or_none(value.get("numRecords"))


def deleted_part(add: AddFile) -> float:
    """The fraction of a file's rows that its deletion vector deletes, from 0 to 1; 1 if the row count is unknown."""
    if add.deletion_vector is None:
        return 0.0
    rows = record_count(add.stats)
    return 1.0 if not rows else add.deletion_vector.cardinality / rows


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def count_or_none(value: Any) -> int | None:
    """The value if it is a valid row count, else None."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def value_at(values: Mapping[str, Any], physical_path: Sequence[str]) -> Any:
    """The value of a column, nested or not; None if there is none."""
    node: Any = values
    for name in physical_path:
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def typed_value(raw: Any, data_type: DataType) -> Value | None:
    """Converts a minimum or maximum to a Python value of the column's type; None if it is not valid."""
    if raw is None or isinstance(raw, dict | list):
        return None
    if isinstance(data_type, DecimalType):
        return None if isinstance(raw, bool) else to_decimal(raw)
    if not isinstance(data_type, PrimitiveType):
        return None
    name = data_type.name
    if name == "boolean":
        return raw if isinstance(raw, bool) else None
    if name in _INTEGERS:
        return raw if type(raw) is int else None
    if name in _FLOATS:
        return _to_float(raw)
    if not isinstance(raw, str):
        return None
    if name == "string":
        return raw
    if name == "date":
        return to_date(raw)
    return to_datetime(raw, name) if name in ("timestamp", "timestamp_ntz") else None


def to_decimal(raw: Any) -> Decimal | None:
    try:
        exact = Decimal(raw) if not isinstance(raw, float) else Decimal(repr(raw))
    except (InvalidOperation, ValueError, TypeError):
        return None
    return exact if exact.is_finite() else None


def _to_float(raw: Any) -> float | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, int | float | Decimal):
        try:
            return float(raw)
        except OverflowError:  # an integer that no double is near
            return None
    return _SPECIAL.get(raw) if isinstance(raw, str) else None


def to_date(text: str) -> date | None:
    """Parses a date; None if it is not one, or outside the years of Python's dates."""
    days = parse_date(text)
    try:
        return None if days is None else _EPOCH_DAY + timedelta(days=days)
    except OverflowError:
        return None


def to_datetime(text: str, type_name: str) -> datetime | None:
    """Parses a timestamp as UTC, or a timestamp_ntz without zone; text without a zone is UTC, as in most readers."""
    moment = parse_timestamp(text)
    if moment is None or (type_name == "timestamp_ntz" and moment.zone is Zone.OFFSET):
        return None
    try:
        local = _EPOCH + timedelta(microseconds=moment.micros)
    except OverflowError:
        return None
    return local if type_name == "timestamp_ntz" else local.replace(tzinfo=UTC)
