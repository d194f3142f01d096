"""What the footer of a Parquet file shows: whether its columns are the table's, and whether its rows are valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_type, is_any_list
from deltalakedb.iceberg.delta.field_ids import ELEMENT, KEY, VALUE, Path, dotted
from deltalakedb.iceberg.delta.file_ids import FIELD_ID
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

_SMALL: Final = frozenset({"byte", "short", "integer"})
"""Integers that a file may have in any width up to 32 bits; values out of the type's range are looked for later."""
_RANGES: Final = {"byte": (-(2**7), 2**7 - 1), "short": (-(2**15), 2**15 - 1)}


def column_problems(
    stored: pa.Schema, schema: StructType, ids: Mapping[Path, int], optional: Iterable[str]
) -> Iterator[str]:
    """Why a file does not fit a table; empty if it does. The columns `optional` may be missing."""
    yield from _Columns(ids).in_struct(list(stored), schema, (), frozenset(optional))


class _Columns:
    def __init__(self, ids: Mapping[Path, int]) -> None:
        self._ids = ids

    def in_struct(
        self, stored: list[pa.Field], struct: StructType, above: Path, optional: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        fields = {item.name: item for item in stored}
        if len(fields) < len(stored):
            names = [item.name for item in stored]
            twice = next(name for name in names if names.count(name) > 1)
            yield f"it has the column {dotted((*above, twice))} twice"
            return
        for name in fields.keys() - {item.name for item in struct.fields}:
            yield f"it has the column {dotted((*above, name))}, which the table does not have"
        for item in struct.fields:
            path = (*above, item.name)
            field = fields.get(item.name)
            if field is not None:
                yield from self.in_field(field, item.type, path)
            elif not item.nullable and item.name not in optional:
                yield f"it does not have the column {dotted(path)}, which must not be null"

    def in_field(self, stored: pa.Field, kind: DataType, path: Path) -> Iterator[str]:
        raw_id = (stored.metadata or {}).get(FIELD_ID)
        known_id = self._ids.get(path)
        if raw_id is not None and known_id is not None and int(raw_id) != known_id:
            yield (f"its column {dotted(path)} has the field id {int(raw_id)}, and the table's has {known_id}")
            return
        arrow = _plain(stored.type)
        match kind:
            case StructType() if pt.is_struct(arrow):
                yield from self.in_struct(list(arrow), kind, path)
            case ArrayType() if is_any_list(arrow):
                yield from self.in_field(arrow.value_field, kind.element_type, (*path, ELEMENT))
            case MapType() if pt.is_map(arrow):
                yield from self.in_field(arrow.key_field, kind.key_type, (*path, KEY))
                yield from self.in_field(arrow.item_field, kind.value_type, (*path, VALUE))
            case _ if not _fits(arrow, kind):
                yield f"its column {dotted(path)} is of the type {arrow}, and the table's of the type {kind}"


def _plain(arrow: pa.DataType) -> pa.DataType:
    """The type without what only says how Arrow holds it in memory."""
    if pt.is_dictionary(arrow):
        return _plain(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        return _plain(arrow.storage_type)
    if pt.is_large_string(arrow) or pt.is_string_view(arrow):
        return pa.string()
    if pt.is_large_binary(arrow) or pt.is_binary_view(arrow):
        return pa.binary()
    return arrow


def _fits(arrow: pa.DataType, kind: DataType) -> bool:
    if isinstance(kind, StructType | ArrayType | MapType):
        return False
    if isinstance(kind, PrimitiveType):
        if kind.name in _SMALL:
            return bool(pt.is_signed_integer(arrow) and arrow.bit_width <= 32)
        if kind.name in ("timestamp", "timestamp_ntz"):
            has_zone = pt.is_timestamp(arrow) and arrow.tz is not None
            return (
                bool(pt.is_timestamp(arrow)) and arrow.unit in ("us", "ms") and has_zone == (kind.name == "timestamp")
            )
    return bool(arrow.equals(file_type(kind)))


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
