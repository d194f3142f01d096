"""Reads one Parquet file of a checkpoint: only the columns and row groups that are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalakedb.exceptions import MalformedLogError, StorageError
from deltalakedb.files.columns import BATCH_ROWS, PARSED_COLUMNS, KeyFilter, add_batch, remove_batch
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import parse_action
from deltalakedb.log.protocol.fields import SPECS
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.storage.interface import Storage

# Objects up to this size are kept in memory, larger ones are spooled to disk.
SMALL_BYTES = 16 * 1024 * 1024
# A required field of each action: if it is null, the row holds another action.
_REQUIRED_FIELD = {spec.name: spec.fields[0].name for spec in SPECS.values()}
_TABLE_ACTIONS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
# Writers may fill a list column with an empty list where the protocol version has no features.
_FEATURES = {"readerFeatures": ("minReaderVersion", 3), "writerFeatures": ("minWriterVersion", 7)}
# Read column chunks through a small buffer: a checkpoint is often one row group, which would be in memory as a whole
# (measured on a million files: 180 MB instead of 540, no slower). INT96 as nanoseconds overflows after the year 2262.
_READ_OPTIONS: dict[str, Any] = {
    "pre_buffer": False,
    "buffer_size": 1024 * 1024,
    "coerce_int96_timestamp_unit": "us",
}


class ParquetSource:
    """One Parquet file; with `keep` it stays open between reads, so that an object is fetched once."""

    def __init__(self, storage: Storage, path: str, *, keep: bool) -> None:
        self.path = path
        self._storage = storage
        self._keep = keep
        self._kept: pq.ParquetFile | None = None

    def table_actions(self) -> Iterator[Action]:
        layout = self._open()
        for group in range(layout.num_row_groups):
            kinds = [kind for kind in _TABLE_ACTIONS if layout.may_hold(group, kind)]
            if not kinds:
                continue
            for batch in layout.batches(group, kinds):
                for kind in kinds:
                    yield from _actions(kind, batch.column(kind))

    def add_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]:
        layout = self._open()
        columns = [f"add.{name}" for name in layout.children("add") if name not in PARSED_COLUMNS]
        for group in range(layout.num_row_groups):
            if not layout.may_hold(group, "add"):
                continue
            parsed = layout.lacks_stats(group)
            for batch in layout.batches(group, [*columns, "add.stats_parsed"] if parsed else columns):
                adds = batch.column("add")
                stats = layout.with_instants(adds, "stats_parsed") if parsed else None
                yield from _some(add_batch(adds, stats, later))

    def remove_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]:
        layout = self._open()
        columns = [f"remove.{name}" for name in layout.children("remove") if name not in PARSED_COLUMNS]
        for group in range(layout.num_row_groups):
            if layout.may_hold(group, "remove"):
                for batch in layout.batches(group, columns):
                    yield from _some(remove_batch(batch.column("remove"), later))

    def _open(self) -> _Layout:
        if self._kept is not None:
            return _Layout(self._kept)
        opened = pq.ParquetFile(_open_whole(self._storage, self.path), **_READ_OPTIONS)
        if self._keep:
            self._kept = opened
        return _Layout(opened)


def _open_whole(storage: Storage, path: str) -> pa.NativeFile:
    """A seekable file, which need not fit in memory."""
    if not storage.is_remote:
        try:
            return storage.open(path)
        except StorageError as error:  # such a checkpoint is skipped, and an older one is read
            raise MalformedLogError(str(error)) from error
    stream = storage.stream(path)
    if stream.size <= SMALL_BYTES:
        return pa.BufferReader(b"".join(stream.chunks))
    # One request and a temporary file: memory is bounded, and a read never mixes two generations of an object.
    spool = tempfile.TemporaryFile(prefix="deltalakedb-", buffering=0)  # noqa: SIM115 the reader owns it
    for chunk in stream.chunks:
        spool.write(chunk)
    spool.seek(0)
    return pa.PythonFile(spool, mode="r")


class _Layout:
    """Where a Parquet file's actions are, according to its footer."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self.num_row_groups: int = file.metadata.num_row_groups

    @cached_property
    def _leaves(self) -> dict[str, int]:
        metadata = self._file.metadata
        return {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}

    def children(self, kind: str) -> list[str]:
        schema = self._file.schema_arrow
        index = schema.get_field_index(kind)
        return [child.name for child in schema.field(index).type] if index >= 0 else []

    def nulls(self, group: int, leaf: str) -> int | None:
        """How many rows of the row group are null in this column; None if the footer does not say."""
        metadata = self._file.metadata.row_group(group)
        if leaf not in self._leaves:
            return int(metadata.num_rows)
        statistics = metadata.column(self._leaves[leaf]).statistics
        return int(statistics.null_count) if statistics is not None and statistics.has_null_count else None

    def may_hold(self, group: int, kind: str) -> bool:
        rows: int = self._file.metadata.row_group(group).num_rows
        return self.nulls(group, f"{kind}.{_REQUIRED_FIELD[kind]}") != rows

    def lacks_stats(self, group: int) -> bool:
        """Whether some add may have its statistics only in parsed form."""
        if "stats_parsed" not in self.children("add"):
            return False
        texts, adds = self.nulls(group, "add.stats"), self.nulls(group, "add.path")
        return texts is None or texts != adds

    def with_instants(self, adds: pa.StructArray, name: str) -> pa.StructArray:
        """A member of `add` with its INT96 leaves as instants: Spark writes timestamps as INT96, without a zone."""
        column = pc.struct_field(adds, name)
        kind = self._zoned(column.type, f"add.{name}")
        return column if kind == column.type else column.cast(kind)

    def _zoned(self, kind: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(self._zoned(field.type, f"{path}.{field.name}")) for field in kind])
        index = self._leaves.get(path)
        if index is not None and self._file.metadata.schema.column(index).physical_type == "INT96":
            return pa.timestamp("us", "UTC")
        return kind

    def batches(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch]
        batches = self._file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(columns))
        return batches


def _some(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows:
        yield batch


def _actions(kind: str, column: pa.StructArray) -> Iterator[Action]:
    """The rows of one column that hold an action, as values; they are few, whatever the size of the checkpoint."""
    present = pc.struct_field(column, _REQUIRED_FIELD[kind]).is_valid()
    for scalar in column.filter(present):
        value = _plain(scalar)
        for features, (version, least) in _FEATURES.items() if kind == "protocol" else ():
            if not value.get(features) and value.get(version, 0) < least:
                value.pop(features, None)
        yield parse_action(to_json({kind: value}), where=kind)


def _plain(scalar: pa.Scalar) -> Any:
    """A Python value: maps are dicts, structs have no null members (Parquet cannot tell null from absent)."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        members = ((name, _plain(member)) for name, member in scalar.items())
        return {name: member for name, member in members if member is not None}
    if isinstance(scalar, pa.MapScalar):
        return dict(scalar.as_py())
    return scalar.as_py()
