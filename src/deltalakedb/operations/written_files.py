"""Data files that a transaction has written and not yet committed: remembered, and removed when it does not commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.log.actions import AddFile
from deltalakedb.log.paths import decode_path

if TYPE_CHECKING:
    from deltalakedb.data import DataStorage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Written:
    """One file, the storage it lies in, and the table it was written for."""

    table_uuid: str
    storage: DataStorage
    path: str


@dataclass(slots=True)
class WrittenFiles:
    """Files by the table they were written for. A file is removed only by the transaction that wrote it."""

    table_uuid: str = ""
    """The table that files are written for from now on."""
    _files: list[_Written] = field(default_factory=list)
    _folders: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    """Of whole folders: the table, and how to remove it."""

    def for_table(self, table_uuid: str) -> WrittenFiles:
        """The same files; those remembered through it are this table's."""
        return replace(self, table_uuid=table_uuid)

    def remember(self, storage: DataStorage, adds: Iterable[AddFile]) -> None:
        self._files += [_Written(self.table_uuid, storage, decode_path(add.path)) for add in adds]

    def remember_path(self, storage: DataStorage, path: str) -> None:
        """A file that is no data file, by its path below the table's root, spelled as the store spells it."""
        self._files.append(_Written(self.table_uuid, storage, path))

    def remember_folder(self, remove: Callable[[], None]) -> None:
        """A folder that holds nothing but files of this transaction; `remove` never fails."""
        self._folders.append((self.table_uuid, remove))

    @contextmanager
    def of_statement(self) -> Iterator[None]:
        """Around a statement: if it fails, the transaction may go on without it, so what it wrote is removed."""
        num_files, num_folders = len(self._files), len(self._folders)
        try:
            yield
        except BaseException:
            files, folders = self._files[num_files:], self._folders[num_folders:]
            del self._files[num_files:], self._folders[num_folders:]
            _remove(files, folders)
            raise

    def forget(self) -> None:
        """They are part of a version now, or may be."""
        self._files.clear()
        self._folders.clear()

    def remove(self, tables: Collection[str] | None = None, *, kept: Collection[tuple[str, str]] = ()) -> int:
        """Delete those of some tables, or all, as far as that can be done; how many could not be deleted.

        `kept` are locations and paths below them that a version names. What is left only takes room.
        """
        files = [one for one in self._files if tables is None or one.table_uuid in tables]
        folders = [one for one in self._folders if tables is None or one[0] in tables]
        self._files[:] = [] if tables is None else [one for one in self._files if one.table_uuid not in tables]
        self._folders[:] = [] if tables is None else [one for one in self._folders if one[0] not in tables]
        return _remove([one for one in files if (one.storage.location, one.path) not in kept], folders)


def _remove(files: Sequence[_Written], folders: Sequence[tuple[str, Callable[[], None]]]) -> int:
    left = 0
    for file in files:
        try:
            file.storage.delete(file.path)
        except (DeltaError, OSError) as error:
            left += 1
            logger.warning("a file of a transaction that did not commit is left behind: %s", redact(str(error)))
    for _, remove in folders:
        remove()
    if left:
        logger.warning("%d files are left behind; vacuum removes them", left)
    return left
