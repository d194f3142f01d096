"""Converts the columns of a data file to the table's: column mapping, widened types, missing columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from deltalakedb.data.arrow_types import is_any_list
from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
    to_arrow_type,
)

Read: TypeAlias = Callable[[pa.Array], pa.Array]
_FIELD_ID = b"PARQUET:field_id"


class Projection:
    """The conversion of one file's batches to columns of the table; `columns` are the names to read from the file."""

    def __init__(self, file: pa.Schema, fields: Sequence[StructField], *, by_id: bool) -> None:
        self._by_id = by_id
        self._reads: list[tuple[str, Read | None] | pa.DataType] = []
        members = _Members(list(file), by_id)
        for item in fields:
            stored = members.get(item)
            if stored is None or item.type == PrimitiveType("void"):
                self._reads.append(to_arrow_type(item.type))
            else:
                self._reads.append((stored.name, _reader(stored.type, item.type, by_id, (item.name,))))
        self.columns = [read[0] for read in self._reads if isinstance(read, tuple)]

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The table's columns, in the order of its fields."""
        arrays = []
        for read in self._reads:
            if isinstance(read, tuple):
                name, convert = read
                array = batch.column(name)
                arrays.append(array if convert is None else convert(array))
            else:
                arrays.append(pa.nulls(batch.num_rows, read))
        return arrays


class _Members:
    """The fields of a struct in a file, by id or by physical name."""

    def __init__(self, fields: Sequence[pa.Field], by_id: bool) -> None:
        self._by_id = by_id
        self._names = {item.name: item for item in fields}
        self._ids: Mapping[int, pa.Field] = {
            int(item.metadata[_FIELD_ID]): item for item in fields if item.metadata and _FIELD_ID in item.metadata
        }

    def get(self, item: StructField) -> pa.Field | None:
        # In mode `id` only the id counts; a file without any ids was written before column mapping was enabled.
        if self._by_id and item.id is not None and self._ids:
            return self._ids.get(item.id)
        return self._names.get(item.physical_name)


def _reader(stored: pa.DataType, wanted: DataType, by_id: bool, path: tuple[str, ...]) -> Read | None:
    """The conversion of a stored column to the table's type; None if not needed."""
    arrow = to_arrow_type(wanted)
    if stored.equals(arrow):
        return None
    match wanted:
        case StructType() if pt.is_struct(stored):
            return _struct_reader(stored, wanted, arrow, by_id, path)
        case ArrayType() if is_any_list(stored):
            return _list_reader(stored, wanted, arrow, by_id, path)
        case MapType() if pt.is_map(stored):
            return _map_reader(stored, wanted, arrow, by_id, path)
        case VariantType() if pt.is_struct(stored):
            return lambda array: _variant(array, arrow)
    if pt.is_nested(stored) or pt.is_nested(arrow):
        raise MalformedLogError(f"column {'.'.join(path)!r}: a file has {stored}, the table has {wanted}")
    return _leaf_reader(stored, wanted, arrow, path)


def _leaf_reader(stored: pa.DataType, wanted: DataType, arrow: pa.DataType, path: tuple[str, ...]) -> Read:
    # Spark's INT96 has no zone and means UTC, like an instant without a zone in a file.
    options = pc.CastOptions(target_type=arrow, allow_time_truncate=True)

    def convert(array: pa.Array) -> pa.Array:
        try:
            return pc.cast(array, options=options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            detail = str(error).partition("\n")[0]
            raise MalformedLogError(
                f"column {'.'.join(path)!r}: a file has {stored}, the table has {wanted}: {detail}"
            ) from error

    return convert


def _struct_reader(
    stored: pa.DataType, wanted: StructType, arrow: pa.DataType, by_id: bool, path: tuple[str, ...]
) -> Read:
    members = _Members(list(stored), by_id)
    reads: list[tuple[int, Read | None] | pa.DataType] = []
    for item in wanted.fields:
        member = members.get(item)
        if member is None or item.type == PrimitiveType("void"):
            reads.append(to_arrow_type(item.type))
        else:
            read = _reader(member.type, item.type, by_id, (*path, item.name))
            reads.append((stored.get_field_index(member.name), read))
    fields = list(arrow)

    def convert(array: pa.Array) -> pa.Array:
        children = []
        for read in reads:
            if isinstance(read, tuple):
                child = array.field(read[0])
                children.append(child if read[1] is None else read[1](child))
            else:
                children.append(pa.nulls(len(array), read))
        if not children:
            raise MalformedLogError(f"column {'.'.join(path)!r} is a struct without fields")
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)

    return convert


def _list_reader(
    stored: pa.DataType, wanted: ArrayType, arrow: pa.DataType, by_id: bool, path: tuple[str, ...]
) -> Read:
    """Read any of Arrow's list types: writers record theirs in the file's own schema; in Parquet they are the same."""
    element = _reader(stored.value_type, wanted.element_type, by_id, (*path, "element"))
    plain = pa.list_(stored.value_field)

    def convert(array: pa.Array) -> pa.Array:
        if pt.is_list_view(stored) or pt.is_large_list_view(stored):
            array = _without_view(array, plain)
        elif not pt.is_list(stored):
            array = array.cast(plain)
        return _nested(array, arrow, array.values if element is None else element(array.values))

    return convert


def _without_view(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Convert list views to plain lists; pyarrow's cast (26) omits the last offset."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), array.flatten(), type=plain, mask=array.is_null())


def _map_reader(stored: pa.DataType, wanted: MapType, arrow: pa.DataType, by_id: bool, path: tuple[str, ...]) -> Read:
    key = _reader(stored.key_type, wanted.key_type, by_id, (*path, "key"))
    value = _reader(stored.item_type, wanted.value_type, by_id, (*path, "value"))

    def convert(array: pa.Array) -> pa.Array:
        keys, items = array.keys, array.items
        parts = [keys if key is None else key(keys), items if value is None else value(items)]
        entries = pa.StructArray.from_arrays(parts, fields=[arrow.key_field, arrow.item_field])
        return _nested(array, arrow, entries)

    return convert


def _nested(array: pa.Array, arrow: pa.DataType, child: pa.Array) -> pa.Array:
    """A list or map with new children under the same offsets."""
    return pa.Array.from_buffers(
        arrow, len(array), array.buffers()[:2], array.null_count, array.offset, children=[child]
    )


def _variant(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """An unshredded variant: two binaries, in either order."""
    if not {"metadata", "value"} <= {item.name for item in array.type} or len(array.type) != 2:
        raise MalformedLogError("a variant is shredded, which cannot be read yet")
    children = [array.field(array.type.get_field_index(item.name)) for item in arrow]
    return pa.StructArray.from_arrays(children, fields=list(arrow), mask=array.is_null() if array.null_count else None)
