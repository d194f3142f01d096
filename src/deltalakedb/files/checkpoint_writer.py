"""Writes classic checkpoints: a table's state in one Parquet file, streamed in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.files.checkpoint_columns import (
    STATS_FIELD,
    file_columns,
    nulls,
    plain_json,
    struct_of,
    struct_type,
    table_action,
)
from deltalakedb.files.parsed_stats import ParsedPartitionValues, ParsedStats
from deltalakedb.files.read_ahead import read_ahead
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.protocol.fields import ADD, DOMAIN_METADATA, METADATA, PROTOCOL, REMOVE, TXN, Spec
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
