"""Reads a table's change data feed: from its change files, else from what commits added and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.data import read_files
from deltalakedb.data.deletion_vectors import DeletionVectors, Rows
from deltalakedb.data.filtering import check_condition, to_duckdb
from deltalakedb.data.reader import ROW
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.log.protocol.actions import AddCDCFile, AddFile, CommitInfo, DeletionVector, Metadata, RemoveFile
from deltalakedb.log.protocol.codec import deletion_vector_to_json, to_json, to_sql_text
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType, parse_schema
from deltalakedb.storage.interface import Storage

CHANGE_TYPE: Final = "_change_type"
VERSION: Final = "_commit_version"
TIMESTAMP: Final = "_commit_timestamp"
_FEED: Final = "delta.enableChangeDataFeed"
_FILES_AT_ONCE: Final = 1000
_ABOUT_CHANGES: Final = (
    StructField(CHANGE_TYPE, PrimitiveType("string")),
    StructField(VERSION, PrimitiveType("long")),
    StructField(TIMESTAMP, PrimitiveType("timestamp_ntz")),
)
_SHOWN: Final = {VERSION: pa.uint64(), TIMESTAMP: pa.timestamp("ms")}

ValuesBefore: TypeAlias = Callable[[int], Mapping[str, Mapping[str, str | None]]]
"""Returns the partition values of the files that were live before a version, by path."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A data file of the feed, or some of its rows."""

    kind: Literal["feed", "whole", "rows"]
    path: str
    size: int | None
    partition_values: Mapping[str, str | None]
    vector: DeletionVector | None = None
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    """The kind of change of a part's rows (None if the file has it itself), its version and its time."""

    kind: str | None
    version: int
    time_ms: int
    part: _Part


def check_feed(table: str, version: int, metadata: Metadata) -> None:
    """Raise if the change data feed is not enabled at a version."""
    if not is_enabled(metadata.configuration, _FEED):
        raise DeltaError(
            f"Reading a table version: {version} that does not have change data enabled: the property {_FEED}=true of "
            f"{table} starts it, from the next version on"
        )


def read_changes(
    commits: Iterable[Commit],
    *,
    table: str,
    metadata: Metadata,
    storage: Storage,
    columns: Sequence[str] | None,
    predicate: str | None,
    values_before: ValuesBefore,
) -> pa.RecordBatchReader:
    """Return the changes of these commits, in order, as a stream.

    The columns are those of `metadata`, with partition columns last, followed by the kind of change, the version and
    the time. `predicate` is SQL on any of them.
    """
    struct = parse_schema(metadata.schema_string)
    for field in _ABOUT_CHANGES:
        if struct.field(field.name) is not None:
            raise DeltaError(
                f"Schema error: Schema contains duplicate qualified field name {field.name}: the table {table} has a "
                "column of this name, which the change data feed adds; rename the column"
            )
    partitions = metadata.partition_columns
    ordered = [
        *(item for item in struct.fields if item.name not in partitions),
        *(item for item in struct.fields if item.name in partitions),
    ]
    schema = StructType((*ordered, *_ABOUT_CHANGES))
    _check_names(schema, columns, predicate)
    reader = _Reader(storage, metadata, schema, columns, predicate)
    result_schema = reader.shown
    # Collected now, so that a range without a feed is an error of this call, not of reading the stream.
    changes = list(_changes_of(commits, table, DeletionVectors(storage), values_before))
    batches = reader.batches(changes)
    return pa.RecordBatchReader.from_batches(result_schema, (_cast(batch, result_schema) for batch in batches))


def _check_names(schema: StructType, columns: Sequence[str] | None, predicate: str | None) -> None:
    used_columns = set(columns or ())
    if predicate is not None:
        used_columns |= to_duckdb(predicate)[1]
    unknown = sorted(name for name in used_columns if schema.field(name) is None)
    if unknown:
        raise no_such_column(unknown[0], schema.names)
    if predicate is not None:
        check_condition(predicate, schema)


# -- the changes of a commit


def _changes_of(
    commits: Iterable[Commit], table: str, vectors: DeletionVectors, values_before: ValuesBefore
) -> Iterator[_Change]:
    """Yield the files of each commit, and the kind of change of their rows."""
    for commit in commits:
        time_ms = _time_of(commit)
        for action in commit.actions:
            if isinstance(action, Metadata):
                check_feed(table, commit.version, action)
        feed = [action for action in commit.actions if isinstance(action, AddCDCFile)]
        if feed:
            for cdc in feed:
                part = _Part("feed", cdc.path, cdc.size, cdc.partition_values)
                yield _Change(None, commit.version, time_ms, part)
            continue
        removes = [item for item in commit.actions if isinstance(item, RemoveFile) and item.data_change]
        adds = [item for item in commit.actions if isinstance(item, AddFile) and item.data_change]
        removes = _with_values(removes, commit.version, values_before)
        for change, part in _file_changes(adds, removes, vectors):
            yield _Change(change, commit.version, time_ms, part)


