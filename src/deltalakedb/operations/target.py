"""The interface between verbs and logs: the table as one statement sees it, its new files, the commit that results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from typing import Protocol as Interface

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.log.protocol.actions import AddFile, AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.runtime.config import Config, load_config
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.storage.local import sync_together

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine
    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.storage.interface import Storage


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Written:
    """A file, its storage, and the table it was written for."""

    table_uuid: str
    storage: Storage
    path: str


@dataclass(slots=True)
class WrittenFiles:
    """Files by table. A file is deleted only by the transaction that wrote it."""

    table_uuid: str = ""
    """The table that files are recorded for."""
    _files: list[_Written] = field(default_factory=list)
    _folders: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    """Whole folders: the table, and a function that deletes the folder."""
    _unsynced: list[_Written] = field(default_factory=list)
    """Files of the present statement that may be lost if the machine stops."""

    def for_table(self, table_uuid: str) -> WrittenFiles:
        """Return a view of the same files that records new ones for this table."""
        return replace(self, table_uuid=table_uuid)

    def remember(self, storage: Storage, adds: Iterable[AddFile]) -> None:
        self._files += [_Written(self.table_uuid, storage, decode_path(add.path)) for add in adds]

    def remember_path(self, storage: Storage, path: str) -> None:
        """Record a file other than a data file, by its path below the table's root, as the storage spells it."""
        self._files.append(_Written(self.table_uuid, storage, path))

    def write_path(self, storage: Storage, path: str, data: bytes) -> None:
        """Write and record a file that nothing names yet; it is durable after `sync`."""
        self.remember_path(storage, path)
        storage.put(path, data)
        self._unsynced.append(self._files[-1])

    def sync(self) -> None:
        """Make the files of `write_path` durable, those of several storages at a time."""
        paths: dict[Storage, list[str]] = {}
        for file in self._unsynced:
            paths.setdefault(file.storage, []).append(file.path)
        self._unsynced.clear()
        sync_together(paths)

    def remember_folder(self, remove: Callable[[], None]) -> None:
        """Record a folder that holds only files of this transaction; `remove` must never fail."""
        self._folders.append((self.table_uuid, remove))

    @contextmanager
    def of_statement(self) -> Iterator[None]:
        """Delete what a statement wrote if it fails, because the transaction may go on without it."""
        num_files, num_folders, num_unsynced = len(self._files), len(self._folders), len(self._unsynced)
        try:
            yield
        except BaseException:
            files, folders = self._files[num_files:], self._folders[num_folders:]
            del self._files[num_files:], self._folders[num_folders:], self._unsynced[num_unsynced:]
            _remove(files, folders)
            raise

    def forget(self) -> None:
        """Forget all files: they belong to a version, or may do so."""
        self._files.clear()
        self._folders.clear()

    def remove(self, tables: Collection[str] | None = None, *, kept: Collection[tuple[str, str]] = ()) -> int:
        """Delete the files of some tables, or all, as far as possible; return how many could not be deleted.

        `kept` are (location, path) pairs that a version names. Files left behind only take up space.
        """
        files = [entry for entry in self._files if tables is None or entry.table_uuid in tables]
        folders = [entry for entry in self._folders if tables is None or entry[0] in tables]
        self._files[:] = [] if tables is None else [entry for entry in self._files if entry.table_uuid not in tables]
        self._folders[:] = [] if tables is None else [entry for entry in self._folders if entry[0] not in tables]
        return _remove([entry for entry in files if (entry.storage.location, entry.path) not in kept], folders)


def _remove(files: Sequence[_Written], folders: Sequence[tuple[str, Callable[[], None]]]) -> int:
    num_left = 0
    for file in files:
        try:
            file.storage.delete(file.path)
        except (DeltaError, OSError) as error:
            num_left += 1
            logger.warning("a file of a transaction that did not commit is left behind: %s", redact(str(error)))
    for _, remove in folders:
        remove()
    if num_left:
        logger.warning("%d files are left behind; vacuum removes them", num_left)
    return num_left


PlanFiles: TypeAlias = "Callable[[Predicate], pa.Table]"


