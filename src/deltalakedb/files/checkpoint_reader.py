"""Reads checkpoints of every kind as a stream: table actions as values, files as Arrow batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from typing import Protocol as Interface
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalakedb.exceptions import MalformedLogError, StorageError, redact
from deltalakedb.files.columns import (
    BATCH_ROWS,
    PARSED_COLUMNS,
    KeyFilter,
    add_batch,
    batches_of_adds,
    batches_of_removes,
    remove_batch,
)
from deltalakedb.files.log_folder import LOG_FOLDER, CheckpointEntry
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
)
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import parse_action
from deltalakedb.log.protocol.fields import SPECS
from deltalakedb.log.protocol.paths import check_path
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.storage.interface import Storage

SIDECAR_FOLDER = f"{LOG_FOLDER}/_sidecars"
_FileAction = TypeVar("_FileAction", AddFile, RemoveFile)


class FileSource(Interface):
    """One file of a checkpoint."""

    path: str

    def table_actions(self) -> Iterator[Action]:
        """All actions except file actions."""
        ...

    def add_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]: ...

    def remove_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """A checkpoint whose table actions are read; its files are read on demand."""

    entry: CheckpointEntry
    protocol: Protocol
    metadata: Metadata
    app_transactions: dict[str, AppTransaction]
    domain_metadata: dict[str, DomainMetadata]
    _table: str = field(repr=False)
    _sources: tuple[FileSource, ...] = field(repr=False)

    def file_batches(self, later: KeyFilter | None = None) -> Iterator[pa.RecordBatch]:
        """The live files in batches of FILES_SCHEMA, without those whose keys are in `later`."""
        for source in self._sources:
            with malformed_as(self._table, source.path):
                yield from source.add_batches(later)

    def tombstone_batches(self, later: KeyFilter | None = None) -> Iterator[pa.RecordBatch]:
        """The removed files in batches of TOMBSTONES_SCHEMA, without those whose keys are in `later`."""
        for source in self._sources:
            with malformed_as(self._table, source.path):
                yield from source.remove_batches(later)


def read_checkpoint(storage: Storage, entry: CheckpointEntry, *, table: str) -> CheckpointContent:
    """Open a checkpoint; MalformedLogError names an unusable file."""
    mains = [_source(storage, f"{LOG_FOLDER}/{name}", keep=len(entry.names) == 1) for name in entry.names]
    actions: list[Action] = []
    for source in mains:
        with malformed_as(table, source.path):
            actions.extend(source.table_actions())
    sidecars = _sidecars(storage, [action for action in actions if isinstance(action, Sidecar)], entry, table)
    protocol = next((action for action in actions if isinstance(action, Protocol)), None)
    metadata = next((action for action in actions if isinstance(action, Metadata)), None)
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise MalformedLogError(f"table {redact(table)}: checkpoint {entry.names[0]} holds no {missing} action")
    return CheckpointContent(
        entry,
        protocol,
        metadata,
        {action.app_id: action for action in actions if isinstance(action, AppTransaction)},
        {action.domain: action for action in actions if isinstance(action, DomainMetadata) and not action.removed},
        table,
        (*mains, *sidecars),
    )


def sidecar_names(storage: Storage, entry: CheckpointEntry, *, table: str) -> set[str]:
    """The files in `_sidecars` that a checkpoint needs; MalformedLogError if it cannot be read."""
    names: set[str] = set()
    for name in entry.names:
        source = _source(storage, f"{LOG_FOLDER}/{name}", keep=False)
        with malformed_as(table, source.path):
            names.update(_sidecar_name(action) for action in source.table_actions() if isinstance(action, Sidecar))
    return names


def _sidecar_name(sidecar: Sidecar) -> str:
    # Sidecars are always in `_sidecars`, even if a writer gives the whole URI (PROTOCOL.md, "Sidecar Files").
    return unquote(sidecar.path).rpartition("/")[2]


def _source(storage: Storage, path: str, *, keep: bool) -> FileSource:
    return JsonSource(storage, path) if path.endswith(".json") else ParquetSource(storage, path, keep=keep)


def _sidecars(storage: Storage, sidecars: list[Sidecar], entry: CheckpointEntry, table: str) -> list[FileSource]:
    if not sidecars:
        return []
    existing = set(storage.names(SIDECAR_FOLDER))
    sources: list[FileSource] = []
    for sidecar in sidecars:
        name = _sidecar_name(sidecar)
        if name not in existing:
            raise MalformedLogError(
                f"table {redact(table)}: checkpoint {entry.names[0]} needs the sidecar {name}, which is missing"
            )
        sources.append(ParquetSource(storage, f"{SIDECAR_FOLDER}/{name}", keep=False))
    return sources


class JsonSource:
    """A V2 checkpoint in JSON: one action per line."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self._storage = storage

    def table_actions(self) -> Iterator[Action]:
        return (action for action in self._actions() if not isinstance(action, AddFile | RemoveFile))

    def add_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]:
        adds = (action for action in self._actions() if isinstance(action, AddFile))
        return batches_of_adds(_not_later(adds, later))

    def remove_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]:
        removes = (action for action in self._actions() if isinstance(action, RemoveFile))
        return batches_of_removes(_not_later(removes, later))

    def _actions(self) -> Iterator[Action]:
        for number, line in enumerate(split_lines(self._storage.stream(self.path).chunks), start=1):
            if line and not line.isspace():
                action = parse_action(line, where=f"line {number}")
                if isinstance(action, AddFile | RemoveFile):
                    check_path(action.path, where=f"line {number}")
                yield action


