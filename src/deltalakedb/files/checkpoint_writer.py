"""Writes classic checkpoints: a table's state in one Parquet file, streamed in bounded memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from deltalakedb.files.parsed_stats import ParsedPartitionValues, ParsedStats
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.fields import (
    ADD,
    DELETION_VECTOR,
    DOMAIN_METADATA,
    METADATA,
    PROTOCOL,
    REMOVE,
    TXN,
    Field,
    Kind,
    Spec,
)
from deltalakedb.log.protocol.txnlog import LogSnapshot

STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
GROUP_ROWS = 32_768
GROUP_BYTES = 16 * 1024 * 1024
"""A row group ends at this many rows or bytes: that much is in memory at once, and readers can load it alone."""

FEW_ROWS = 256
LARGE_BATCH = 4_096
"""Batches of at least this many rows are worth a thread that reads the next one ahead."""


def layout_of(metadata: Metadata) -> CheckpointLayout:
    """The layout of a table's checkpoints; most tables share one."""
    if _is_true(metadata.configuration.get(STATS_AS_STRUCT), default=False):
        return CheckpointLayout(metadata)
    return _common_layout(_is_true(metadata.configuration.get(STATS_AS_JSON), default=True))


@lru_cache
def _common_layout(has_json: bool) -> CheckpointLayout:
    configuration: dict[str, str | None] = {STATS_AS_JSON: "true" if has_json else "false"}
    return CheckpointLayout(Metadata("", Format(), "", (), configuration))


class CheckpointLayout:
    """The schema of a table's checkpoints, and the conversion of files to its rows."""

    def __init__(self, metadata: Metadata) -> None:
        configuration = metadata.configuration
        fields = list(struct_type(ADD))
        self._has_json = _is_true(configuration.get(STATS_AS_JSON), default=True)
        if self._has_json:
            fields.append(STATS_FIELD)
        self._stats: ParsedStats | None = None
        self._partitions: ParsedPartitionValues | None = None
        if _is_true(configuration.get(STATS_AS_STRUCT), default=False):
            if metadata.partition_columns:
                self._partitions = ParsedPartitionValues(metadata)
                fields.append(pa.field("partitionValues_parsed", self._partitions.type))
            self._stats = ParsedStats(metadata)
            fields.append(pa.field("stats_parsed", self._stats.type))
        self._add_fields = fields
        types = {spec.name: struct_type(spec) for spec in (TXN, ADD, REMOVE, METADATA, PROTOCOL, DOMAIN_METADATA)}
        types[ADD.name] = pa.struct(fields)
        self._remove_fields = list(types[REMOVE.name])
        self.schema = pa.schema(list(types.items()))
        self.write_options = _write_options(self.schema)
        self.few_nulls = {field.name: nulls(field.type, FEW_ROWS) for field in self.schema}

    def adds(self, files: pa.RecordBatch) -> pa.StructArray:
        columns = file_columns(ADD, files)
        stats = plain_json(files.column("stats"))
        if self._has_json:
            columns["stats"] = stats
        if self._stats is not None:
            columns["stats_parsed"] = self._stats.parse(stats)
        if self._partitions is not None:
            columns["partitionValues_parsed"] = self._partitions.parse(files.column("partition_values"))
        return struct_of(columns, self._add_fields)

    def removes(self, tombstones: pa.RecordBatch) -> pa.StructArray:
        return struct_of(file_columns(REMOVE, tombstones), self._remove_fields)

    def table_actions(self, protocol: Protocol, snapshot: LogSnapshot) -> Iterator[tuple[str, pa.StructArray]]:
        """All actions except files, sorted by name, so that the same state always gives the same rows."""
        transactions, domains = snapshot.app_transactions(), snapshot.domain_metadata()
        actions: dict[Spec, list[Any]] = {
            PROTOCOL: [protocol],
            METADATA: [snapshot.metadata],
            TXN: [transactions[name] for name in sorted(transactions)],
            DOMAIN_METADATA: [domains[name] for name in sorted(domains)],
        }
        for spec, values in actions.items():
            if values:
                rows = [table_action(spec, value) for value in values]
                yield spec.name, pa.array(rows, self.schema.field(spec.name).type)