class TableSnapshot(Interface):
    """What a verb needs of a log: LogSnapshot, and all files in one table."""

    @property
    def version(self) -> int: ...

    @property
    def protocol(self) -> Protocol: ...

    @property
    def metadata(self) -> Metadata: ...

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """Return the last `txn` action of an application."""
        ...

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live files in FILES_SCHEMA, or only `columns` of them."""
        ...

    def metadata_history(self) -> Sequence[Metadata] | None:
        """Return the metadata of every version up to this one; None if early commits are gone, or it has too many."""
        ...


@dataclass(frozen=True)
class Target:
    """A table as one statement sees it; the statement writes files, and returns the commit in `Done`."""

    name: str
    """The table's name in messages."""
    location: str
    options: Mapping[str, str] | None
    snapshot: TableSnapshot
    plan: PlanFiles
    """Returns the live files (FILES_SCHEMA) that may hold a row for which a predicate is true."""
    written: WrittenFiles = field(default_factory=WrittenFiles)
    """Records new files, so that they are deleted if the commit does not happen."""
    config: Config | None = None
    """The settings of the catalog; None without a catalog."""

    @cached_property
    def storage(self) -> Storage:
        from deltalakedb.storage.location import (
            open_storage,  # slow to import, and not every transaction writes files
        )

        return open_storage(self.location, self.options)

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def metadata(self) -> Metadata:
        return self.snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self.snapshot.protocol

    def read(
        self, files: pa.Table | pa.RecordBatch, columns: Sequence[str], *, positions: bool = False
    ) -> pa.RecordBatchReader:
        """Read columns of some live files (FILES_SCHEMA); with `positions`, also the file and row of each row."""
        from deltalakedb.data import read_files

        return read_files(
            files,
            storage=self.storage,
            schema=self.schema,
            partition_columns=self.metadata.partition_columns,
            configuration=self.metadata.configuration,
            columns=columns,
            positions=positions,
        )

    def history(self) -> Sequence[Metadata] | None:
        """Return the metadata of every version up to this one, or None if it is unknown."""
        return self.snapshot.metadata_history()


@dataclass(frozen=True, slots=True)
class Done:
    """The commit of a statement (None if nothing changes), and its metrics with the names of `deltalake`."""

    commit: ProposedCommit | None
    metrics: dict[str, Any] = field(default_factory=dict)
    read: ReadSet = NOTHING_READ
    """What was read to find that nothing changes; a commit has its own read set."""

    def noting(
        self, app_transactions: Sequence[AppTransaction], user_info: Mapping[str, Any], *, only_next: bool = False
    ) -> Done:
        """Return the same with the caller's `txn` actions and commitInfo fields; the statement's parameters win."""
        if self.commit is None or not (app_transactions or user_info or only_next):
            return self
        fields = {**self.commit.user_info, **user_info}
        parameters = fields.pop("operationParameters", {})
        commit = replace(
            self.commit,
            actions=(*app_transactions, *self.commit.actions),
            operation_parameters={**parameters, **self.commit.operation_parameters},
            user_info=fields,
            only_next=only_next,
        )
        return replace(self, commit=commit)


Verb: TypeAlias = Callable[[Target], Done]


_LEAST_MEMORY: Final = 64 * 1024 * 1024
"""In bytes."""


def open_engine(
    target: Target,
    *,
    memory_limit: int | None = None,
    max_temp_size: int | None = None,
    joins_as_written: bool = False,
) -> Engine:
    """Open an engine for one thread, with `data.memory_limit` and `data.temp_folder` of the catalog or environment.

    A statement may pass its own limits, in bytes; the engine does not work with less than `_LEAST_MEMORY`.
    """
    from deltalakedb.data.engine import Engine

    config = target.config or load_config()
    return Engine(
        config.data_memory_limit if memory_limit is None else f"{max(memory_limit, _LEAST_MEMORY)}B",
        config.data_temp_folder,
        max_temp_size=None if max_temp_size is None else f"{max_temp_size}B",
        joins_as_written=joins_as_written,
    )
