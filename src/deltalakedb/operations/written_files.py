"""WrittenFiles: data files that a transaction wrote and has not committed; they are deleted if it does not commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.paths import decode_path

if TYPE_CHECKING:
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

    def for_table(self, table_uuid: str) -> WrittenFiles:
        """Return a view of the same files that records new ones for this table."""
        return replace(self, table_uuid=table_uuid)

    def remember(self, storage: Storage, adds: Iterable[AddFile]) -> None:
        self._files += [_Written(self.table_uuid, storage, decode_path(add.path)) for add in adds]

    def remember_path(self, storage: Storage, path: str) -> None:
        """Record a file other than a data file, by its path below the table's root, as the storage spells it."""
        self._files.append(_Written(self.table_uuid, storage, path))

    def remember_folder(self, remove: Callable[[], None]) -> None:
        """Record a folder that holds only files of this transaction; `remove` must never fail."""
        self._folders.append((self.table_uuid, remove))

    @contextmanager
    def of_statement(self) -> Iterator[None]:
        """Delete what a statement wrote if it fails, because the transaction may go on without it."""
        num_files, num_folders = len(self._files), len(self._folders)
        try:
            yield
        except BaseException:
            files, folders = self._files[num_files:], self._folders[num_folders:]
            del self._files[num_files:], self._folders[num_folders:]
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
