"""Reads checkpoints of every kind as a stream: table actions as values, files as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol as Interface
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError, StorageError, redact
from deltalakedb.files.columns import KeyFilter, batches_of_adds, batches_of_removes
from deltalakedb.files.lines import split_lines
from deltalakedb.files.listing import LOG_FOLDER, CheckpointEntry
from deltalakedb.files.parquet import ParquetSource
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
from deltalakedb.log.protocol.commit import parse_action
from deltalakedb.log.protocol.paths import check_path
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


@contextmanager
def malformed_as(table: str, path: str) -> Iterator[None]:
    """Convert every failure to decode a checkpoint file into a MalformedLogError that names the file."""
    try:
        yield
    except StorageError:  # the storage failed, not the file
        raise
    except FileNotFoundError as error:
        raise MalformedLogError(f"table {redact(table)}: {path} is missing") from error
    except (pa.ArrowException, MalformedLogError, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise MalformedLogError(f"table {redact(table)}: {path} cannot be read: {redact(reason)}") from error
