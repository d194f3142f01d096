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

from deltalakedb.log.protocol.text import from_sql_text

_PIECE = 1 << 18
STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string()))


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


DELETION_VECTOR = pa.struct(
    [
        _required("storageType", pa.string()),
        _required("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        _required("sizeInBytes", pa.int32()),
        _required("cardinality", pa.int64()),
    ]
)
# Required fields are those of PROTOCOL.md, "Checkpoint Schema". Optional columns are always written, so that every
# reader finds the columns that it asks for.
ADD_FIELDS: tuple[pa.Field, ...] = (
    _required("path", pa.string()),
    _required("partitionValues", STRING_MAP),
    _required("size", pa.int64()),
    _required("modificationTime", pa.int64()),
    _required("dataChange", pa.bool_()),
    pa.field("tags", STRING_MAP),
    pa.field("deletionVector", DELETION_VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
    pa.field("clusteringProvider", pa.string()),
)
STATS_FIELD = pa.field("stats", pa.string())
REMOVE_FIELDS: tuple[pa.Field, ...] = (
    _required("path", pa.string()),
    pa.field("deletionTimestamp", pa.int64()),
    _required("dataChange", pa.bool_()),
    pa.field("extendedFileMetadata", pa.bool_()),
    pa.field("partitionValues", STRING_MAP),
    pa.field("size", pa.int64()),
    pa.field("deletionVector", DELETION_VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
)


def add_columns(files: pa.RecordBatch) -> dict[str, pa.Array]:
    """The members of `add` for a batch of FILES_SCHEMA, without the optional ones that a table's settings require."""
    return {
        "path": plain_text(files.column("path")),
        "partitionValues": string_maps(files.column("partition_values")),
        "size": files.column("size"),
        "modificationTime": files.column("modification_time"),
        # As Spark does: the files of a checkpoint change nothing.
        "dataChange": pa.repeat(pa.scalar(False), files.num_rows),
        "tags": string_maps(files.column("tags")),
        "deletionVector": deletion_vectors(files.column("deletion_vector")),
        "baseRowId": files.column("base_row_id"),
        "defaultRowCommitVersion": files.column("default_row_commit_version"),
        "clusteringProvider": plain_text(files.column("clustering_provider")),
    }


def remove_columns(tombstones: pa.RecordBatch) -> dict[str, pa.Array]:
    """The members of `remove` for a batch of TOMBSTONES_SCHEMA."""
    return {
        "path": plain_text(tombstones.column("path")),
        "deletionTimestamp": tombstones.column("deletion_timestamp"),
        "dataChange": pa.repeat(pa.scalar(False), tombstones.num_rows),
        "extendedFileMetadata": tombstones.column("extended_file_metadata"),
        "partitionValues": string_maps(tombstones.column("partition_values")),
        "size": tombstones.column("size"),
        "deletionVector": deletion_vectors(tombstones.column("deletion_vector")),
        "baseRowId": tombstones.column("base_row_id"),
        "defaultRowCommitVersion": tombstones.column("default_row_commit_version"),
    }


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
        return nulls(DELETION_VECTOR, len(column))
    lines = "\n".join(column.drop_null().to_pylist()).encode()
    nullable = pa.schema([field.with_nullable(True) for field in DELETION_VECTOR])
    options = pyarrow.json.ParseOptions(explicit_schema=nullable, unexpected_field_behavior="ignore")
    blocks = pyarrow.json.ReadOptions(block_size=len(lines) + 1)
    table = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options, read_options=blocks)
    rows = table.combine_chunks().to_batches()[0].select(nullable.names).to_struct_array()
    positions = pc.subtract(pc.cumulative_sum(column.is_valid().cast(pa.int32())), 1)
    # A null row repeats another vector's members, because required members must not be null.
    spread = rows.take(pc.max_element_wise(positions, 0))
    return pa.StructArray.from_arrays(spread.flatten(), fields=list(DELETION_VECTOR), mask=column.is_null())


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