def _with_values(removes: list[RemoveFile], version: int, values_before: ValuesBefore) -> list[RemoveFile]:
    """Add partition values to removes that lack them, from the files before the commit."""
    if all(item.partition_values is not None for item in removes):
        return removes
    values = values_before(version)
    return [
        item if item.partition_values is not None else replace(item, partition_values=values.get(item.path, {}))
        for item in removes
    ]


def _file_changes(
    adds: list[AddFile], removes: list[RemoveFile], vectors: DeletionVectors
) -> Iterator[tuple[str, _Part]]:
    """Yield whole files, or single rows if a commit only changed a file's deletion vector."""
    adds_by_path = {item.path: item for item in adds}
    for remove in removes:
        values = remove.partition_values or {}
        add = adds_by_path.pop(remove.path, None)
        if add is None:
            yield "delete", _Part("whole", remove.path, remove.size, values, remove.deletion_vector)
            continue
        before, after = (_deleted(item.deletion_vector, vectors) for item in (remove, add))
        for change, rows in (("delete", np.setdiff1d(after, before)), ("insert", np.setdiff1d(before, after))):
            if len(rows):
                yield change, _Part("rows", add.path, add.size, add.partition_values, rows=rows)
    for add in adds_by_path.values():
        yield "insert", _Part("whole", add.path, add.size, add.partition_values, add.deletion_vector)


def _deleted(vector: DeletionVector | None, vectors: DeletionVectors) -> Rows:
    return np.array([], np.uint64) if vector is None else vectors.rows(vector)


# -- reading


class _Reader:
    """Reads parts of the feed; kind of change, version and time are handled like partition values."""

    def __init__(
        self,
        storage: Storage,
        metadata: Metadata,
        schema: StructType,
        columns: Sequence[str] | None,
        predicate: str | None,
    ) -> None:
        self._storage = storage
        self._metadata = metadata
        self._schema = schema
        self._columns = list(schema.names) if columns is None else [_exact(schema, name) for name in columns]
        self._predicate = predicate

    @property
    def shown(self) -> pa.Schema:
        arrow = self._schema.to_arrow()
        fields = [arrow.field(name) for name in self._columns]
        return pa.schema([field.with_type(_SHOWN.get(field.name, field.type)) for field in fields])

    def batches(self, changes: Iterable[_Change]) -> Iterator[pa.RecordBatch]:
        pending: list[dict[str, Any]] = []
        kind = ""
        for change in changes:
            part = change.part
            if pending and (part.kind != kind or len(pending) >= _FILES_AT_ONCE):
                yield from self._read(pending, kind)
                pending = []
            kind = part.kind
            if part.rows is not None:
                yield from self._read_rows(_row(change), part.rows)
            else:
                pending.append(_row(change))
        if pending:
            yield from self._read(pending, kind)

    def _read(self, rows: list[dict[str, Any]], kind: str) -> Iterator[pa.RecordBatch]:
        about = [VERSION, TIMESTAMP] if kind == "feed" else [CHANGE_TYPE, VERSION, TIMESTAMP]
        yield from self._open(rows, about, positions=False)

    def _read_rows(self, row: dict[str, Any], wanted: Rows) -> Iterator[pa.RecordBatch]:
        numbers = pa.array(wanted.astype(np.int64), pa.int64())
        for batch in self._open([row], [CHANGE_TYPE, VERSION, TIMESTAMP], positions=True):
            row_mask = pc.is_in(batch.column(ROW), value_set=numbers)
            matching = batch.filter(row_mask)
            if matching.num_rows:
                yield matching.select(self._columns)

    def _open(self, rows: list[dict[str, Any]], about: list[str], *, positions: bool) -> pa.RecordBatchReader:
        return read_files(
            pa.Table.from_pylist(rows, FILES_SCHEMA),
            storage=self._storage,
            schema=self._schema,
            partition_columns=[*self._metadata.partition_columns, *about],
            configuration=self._metadata.configuration,
            columns=self._columns,
            predicate=self._predicate,
            positions=positions,
        )


def _exact(schema: StructType, name: str) -> str:
    field = schema.field(name)
    return name if field is None else field.name


def _row(change: _Change) -> dict[str, Any]:
    """Return a file as a row of FILES_SCHEMA."""
    part = change.part
    about = {CHANGE_TYPE: change.kind, VERSION: str(change.version), TIMESTAMP: _text(change.time_ms)}
    return {
        "path": to_sql_text(part.path),
        "partition_values": to_json({**part.partition_values, **about}),
        "size": part.size,
        "deletion_vector": None if part.vector is None else deletion_vector_to_json(part.vector),
    }


def _time_of(commit: Commit) -> int:
    info = next((action for action in commit.actions if isinstance(action, CommitInfo)), None)
    info_ms = None if info is None else info.in_commit_timestamp or info.timestamp
    return commit.timestamp_ms if info_ms is None else info_ms


def _text(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _cast(batch: pa.RecordBatch, shown: pa.Schema) -> pa.RecordBatch:
    if not shown.names:
        return batch  # no columns: only the number of rows matters
    arrays = [batch.column(name).cast(field.type) for name, field in zip(shown.names, shown, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=shown)
