"""Computes the bounds of one file at a time, for small commits: handles the common forms of values, and no others.

`bounds.compute_bounds` is the definition and works on columns of thousands of files; its arrays cost a single file a
millisecond. If this module returns a result, it is the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final

from deltalakedb.log.schema.types import DecimalType, PrimitiveType
from deltalakedb.log.statistics.bounds import EMPTY, POINT, Bound, text_class
from deltalakedb.log.statistics.bounds_columns import BoundsColumn
from deltalakedb.log.statistics.intervals import UNBOUNDED, lower_text_bound, round_exact, upper_text_bound
from deltalakedb.log.statistics.stats import count_or_none, load_stats, value_at

_EXACT: Final = 2**53
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MILLISECONDS: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})Z")
_INTEGER: Final = re.compile(r"-?[0-9]{1,15}")
_CUT_SLACK_US: Final = 999
_NOTHING: Final[dict[str, Any]] = {}


class _UncommonError(Exception):
    """A value that needs `bounds.compute_bounds`."""


def bounds_of_file(columns: Sequence[BoundsColumn], stats: str | None, partition_values: str) -> list[Bound] | None:
    """A file's bounds by column; None if a value is not in one of the common forms."""
    value = load_stats(stats) if stats else _NOTHING
    if value is None:
        return None
    parts = [value.get(name, _NOTHING) for name in ("minValues", "maxValues", "nullCount")]
    if not all(type(part) is dict for part in parts):
        return None
    low, high, nulls = parts
    records = count_or_none(value.get("numRecords"))
    tight = value.get("tightBounds") is not False
    partitions = json.loads(partition_values) if partition_values != "{}" else _NOTHING
    try:
        return [
            _partition_bound(column, partitions, records)
            if column.is_partition
            else _bound(column, low, high, nulls, records, tight)
            for column in columns
        ]
    except _UncommonError:
        return None


def _bound(
    column: BoundsColumn,
    low: Mapping[str, Any],
    high: Mapping[str, Any],
    nulls: Mapping[str, Any],
    records: int | None,
    tight: bool,
) -> Bound:
    path = _physical_path(column)
    lower, upper, null_count = value_at(low, path), value_at(high, path), value_at(nulls, path)
    if null_count is not None and (type(null_count) is not int or not 0 <= null_count < 2**63):
        raise _UncommonError
    if null_count is not None and records is not None and null_count > records:
        null_count = None
    if null_count is not None and not tight and null_count not in (0, records):
        null_count = None
    if lower is None and upper is None and records is not None and null_count == records:
        return Bound(EMPTY, None, None, None, None, null_count)
    if column.kind == "text":
        return _text_bound(lower, upper, null_count)
    low_end = -math.inf if lower is None else _number(column, lower, below=True)
    high_end = math.inf if upper is None else _number(column, upper, below=False)
    return _number_bound(low_end, high_end, null_count)


def _partition_bound(column: BoundsColumn, partitions: Mapping[str, Any], records: int | None) -> Bound:
    (name,) = _physical_path(column)
    if name not in partitions:
        raise _UncommonError
    value = partitions[name]
    if value is None or value == "":
        return Bound(EMPTY, None, None, None, None, max(records if records is not None else -1, 1))
    if column.kind == "text":
        lower, upper = lower_text_bound(value), upper_text_bound(value, exact=True)
        return Bound(text_class(lower, upper), None, None, lower, upper, 0)
    if column.kind == "date":
        end = _day(value)
    elif column.kind == "number" and _is_plain_integer(column) and _INTEGER.fullmatch(value):
        end = float(int(value))
    else:
        raise _UncommonError
    return Bound(POINT, end + 0.0, end + 0.0, None, None, 0)


def _text_bound(low: Any, high: Any, null_count: int | None) -> Bound:
    if not isinstance(low, str | None) or not isinstance(high, str | None):
        raise _UncommonError
    lower = "" if low is None else lower_text_bound(low)
    upper = None if high is None else upper_text_bound(high)
    if upper is not None and lower > upper:
        lower, upper = "", None
    return Bound(text_class(lower, upper), None, None, lower, upper, null_count)


def _number_bound(lower: float, upper: float, null_count: int | None) -> Bound:
    if lower > upper:
        lower, upper = -math.inf, math.inf
    lower, upper = lower + 0.0, upper + 0.0
    width = upper - lower
    if lower == upper:
        width_class = POINT
    elif not math.isfinite(width):
        width_class = UNBOUNDED
    else:
        width_class = math.frexp(width)[1]
    return Bound(width_class, lower, upper, None, None, null_count)


def _number(column: BoundsColumn, value: Any, *, below: bool) -> float:
    if column.kind == "date":
        return _day(value)
    if column.kind == "timestamp":
        micros = _micros(column, value)
        if below:
            return round_exact(micros - (_CUT_SLACK_US if micros < 0 else 0))[0]
        return round_exact(micros + _CUT_SLACK_US)[1]
    if column.is_float:
        if column.was_float32 or type(value) is not float or not math.isfinite(value):
            raise _UncommonError
        return value
    if type(value) is not int or abs(value) >= _EXACT or not _is_plain_integer(column):
        raise _UncommonError
    return float(value)


def _is_plain_integer(column: BoundsColumn) -> bool:
    return not column.is_float and not isinstance(column.type, DecimalType) and column.type != PrimitiveType("boolean")


def _day(value: Any) -> float:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise _UncommonError
    try:
        return float(date.fromisoformat(value).toordinal() - _EPOCH_DAY)
    except ValueError:
        raise _UncommonError from None


def _micros(column: BoundsColumn, value: Any) -> int:
    match = _MILLISECONDS.fullmatch(value) if type(value) is str else None
    if match is None or column.type != PrimitiveType("timestamp"):
        raise _UncommonError
    try:
        instant = datetime.fromisoformat(match[1])
    except ValueError:
        raise _UncommonError from None
    days = instant.toordinal() - _EPOCH_DAY
    seconds = (days * 24 + instant.hour) * 3600 + instant.minute * 60 + instant.second
    return seconds * 1_000_000 + instant.microsecond


@lru_cache(maxsize=4096)
def _physical_path(column: BoundsColumn) -> tuple[str, ...]:
    return column.physical_path
