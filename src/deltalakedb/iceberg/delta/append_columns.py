"""Checks that the columns of a Parquet file are those of a Delta table: by name, by field id and by type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_type, is_any_list
from deltalakedb.iceberg.delta.field_ids import ELEMENT, KEY, PART_NAMES, VALUE, Path
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructType

_FIELD_ID: Final = b"PARQUET:field_id"
_SMALL: Final = frozenset({"byte", "short", "integer"})
"""Integers that a file may have in any width up to 32 bits; values out of the type's range are looked for later."""


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
            yield f"it has the column {_dotted((*above, twice))} twice"
            return
        for name in fields.keys() - {item.name for item in struct.fields}:
            yield f"it has the column {_dotted((*above, name))}, which the table does not have"
        for item in struct.fields:
            path = (*above, item.name)
            field = fields.get(item.name)
            if field is not None:
                yield from self.in_field(field, item.type, path)
            elif not item.nullable and item.name not in optional:
                yield f"it does not have the column {_dotted(path)}, which must not be null"

    def in_field(self, stored: pa.Field, kind: DataType, path: Path) -> Iterator[str]:
        raw_id = (stored.metadata or {}).get(_FIELD_ID)
        known_id = self._ids.get(path)
        if raw_id is not None and known_id is not None and int(raw_id) != known_id:
            yield (f"its column {_dotted(path)} has the field id {int(raw_id)}, and the table's has {known_id}")
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
                yield f"its column {_dotted(path)} is of the type {arrow}, and the table's of the type {kind}"


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


def _dotted(path: Path) -> str:
    return ".".join(PART_NAMES[part] if isinstance(part, int) else part for part in path)