class CheckpointFile:
    """A checkpoint that is being written."""

    def __init__(self, file: BinaryIO, layout: CheckpointLayout) -> None:
        self.num_actions = 0
        self.num_add_files = 0
        self._layout = layout
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._nulls, self._num_nulls = layout.few_nulls, FEW_ROWS
        self._writer = pq.ParquetWriter(file, layout.schema, **layout.write_options)

    def write(self, snapshot: LogSnapshot, protocol: Protocol, tombstone_cutoff_ms: int) -> None:
        # Always closed: a writer that is garbage-collected would write its footer later, into a closed file.
        with self._writer:
            for kind, actions in self._layout.table_actions(protocol, snapshot):
                self._add(kind, actions)
            for files in _in_batches(snapshot.files()):
                self.num_add_files += files.num_rows
                self._add("add", self._layout.adds(files))
            for tombstones in _in_batches(snapshot.tombstones(tombstone_cutoff_ms)):
                self._add("remove", self._layout.removes(tombstones))
            self._flush()

    def _add(self, kind: str, actions: pa.StructArray) -> None:
        rows = self._rows(kind, actions)
        self.num_actions += rows.num_rows
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += actions.nbytes
        if self._pending_rows >= GROUP_ROWS or self._pending_bytes >= GROUP_BYTES:
            self._flush()

    def _rows(self, kind: str, actions: pa.StructArray) -> pa.RecordBatch:
        """Actions of one kind as rows with nulls in all other columns; the null columns are created once and reused."""
        rows, schema = len(actions), self._layout.schema
        if rows > self._num_nulls:
            self._num_nulls = max(rows, GROUP_ROWS)
            self._nulls = {field.name: nulls(field.type, self._num_nulls) for field in schema}
        columns = [actions if name == kind else self._nulls[name].slice(0, rows) for name in schema.names]
        return pa.record_batch(columns, schema=schema)

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=self._pending_rows)
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _in_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Batches of at most GROUP_ROWS rows, read ahead: reading and writing take equally long, outside of Python."""
    for batch in read_ahead(reader, is_large=lambda batch: batch.num_rows >= LARGE_BATCH):
        for start in range(0, batch.num_rows, GROUP_ROWS):
            yield batch.slice(start, GROUP_ROWS)


def _write_options(schema: pa.Schema) -> dict[str, Any]:
    # Snappy is what Spark writes and every reader reads. Paths and statistics are unique: no dictionary.
    unique = {"add.path", "add.stats", "add.deletionVector.pathOrInlineDv", "remove.path"}
    repeated = [leaf for leaf in _leaves(schema) if leaf not in unique]
    return {"compression": "snappy", "use_dictionary": repeated, "store_schema": False}


def _leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """The paths of the Parquet columns that Arrow creates for the fields."""
    for field in fields:
        path = f"{prefix}{field.name}"
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{path}.")
        elif pa.types.is_map(field.type):
            yield from (f"{path}.key_value.key", f"{path}.key_value.value")
        elif pa.types.is_list(field.type):
            yield f"{path}.list.element"
        else:
            yield path


def _is_true(text: str | None, *, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


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


T = TypeVar("T")


def read_ahead(batches: Iterable[T], *, is_large: Callable[[T], bool]) -> Generator[T, None, None]:
    """The batches in order. After a large one the next is fetched in a thread, so that two are in memory."""
    iterator = iter(batches)
    for batch in iterator:
        if is_large(batch):
            pending = _Fetch(iterator)
            break
        yield batch
    else:
        return
    yield from _ahead(iterator, batch, pending)


def _ahead(iterator: Iterator[T], first: T, pending: _Fetch[T]) -> Generator[T, None, None]:
    try:
        yield first
        while pending.wait():
            fetched = pending
            pending = _Fetch(iterator)
            yield from fetched.batch
    finally:
        pending.join()


class _Fetch(Generic[T]):
    """Fetches one batch in a thread of its own, whose cost is negligible for a batch of thousands of rows."""

    def __init__(self, iterator: Iterator[T]) -> None:
        self.batch: tuple[T, ...] = ()
        self._error: BaseException | None = None
        self._iterator = iterator
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="deltalakedb-read-ahead")
        try:
            self._thread.start()
        except RuntimeError:  # the process is ending, and no thread can be started
            self._thread = None
            self._run()

    def wait(self) -> bool:
        """Wait for the batch; False if there is none left. Raises the thread's error."""
        self.join()
        if self._error is not None:
            raise self._error
        return bool(self.batch)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.batch = (next(self._iterator),)
        except StopIteration:
            pass
        except BaseException as error:
            self._error = error
