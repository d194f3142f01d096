"""Collects the statistics of a data file while it is written: row count, bounds and null counts of indexed columns.

Bounds hold for every reader that knows the protocol. A float's bound is null if it is infinite, and its maximum is
omitted if there is a NaN (larger than every number in Spark and DuckDB). Zero is -0.0 as a minimum and 0.0 as a
maximum, so that it does not matter which of them the file has. Text is cut to 64 bytes, the maximum rounded up.
Timestamps are truncated to milliseconds, as readers expect of both bounds. Binary columns, arrays and maps have no
statistics, not even a null count; void columns, which files do not have, have a null in every row. Values are formatted
as in `deltalake`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.schema.types import DataType, DecimalType, Leaf, PrimitiveType, StructType
from deltalakedb.log.statistics.bounds_columns import stats_leaves
from deltalakedb.log.statistics.intervals import successor

TEXT_BYTES: Final = 64
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  the zone is in the text
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_quote: Final = json.JSONEncoder(ensure_ascii=False).encode
_min_max: Final = pc.get_function("min_max")

Ends: TypeAlias = tuple[Any, Any]
"""A minimum and a maximum; None if unknown or missing."""
Measure: TypeAlias = Callable[[pa.Array], Ends]
Render: TypeAlias = Callable[[Any], str | None]


def counted_leaves(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str | None]
) -> list[Leaf]:
    """The columns of a table's files that have statistics."""
    return [leaf for leaf in stats_leaves(schema, partition_columns, configuration) if _way_of(leaf.type) is not None]


class StatsPlan:
    """The columns of a table's files that have statistics, determined once for all files."""

    def __init__(
        self,
        schema: StructType,
        partition_columns: Sequence[str],
        configuration: Mapping[str, str | None],
        file_schema: pa.Schema,
    ) -> None:
        leaves = counted_leaves(schema, partition_columns, configuration)
        self.columns = [_Column(leaf, file_schema) for leaf in leaves]
        wanted = stats_leaves(schema, partition_columns, configuration)
        self.voids = [leaf.physical_path for leaf in wanted if leaf.type == PrimitiveType("void")]
        # as Spark does: if deletion vectors are enabled, the statistics say that bounds are tight
        self.says_tight = str(configuration.get("delta.enableDeletionVectors")).lower() == "true"


class _Column:
    """One leaf: its position in a file, and how its bounds are measured and rendered."""

    __slots__ = ("high_text", "is_text", "low_text", "measure", "path", "place", "within")

    def __init__(self, leaf: Leaf, file_schema: pa.Schema) -> None:
        self.path = leaf.physical_path
        self.place = file_schema.get_field_index(self.path[0])
        self.within: list[int] = []
        data_type = file_schema.field(self.place).type
        for name in self.path[1:]:
            self.within.append(data_type.get_field_index(name))
            data_type = data_type.field(self.within[-1]).type
        functions = _way_of(leaf.type)
        assert functions is not None, f"{leaf.type} has no statistics"
        self.measure, self.low_text, self.high_text = functions
        self.is_text = leaf.type == PrimitiveType("string")


class StatsCollector:
    """The statistics of one file, batch by batch: without the `silent` columns, texts cut to `text_bytes`."""

    def __init__(self, plan: StatsPlan, silent: frozenset[str] = frozenset(), text_bytes: int = TEXT_BYTES) -> None:
        self._plan = plan
        self._columns = [
            (position, column) for position, column in enumerate(plan.columns) if ".".join(column.path) not in silent
        ]
        self._text_bytes = text_bytes
        self._nulls: list[int | None] = [0] * len(plan.columns)
        self._ends: list[Ends] = [(None, None)] * len(plan.columns)
        self._open_above = [False] * len(plan.columns)
        self._open_below = [False] * len(plan.columns)
        self.num_records = 0

    def add(self, columns: Sequence[pa.Array], num_rows: int) -> None:
        self.num_records += num_rows
        for place, column in self._columns:
            array = columns[column.place]
            for position in column.within:
                array = array.flatten()[position]  # unlike field(), children of nulls are null
            nulls = array.null_count
            self.note(place, nulls, column.measure(array) if nulls < num_rows else None)

    def note(self, place: int, nulls: int | None, ends: Ends | None) -> None:
        """Add counts and bounds of one column, which another engine may have computed; None if there are none."""
        count = self._nulls[place]
        self._nulls[place] = None if count is None or nulls is None else count + nulls
        if ends is None:
            return
        (low, high), (new_low, new_high) = self._ends[place], ends
        if new_low is None:
            self._open_below[place] = True
        elif low is None or new_low < low:
            low = new_low
        if new_high is None:
            self._open_above[place] = True
        elif high is None or new_high > high:
            high = new_high
        self._ends[place] = low, high

    def _cut(self, low: str | None, high: str | None) -> Ends:
        """Text bounds cut to the maximum length; the maximum is rounded up."""
        if low is not None:
            low = _cut(low, self._text_bytes)
        if high is not None and (prefix := _cut(high, self._text_bytes)) != high:
            high = successor(prefix)
        return low, high

    def to_json(self) -> str:
        """The statistics string of an add action."""
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for position, column in self._columns:
            low, high = self._ends[position]
            if low == math.inf and self._open_above[position]:  # all are NaN
                low = None
            if column.is_text:
                low, high = self._cut(low, high)
            _put(lows, column.path, None if low is None or self._open_below[position] else column.low_text(low))
            _put(highs, column.path, None if high is None or self._open_above[position] else column.high_text(high))
            count = self._nulls[position]
            _put(nulls, column.path, None if count is None else str(count))
        for path in self._plan.voids:
            for tree, text in ((lows, None), (highs, None), (nulls, str(self.num_records))):
                _put(tree, path, text)
        tight = ',"tightBounds":true' if self._plan.says_tight else ""
        return (
            f'{{"numRecords":{self.num_records},"minValues":{_object(lows)},"maxValues":{_object(highs)},'
            f'"nullCount":{_object(nulls)}{tight}}}'
        )


