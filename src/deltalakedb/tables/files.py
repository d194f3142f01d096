"""Plans, counts and lists the active files of a DeltaTable, from what its log says about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalakedb.exceptions import DeltaError, MalformedLogError
from deltalakedb.log.predicates.file_filters import encode_filters, read_file_filters
from deltalakedb.log.protocol import paths
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import Leaf, StructType, parse_schema, to_arrow_type
from deltalakedb.log.statistics.bounds_columns import kind_of, stats_leaves
from deltalakedb.log.statistics.stats import FileStats, parse_stats, typed_value, value_at
from deltalakedb.store import Connection, registry
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.tables.answers import ColumnStats, distinct_partitions, readable

if TYPE_CHECKING:
    from deltalakedb.store.aggregates import PartitionCounts
    from deltalakedb.tables.filters import PredicateLike
    from deltalakedb.tables.reader import TableReader


def file_uris(table: TableReader, predicate: PredicateLike | None) -> list[str]:
    """Return the URIs of the files that a predicate, or filters on files, select; local ones as plain paths."""
    file_paths = readable(choose_files(table, predicate, ["path"])).column("path").to_pylist()
    location = table._backing.location
    uris = (paths.resolve(location, path) for path in file_paths)
    return [paths.local_path(uri) or uri for uri in uris]


def partitions(table: TableReader, predicate: PredicateLike | None) -> list[dict[str, str | None]]:
    """Return the distinct partition values of the files that a predicate, or filters on files, select."""
    _check_filtered(table, predicate)
    names = table._snapshot.metadata.partition_columns
    if not names:
        return []
    files = readable(choose_files(table, predicate, ["partition_values"]))
    fields = [table._struct.field(name) for name in names]
    texts = files.column("partition_values").unique().to_pylist()
    return distinct_partitions(texts, [item for item in fields if item is not None])


def add_actions(table: TableReader, flatten: bool) -> pa.Table:
    """Return the active files with their statistics and partition values as typed columns."""
    table._note_read(None)
    files = table._snapshot.files_table(FILE_COLUMNS)
    return add_actions_table(files, table._snapshot.metadata, flatten=flatten)


def count(table: TableReader) -> int:
    """Return the number of rows; DeltaError if a file does not record it."""
    totals = table.totals()
    if totals.files_without_records:
        raise DeltaError(
            f"{table.name} version {table.version()}: {totals.files_without_records} of {totals.num_files} files do "
            "not say how many rows they hold, so the count is not known without reading them"
        )
    return totals.num_records


def count_matching(table: TableReader, predicate: PredicateLike) -> int:
    """Return the number of rows that match a predicate; DeltaError if metadata cannot tell exactly."""
    from deltalakedb.store.aggregates import count_planned

    parsed = table._parse(predicate)
    table._note_read(parsed)
    planned = table._snapshot.plan(parsed, ["partition_values", "num_records"])
    num_rows = count_planned(planned.files, table._snapshot.metadata, parsed)
    if num_rows is None:
        raise DeltaError(
            f"{table.name} version {table.version()}: metadata does not tell how many rows match {predicate}"
        )
    return num_rows


def stats_of(table: TableReader, column: str) -> ColumnStats:
    """Return a column's minimum and maximum, None if metadata does not prove it."""
    from deltalakedb.store.aggregates import maximum, minimum

    table._note_read(None)
    with table._sql().catalog.store.read() as conn:
        opened = _as_head(table, conn)
        low, high = (None, None) if opened is None else (f(conn, opened, column) for f in (minimum, maximum))
    return ColumnStats(low.value if low else None, high.value if high else None, low is not None, high is not None)


def partition_counts(table: TableReader) -> list[PartitionCounts]:
    """Return the files, rows and bytes of every partition, at the newest version."""
    from deltalakedb.store.aggregates import count_partitions

    table._note_read(None)
    with table._sql().catalog.store.read() as conn:
        opened = _as_head(table, conn)
        counts = [] if opened is None else count_partitions(conn, opened)
    if opened is None:
        raise DeltaError(
            f"{table.name}: partitions are counted at the newest version only, and version {table.version()} is not; "
            "`update_incremental` moves there"
        )
    names = {f.physical_name: f.name for f in table._struct.fields}
    return [
        replace(count, values={names.get(key, key): text for key, text in count.values.items()}) for count in counts
    ]


def _as_head(table: TableReader, conn: Connection) -> registry.OpenTable | None:
    """Return this version as the head, read on `conn`; None if it is not the newest any more."""
    row, snapshot = table._sql().row, table._snapshot
    if not isinstance(snapshot, SqlSnapshot):
        return None  # with a transaction's own changes it is not a version in the database
    head = registry.read_head(conn, row.table_id)
    if head is None or head.current_version != snapshot.version:
        return None
    return registry.OpenTable(row, head, snapshot.protocol, snapshot.metadata, fenced=False)


def _check_filtered(table: TableReader, predicate: PredicateLike | None) -> None:
    """Raise ValueError for filters on unknown columns, as `deltalake` does when it lists partitions."""
    groups = [] if not predicate or isinstance(predicate, str) else encode_filters(predicate)
    columns = table._struct.names
    unknown = sorted({name for group in groups for name, *_ in group} - set(columns))
    if unknown:
        raise ValueError(
            f"Filters include columns that are not in table schema: [{', '.join(map(json.dumps, unknown))}]; "
            f"{table.name} has {', '.join(columns)}"
        )


def choose_files(table: TableReader, predicate: PredicateLike | None, columns: list[str] | None) -> pa.Table:
    """Return the files that a predicate, or filters on files, select, with texts as the log has them."""
    snapshot = table._snapshot
    if predicate is None or (not predicate and not isinstance(predicate, str)):
        table._note_read(None)
        return snapshot.files_table(columns)
    if isinstance(predicate, str):
        parsed = table._parse(predicate, exact=True)
        table._note_read(parsed)
        return snapshot.plan(parsed, columns).files
    filters = read_file_filters(encode_filters(predicate), table._struct, snapshot.metadata.partition_columns)
    table._note_read(filters.predicate)
    fetched = None if columns is None else [*columns, *({"partition_values"} - set(columns))]
    return filters.choose(snapshot.plan(filters.predicate, fetched).files)


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
        if not is_leaf and any(len(column.path) == 1 for column in inner):
            raise MalformedLogError(f"the table's schema has two columns with the name {name!r}")
        array = inner[0].values if is_leaf else _nest([_Column(c.path[1:], c.values) for c in inner], unknown)
        arrays.append(array)
        fields.append(pa.field(name, array.type, inner[0].nullable if is_leaf else True))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=unknown)
