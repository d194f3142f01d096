"""What the footer of a Parquet file shows of its rows: no nulls where there must be none, no number out of range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.data.arrow_types import file_type
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType

_RANGES: Final = {"byte": (-(2**7), 2**7 - 1), "short": (-(2**15), 2**15 - 1)}


class Footer:
    """The statistics of a file's columns; columns within others have none here."""

    def __init__(self, footer: pq.FileMetaData, stored: pa.Schema) -> None:
        self._stored = {item.name: item for item in stored}
        self._statistics: dict[str, list[Any]] = {}
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            for number in range(row_group.num_columns):
                column = row_group.column(number)
                self._statistics.setdefault(column.path_in_schema, []).append(column.statistics)

    def shows_valid(self, item: StructField) -> bool:
        """Whether the column certainly has no null that it must not have, and no number that its type does not have."""
        stored = self._stored.get(item.name)
        if stored is None or _schema_shows_valid(stored, item.type, item.nullable):
            return True  # whether a column may be missing was checked before
        if isinstance(item.type, StructType | ArrayType | MapType):
            return False
        statistics = self._statistics.get(item.name, ())
        has_no_null = item.nullable or not stored.nullable or _have_no_null(statistics)
        return has_no_null and (stored.type.equals(file_type(item.type)) or _are_in_range(statistics, item.type))


def _schema_shows_valid(stored: pa.Field, kind: DataType, nullable: bool) -> bool:
    """Whether the file's schema alone shows it: what is required in Parquet is never null."""
    if stored.nullable and not nullable:
        return False
    match kind:
        case StructType():
            fields = {item.name: item for item in stored.type}
            return all(
                _schema_shows_valid(fields[item.name], item.type, item.nullable)
                for item in kind.fields
                if item.name in fields
            )
        case ArrayType():
            return _schema_shows_valid(stored.type.value_field, kind.element_type, kind.contains_null)
        case MapType():
            value = _schema_shows_valid(stored.type.item_field, kind.value_type, kind.value_contains_null)
            return value and _schema_shows_valid(stored.type.key_field, kind.key_type, nullable=True)
        case _:
            return str(kind) not in _RANGES or bool(stored.type.equals(file_type(kind)))


def _have_no_null(statistics: Iterable[Any]) -> bool:
    return all(item is not None and item.has_null_count and item.null_count == 0 for item in statistics)


def _are_in_range(statistics: Iterable[Any], kind: DataType) -> bool:
    if str(kind) not in _RANGES:
        return True
    low, high = _RANGES[str(kind)]
    return all(
        item is not None and (item.num_values == 0 or (item.has_min_max and low <= item.min and item.max <= high))
        for item in statistics
    )
