"""Statistics of data files that another engine wrote, from their Parquet footers.

A footer has no bounds if there is a value longer than 4 KB: unknown bounds are omitted. Most writers leave NaN out of
bounds and do not tell, so a float's maximum, which NaN is above, is only taken from those that give none beside a NaN.
Timestamps are rounded outwards to the millisecond.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_schema, file_type, is_any_list
from deltalakedb.data.stats import Ends, StatsCollector, StatsPlan, counted_leaves
from deltalakedb.log.schema.types import DataType, DecimalType, Leaf, PrimitiveType, StructType

_MOMENTS: Final = frozenset({"timestamp", "timestamp_ntz"})
# Its footers have no bounds of a column with a NaN.
_SHOWS_NAN: Final = "parquet-mr"
# Whatever their type in the file, a footer has them as text or booleans.
_OF_NO_UNIT: Final = (PrimitiveType("string"), PrimitiveType("boolean"))
_AS_STORED: Final = frozenset({"boolean", "byte", "short", "integer", "long", "date", "float", "double"})
_MICROSECONDS_OF: Final = {
    "milliseconds": Fraction(1000),
    "microseconds": Fraction(1),
    "nanoseconds": Fraction(1, 1000),
}


class FooterStats:
    """The conversion of footers to statistics, prepared once for all files of a table."""

    def __init__(
        self,
        schema: StructType,
        partition_columns: Sequence[str],
        configuration: Mapping[str, str | None],
        *,
        trusts_floats: bool = False,
    ) -> None:
        """`trusts_floats`: whether a float's maximum is taken from every writer, as `deltalake` does.

        Plans of this package are sound with it: they expect a NaN in every file, whatever its maximum is.
        """
        self._trusts_floats = trusts_floats
        self._plan = StatsPlan(schema, partition_columns, configuration, file_schema(schema, partition_columns))
        self._leaves = counted_leaves(schema, partition_columns, configuration)

    def of(self, footer: pq.FileMetaData) -> str:
        """The statistics string of a file."""
        stats = StatsCollector(self._plan)
        stats.num_records = footer.num_rows
        columns = self._columns_of(footer)
        shows_nan = self._trusts_floats or (footer.created_by or "").startswith(_SHOWS_NAN)
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            for position, (leaf, column) in enumerate(zip(self._leaves, columns, strict=True)):
                if column is None:
                    stats.note(position, None, (None, None))
                else:
                    _note(stats, position, leaf, row_group.column(column), shows_nan)
        return stats.to_json()

    def _columns_of(self, footer: pq.FileMetaData) -> list[int | None]:
        """The index of each leaf's column in this file, by path: the file may have others, such as partition columns.

        None if the file does not have it, or in another type, whose bounds have another unit.
        """
        stored = dict(_stored_columns(footer.schema.to_arrow_schema(), (), 0))
        return [_column_of(leaf, stored.get(leaf.physical_path)) for leaf in self._leaves]


def _column_of(leaf: Leaf, place_and_type: tuple[int, pa.DataType] | None) -> int | None:
    if place_and_type is None:
        return None
    column, stored = place_and_type
    return column if leaf.type in _OF_NO_UNIT or has_footer_bounds(stored, leaf.type) else None


def has_footer_bounds(stored: pa.DataType, data_type: DataType) -> bool:
    """Whether the bounds of a file's column are those of a table's: of the same type, or known how to convert."""
    wanted = file_type(data_type)
    if pt.is_timestamp(stored) and pt.is_timestamp(wanted):
        return bool((stored.tz is None) == (wanted.tz is None))
    if pt.is_dictionary(stored):
        return has_footer_bounds(stored.value_type, data_type)
    is_text = pt.is_large_string(stored) or pt.is_string_view(stored)
    return bool(stored.equals(wanted) or (is_text and pt.is_string(wanted)))


def _stored_columns(
    fields: Iterable[pa.Field], above: tuple[str, ...], start: int
) -> Iterator[tuple[tuple[str, ...], tuple[int, pa.DataType]]]:
    """The index of each leaf's first column in a file; arrays and maps have columns for their leaves, too."""
    for item in fields:
        path = (*above, item.name)
        if pt.is_struct(item.type):
            yield from _stored_columns(item.type, path, start)
        else:
            yield path, (start, item.type)
        start += _width(item.type)


def _width(stored: pa.DataType) -> int:
    if pt.is_map(stored):
        return _width(stored.key_type) + _width(stored.item_type)
    if is_any_list(stored):
        return _width(stored.value_type)
    return sum(_width(item.type) for item in stored) if pt.is_struct(stored) else 1


def _note(stats: StatsCollector, place: int, leaf: Leaf, chunk: pq.ColumnChunkMetaData, shows_nan: bool) -> None:
    statistics = chunk.statistics if chunk.is_stats_set else None
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
    if nulls is not None and nulls == chunk.num_values:
        stats.note(place, nulls, None)  # all null: no bounds
        return
    has_bounds = statistics is not None and statistics.has_min_max
    stats.note(place, nulls, _ends(statistics, leaf.type, shows_nan) if has_bounds else (None, None))


def _ends(statistics: pq.Statistics, data_type: DataType, shows_nan: bool) -> Ends:
    """The bounds in the units of `stats.py`; None if unknown."""
    if isinstance(data_type, DecimalType):
        return _decimal(statistics.min_raw, data_type), _decimal(statistics.max_raw, data_type)
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in ("float", "double"):
        return _finite(statistics.min_raw), _finite(statistics.max_raw) if shows_nan else None
    if name in _AS_STORED:
        return statistics.min_raw, statistics.max_raw
    if name in _MOMENTS and isinstance(statistics.max_raw, int):  # INT96 has no order
        unit = _MICROSECONDS_OF[json.loads(statistics.logical_type.to_json())["timeUnit"]]
        return math.floor(statistics.min_raw * unit), math.ceil(statistics.max_raw * unit / 1000) * 1000
    return (_text(statistics.min_raw), _text(statistics.max_raw)) if name == "string" else (None, None)


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None  # false for NaN, too


def _decimal(raw: Any, data_type: DecimalType) -> Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -data_type.scale))


def _text(raw: bytes | str) -> str | None:
    try:
        return raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        return None
