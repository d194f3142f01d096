"""The table that `get_add_actions` returns: one row a file, statistics and partition values typed by the schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from .exceptions import MalformedLogError
from .log.actions import Metadata
from .log.bounds_columns import kind_of, stats_leaves
from .log.partitions import parse_partition_value
from .log.stats import FileStats, parse_stats, typed_value, value_at
from .log.text import from_sql_text
from .log.types import Leaf, StructType, parse_schema, to_arrow_type

FILE_COLUMNS = ("path", "size", "modification_time", "stats", "partition_values")

_NO_STATS = FileStats()


def add_actions_table(files: pa.Table, metadata: Metadata, *, flatten: bool) -> pa.Table:
    """Files (with FILE_COLUMNS) in the shape of `deltalake`: structs, or with `flatten` columns like `min.id`."""
    schema = parse_schema(metadata.schema_string)
    leaves = stats_leaves(schema, metadata.partition_columns, metadata.configuration)
    ordered = [leaf for leaf in leaves if kind_of(leaf.type) is not None]
    stats = [_file_stats(text) for text in files.column("stats").to_pylist()]
    groups = {
        "null_count": [_Column(leaf.path, _null_counts(stats, leaf)) for leaf in leaves],
        "min": [_Column(leaf.path, _values(stats, leaf, lambda one: one.min_values)) for leaf in ordered],
        "max": [_Column(leaf.path, _values(stats, leaf, lambda one: one.max_values)) for leaf in ordered],
        "partition": list(_partition_columns(files, schema, metadata.partition_columns)),
    }
    fields, columns = _file_columns(files, stats)
    for name, members in groups.items():
        if flatten:
            fields += [pa.field(".".join((name, *column.path)), column.values.type) for column in members]
            columns += [column.values for column in members]
        elif members:
            nested = _nest(members, files.num_rows)
            fields.append(pa.field(name, nested.type))
            columns.append(nested)
    return pa.table(columns, schema=pa.schema(fields))


class _Column:
    """One leaf of a group: the path of names that leads to it, and its values."""

    def __init__(self, path: Sequence[str], values: pa.Array) -> None:
        self.path = tuple(path)
        self.values = values


def _file_columns(files: pa.Table, stats: list[FileStats]) -> tuple[list[pa.Field], list[pa.Array]]:
    fields = [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("num_records", pa.int64()),
    ]
    paths = pa.array([_storable(from_sql_text(path)) for path in files.column("path").to_pylist()], pa.string())
    size, modified = (files.column(name).combine_chunks() for name in ("size", "modification_time"))
    return fields, [paths, size, modified, pa.array([one.num_records for one in stats], pa.int64())]


def _storable(text: str) -> str:
    """Arrow holds no lone surrogates; such a path keeps a mark in their place."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _file_stats(text: str | None) -> FileStats:
    return _NO_STATS if text is None else parse_stats(from_sql_text(text), exact=True) or _NO_STATS


def _null_counts(stats: list[FileStats], leaf: Leaf) -> pa.Array:
    counts = (value_at(one.null_count, leaf.physical_path) for one in stats)
    return pa.array([count if type(count) is int and abs(count) < 2**63 else None for count in counts], pa.int64())


def _values(stats: list[FileStats], leaf: Leaf, side: Callable[[FileStats], Any]) -> pa.Array:
    kind = to_arrow_type(leaf.type)
    values = [typed_value(value_at(side(one), leaf.physical_path), leaf.type) for one in stats]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        # Statistics are anybody's: a value that does not fit its column (a long in a byte) is unknown.
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None
    return value


def _partition_columns(files: pa.Table, schema: StructType, names: Sequence[str]) -> Iterator[_Column]:
    parsed = [json.loads(text) for text in files.column("partition_values").to_pylist()]
    for name in names:
        field = schema.field(name)
        if field is None:
            raise MalformedLogError(f"the partition column {name} is not in the schema")
        # Partition values repeat: each is parsed once.
        texts = [values.get(field.physical_name) for values in parsed]
        known = {text: parse_partition_value(text, field.type) for text in set(texts)}
        yield _Column((field.name,), pa.array([known[text] for text in texts], to_arrow_type(field.type)))


def _nest(members: list[_Column], num_rows: int) -> pa.Array:
    """Leaves as one struct column, structs inside it where paths have several parts."""
    names: dict[str, list[_Column]] = {}
    for column in members:
        names.setdefault(column.path[0], []).append(column)
    arrays = []
    for inner in names.values():
        whole = len(inner) == 1 and len(inner[0].path) == 1
        arrays.append(inner[0].values if whole else _nest([_Column(c.path[1:], c.values) for c in inner], num_rows))
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)
