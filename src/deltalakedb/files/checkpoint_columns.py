"""Converts batches of files and tombstones into checkpoint columns, a whole column at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.fields import DELETION_VECTOR, Field, Kind, Spec

_PIECE = 1 << 18
STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string()))


_STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.LONG: pa.int64(),
    Kind.INT: pa.int32(),
    Kind.FLAG: pa.bool_(),
    Kind.MAP: STRING_MAP,
    Kind.LIST: _STRINGS,
}


def _checkpoint_field(field: Field) -> pa.Field:
    # Required fields are those of PROTOCOL.md, "Checkpoint Schema". Optional columns are always written, so that every
    # reader finds the columns that it asks for.
    kind = _TYPES[field.kind] if field.nested is None else struct_type(field.nested)
    return pa.field(field.name, kind, nullable=field.default is None)


def struct_type(spec: Spec) -> pa.StructType:
    """The type of an action, or of an object inside of one, in a checkpoint."""
    return pa.struct([_checkpoint_field(field) for field in spec.checkpoint_fields])


DELETION_VECTOR_TYPE = struct_type(DELETION_VECTOR)
STATS_FIELD = pa.field("stats", pa.string())


def file_columns(spec: Spec, files: pa.RecordBatch) -> dict[str, pa.Array]:
    """The members of `add` or `remove` for a batch of FILES_SCHEMA or TOMBSTONES_SCHEMA, without optional ones that a
    table's settings require."""
    columns = {field.name: _file_column(field, files.column(field.column)) for field in spec.checkpoint_fields}
    # As Spark does: the files of a checkpoint change nothing.
    return columns | {"dataChange": pa.repeat(pa.scalar(False), files.num_rows)}


def _file_column(field: Field, column: pa.Array) -> pa.Array:
    match field.kind:
        case Kind.TEXT:
            return plain_text(column)
        case Kind.MAP:
            return string_maps(column)
        case Kind.OBJECT:
            return deletion_vectors(column)
        case _:
            return column


def table_action(spec: Spec, action: object) -> dict[str, Any]:
    """An action other than a file, or an object inside of one, as a value of `struct_type`; maps are sorted."""
    return {field.name: _plain_value(field, getattr(action, field.attribute)) for field in spec.checkpoint_fields}


def _plain_value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.nested is not None:
        return table_action(field.nested, value)
    return sorted(value.items()) if field.kind is Kind.MAP else value


def nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """An array of nulls. Required struct members hold fillers: Arrow checks them without regard to the struct."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    members = [nulls(field.type, rows) if field.nullable else _filler(field.type, rows) for field in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=pa.repeat(pa.scalar(True), rows))


def _filler(kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_filler(field.type, rows) for field in kind], fields=list(kind))
    if pa.types.is_nested(kind):
        filler = pa.array([[]], kind)
    else:
        filler = pa.array([""]) if pa.types.is_string(kind) else pa.array([0]).cast(kind)
    return filler.take(pa.repeat(pa.scalar(0), rows))


def struct_of(columns: Mapping[str, pa.Array], fields: Sequence[pa.Field]) -> pa.StructArray:
    return pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=list(fields))


def plain_text(column: pa.Array) -> pa.Array:
    """`log.text.from_sql_text` for a column; ValueError for lone surrogates, which Parquet cannot store."""
    if not _has_backslash(column):
        return column
    escaped = pc.match_substring(column, "\\").fill_null(False)
    texts = [_encodable(from_sql_text(text)) for text in column.filter(escaped).to_pylist()]
    return pc.replace_with_mask(column, escaped, pa.array(texts, pa.string()))


def plain_json(column: pa.Array) -> pa.Array:
    """`plain_text` for JSON text, in which lone surrogates can be written as \\uXXXX, as in SQL text."""
    return pc.replace_substring(column, "\\\\", "\\") if _has_backslash(column) else column


def string_maps(column: pa.Array) -> pa.Array:
    """Convert JSON objects of strings to maps. Few values are distinct, so each is parsed once."""
    if column.null_count == len(column):
        return nulls(STRING_MAP, len(column))
    encoded = column.dictionary_encode()
    values = [_members(text) for text in encoded.dictionary.to_pylist()]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    keys = pa.array([key for value in values for key in value], pa.string())
    items = pa.array([item for value in values for item in value.values()], pa.string())
    maps = pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=STRING_MAP)
    return maps.take(encoded.indices)


def deletion_vectors(column: pa.Array) -> pa.Array:
    """Convert JSON objects to structs, null where there is none."""
    if column.null_count == len(column):
        return nulls(DELETION_VECTOR_TYPE, len(column))
    lines = "\n".join(column.drop_null().to_pylist()).encode()
    nullable = pa.schema([field.with_nullable(True) for field in DELETION_VECTOR_TYPE])
    options = pyarrow.json.ParseOptions(explicit_schema=nullable, unexpected_field_behavior="ignore")
    blocks = pyarrow.json.ReadOptions(block_size=len(lines) + 1)
    table = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options, read_options=blocks)
    rows = table.combine_chunks().to_batches()[0].select(nullable.names).to_struct_array()
    positions = pc.subtract(pc.cumulative_sum(column.is_valid().cast(pa.int32())), 1)
    # A null row repeats another vector's members, because required members must not be null.
    spread = rows.take(pc.max_element_wise(positions, 0))
    return pa.StructArray.from_arrays(spread.flatten(), fields=list(DELETION_VECTOR_TYPE), mask=column.is_null())


def _members(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        value = json.loads(text)  # reads lone surrogates, so that the message shows them
        _encodable(text.encode().decode("unicode_escape") if "\\u" in text else text)
    if not isinstance(value, dict):
        raise ValueError(f"{text!r} is not a JSON object")
    return value


def _has_backslash(column: pa.StringArray) -> bool:
    data = column.buffers()[2]
    if data is None:
        return False
    octets = np.frombuffer(data, np.uint8)
    # In pieces that fit in the processor's cache.
    return any((octets[start : start + _PIECE] == ord("\\")).any() for start in range(0, len(octets), _PIECE))


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} holds a lone surrogate, which Parquet cannot keep") from error
    return text
