"""The table that `get_add_actions` returns: one row per file, with typed statistics and partition values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.text import from_sql_text
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import Leaf, StructType, parse_schema, to_arrow_type
from deltalakedb.log.statistics.bounds_columns import kind_of, stats_leaves
from deltalakedb.log.statistics.stats import FileStats, parse_stats, typed_value, value_at

FILE_COLUMNS = ("path", "size", "modification_time", "stats", "partition_values")

_NO_STATS = FileStats()


def add_actions_table(files: pa.Table, metadata: Metadata, *, flatten: bool) -> pa.Table:
    """Return files (with FILE_COLUMNS) as `deltalake` does: as structs, or with `flatten` as columns like `min.id`."""
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
            fields += [
                pa.field(".".join((name, *column.path)), column.values.type, column.nullable) for column in members
            ]
            columns += [column.values for column in members]
        elif members:
            unknown = [one is _NO_STATS for one in stats] if name != "partition" else [False] * len(stats)
            nested = _nest(members, pa.array(unknown, pa.bool_()))
            fields.append(pa.field(name, nested.type))
            columns.append(nested)
    return pa.table(columns, schema=pa.schema(fields))


class _Column:
    """One leaf of a group: its path of names, its values, and whether they may be null."""

    def __init__(self, path: Sequence[str], values: pa.Array, *, nullable: bool = True) -> None:
        self.path = tuple(path)
        self.values = values
        self.nullable = nullable or values.null_count > 0


def _file_columns(files: pa.Table, stats: list[FileStats]) -> tuple[list[pa.Field], list[pa.Array]]:
    fields = [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("num_records", pa.int64()),
    ]
    paths = pa.array([_storable(from_sql_text(path)) for path in files.column("path").to_pylist()], pa.string())
    size, modified = (files.column(name).combine_chunks() for name in ("size", "modification_time"))
    return fields, [paths, size, modified, pa.array([file_stats.num_records for file_stats in stats], pa.int64())]


def _storable(text: str) -> str:
    """Replace lone surrogates, which Arrow cannot store, by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _file_stats(text: str | None) -> FileStats:
    return _NO_STATS if text is None else parse_stats(from_sql_text(text), exact=True) or _NO_STATS


def _null_counts(stats: list[FileStats], leaf: Leaf) -> pa.Array:
    counts = (value_at(file_stats.null_count, leaf.physical_path) for file_stats in stats)
    return pa.array([count if type(count) is int and abs(count) < 2**63 else None for count in counts], pa.int64())


def _values(stats: list[FileStats], leaf: Leaf, side: Callable[[FileStats], Any]) -> pa.Array:
    kind = to_arrow_type(leaf.type)
    values = [typed_value(value_at(side(file_stats), leaf.physical_path), leaf.type) for file_stats in stats]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        # Any program may have written the statistics: a value that does not fit its column (a long in a byte) is null.
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
        # Partition values repeat, so parse each one once.
        texts = [values.get(field.physical_name) for values in parsed]
        values_by_text = {text: parse_partition_value(text, field.type) for text in set(texts)}
        values = pa.array([values_by_text[text] for text in texts], to_arrow_type(field.type))
        yield _Column((field.name,), values, nullable=field.nullable)


def _nest(members: list[_Column], unknown: pa.Array) -> pa.Array:
    """Return leaves as one struct column, nested where paths have several parts; null if statistics are unknown."""
    names: dict[str, list[_Column]] = {}
    for column in members:
        names.setdefault(column.path[0], []).append(column)
    arrays, fields = [], []
    for name, inner in names.items():
        is_leaf = len(inner) == 1 and len(inner[0].path) == 1
        array = inner[0].values if is_leaf else _nest([_Column(c.path[1:], c.values) for c in inner], unknown)
        arrays.append(array)
        fields.append(pa.field(name, array.type, inner[0].nullable if is_leaf else True))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=unknown)