def _put(tree: dict[str, Any], path: Sequence[str], text: str | None) -> None:
    """Put a JSON value at its path, or only the objects around it if it is None."""
    node: Any = tree
    for name in path[:-1]:
        node = node.setdefault(name, {})
        if isinstance(node, str):
            return
    if text is not None:
        node[path[-1]] = text


def _object(tree: Mapping[str, Any]) -> str:
    """JSON of JSON values by name; rendered here, because no encoder writes decimals exactly."""
    members = (
        f"{_quote(name)}:{member if isinstance(member, str) else _object(member)}" for name, member in tree.items()
    )
    return f"{{{','.join(members)}}}"


def _way_of(data_type: DataType) -> tuple[Measure, Render, Render] | None:
    """The functions that measure a type's bounds and render its minimum and maximum; None if it has no statistics."""
    if isinstance(data_type, DecimalType):
        return _values, _decimal_text, _decimal_text
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _INTEGERS:
        return _values, str, str
    if name in ("float", "double"):
        return _floats, partial(_float_text, zero="-0.0"), partial(_float_text, zero="0.0")
    match name:
        case "string":
            return _values, _quote, _quote
        case "date":
            return _numbers, _date_text, _date_text
        case "timestamp":
            return _numbers, _instant_text, _instant_text
        case "timestamp_ntz":
            return _numbers, _local_text, _local_text
        case "boolean":
            return _values, _quote, _quote
        case _:
            return None


def _values(array: pa.Array) -> Ends:
    ends = _min_max.call([array])
    return ends["min"].as_py(), ends["max"].as_py()


def _numbers(array: pa.Array) -> Ends:
    """Bounds of days or microseconds, as integers."""
    ends = _min_max.call([array])
    return ends["min"].value, ends["max"].value


def _floats(array: pa.Array) -> Ends:
    values: Any = (array.drop_null() if array.null_count else array).to_numpy()
    low, high = float(values.min()), float(values.max())
    if math.isnan(low):
        low, high = float(np.fmin.reduce(values)), math.nan
    # if all are NaN, the minimum is infinite, so that every other minimum is smaller
    return math.inf if math.isnan(low) else low, None if math.isnan(high) else high


def _float_text(value: float, zero: str) -> str:
    """A JSON number; infinity is null, as in `deltalake`, which every reader takes as unknown."""
    if value == 0:
        return zero
    return repr(value) if math.isfinite(value) else "null"


def _decimal_text(value: Decimal) -> str:
    return format(value, "f")


def _cut(value: str, length: int) -> str:
    """The first bytes of a text, without splitting a character."""
    return value.encode()[:length].decode(errors="ignore")


def _date_text(days: int) -> str | None:
    try:
        return f'"{date.fromordinal(_EPOCH_DAY + days).isoformat()}"'
    except (ValueError, OverflowError):
        return None  # years outside of 1..9999 have no format that all readers share


def _local_text(micros: int, sep: str = " ", zone: str = "") -> str | None:
    try:
        moment = _EPOCH + timedelta(milliseconds=micros // 1000)
    except OverflowError:
        return None
    return f'"{moment.isoformat(sep, "milliseconds" if micros % 1_000_000 else "seconds")}{zone}"'


def _instant_text(micros: int) -> str | None:
    return _local_text(micros, "T", "Z")