def _not_later(actions: Iterable[_FileAction], later: KeyFilter | None) -> Iterable[_FileAction]:
    return actions if later is None else (action for action in actions if action.key not in later)


LONGEST_REASON = 500
# What columns of other types than the protocol's lead to: their values cannot be taken apart, or are no JSON.
_UNEXPECTED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)


@contextmanager
def malformed_as(table: str, path: str) -> Iterator[None]:
    """Convert every failure to decode a checkpoint file into a MalformedLogError that names the file."""
    try:
        yield
    except StorageError:  # the storage failed, not the file
        raise
    except FileNotFoundError as error:
        raise MalformedLogError(f"table {redact(table)}: {path} is missing") from error
    except (pa.ArrowException, MalformedLogError, OSError, *_UNEXPECTED) as error:
        reason = str(error).strip().partition("\n")[0][:LONGEST_REASON] or type(error).__name__
        raise MalformedLogError(f"table {redact(table)}: {path} cannot be read: {redact(reason)}") from error


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
        self._file: pq.ParquetFile | None = None

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
                yield from _unless_empty(add_batch(adds, stats, later))

    def remove_batches(self, later: KeyFilter | None) -> Iterator[pa.RecordBatch]:
        layout = self._open()
        columns = [f"remove.{name}" for name in layout.children("remove") if name not in PARSED_COLUMNS]
        for group in range(layout.num_row_groups):
            if layout.may_hold(group, "remove"):
                for batch in layout.batches(group, columns):
                    yield from _unless_empty(remove_batch(batch.column("remove"), later))

    def _open(self) -> _Layout:
        if self._file is not None:
            return _Layout(self._file)
        opened = pq.ParquetFile(_open_whole(self._storage, self.path), **_READ_OPTIONS)
        if self._keep:
            self._file = opened
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
        kind = self._with_zone(column.type, f"add.{name}")
        return column if kind == column.type else column.cast(kind)

    def _with_zone(self, kind: pa.DataType, path: str) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(self._with_zone(field.type, f"{path}.{field.name}")) for field in kind])
        index = self._leaves.get(path)
        if index is not None and self._file.metadata.schema.column(index).physical_type == "INT96":
            return pa.timestamp("us", "UTC")
        return kind

    def batches(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch]
        batches = self._file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(columns))
        return batches


def _unless_empty(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows:
        yield batch


def _actions(kind: str, column: pa.StructArray) -> Iterator[Action]:
    """The rows of one column that hold an action, as values; they are few, whatever the size of the checkpoint."""
    present = pc.struct_field(column, _REQUIRED_FIELD[kind]).is_valid()
    for scalar in column.filter(present):
        value = _to_python(scalar)
        for features, (version, least) in _FEATURES.items() if kind == "protocol" else ():
            if not value.get(features) and value.get(version, 0) < least:
                value.pop(features, None)
        yield parse_action(to_json({kind: value}), where=kind)


def _to_python(scalar: pa.Scalar) -> Any:
    """A Python value: maps are dicts, structs have no null members (Parquet cannot tell null from absent)."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        members = ((name, _to_python(member)) for name, member in scalar.items())
        return {name: member for name, member in members if member is not None}
    if isinstance(scalar, pa.MapScalar):
        return dict(scalar.as_py())
    return scalar.as_py()


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their line feed. Pieces of a long line are joined once, so a 100 MB line costs linear time."""
    pieces: list[bytes] = []
    for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if pieces:
                pieces.append(line)
                line = b"".join(pieces)
                pieces.clear()
            yield line
        if rest:
            pieces.append(rest)
    if pieces:
        yield b"".join(pieces)
