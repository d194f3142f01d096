"""Data files that a transaction has written and not yet committed: remembered, and removed when it does not commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.log.actions import AddFile
from deltalakedb.log.paths import decode_path

if TYPE_CHECKING:
    from deltalakedb.data import DataStorage

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WrittenFiles:
    """Files by the storage they lie in."""

    _files: list[tuple[DataStorage, str]] = field(default_factory=list)
    _folders: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    """Of whole folders: the table's location, and how to remove it."""

    def remember(self, storage: DataStorage, adds: Iterable[AddFile]) -> None:
        self._files += [(storage, decode_path(add.path)) for add in adds]

    def remember_path(self, storage: DataStorage, path: str) -> None:
        """A file that is no data file, by its path below the table's root, spelled as the store spells it."""
        self._files.append((storage, path))

    def remember_folder(self, location: str, remove: Callable[[], None]) -> None:
        """A folder that holds nothing but files of this transaction; `remove` never fails."""
        self._folders.append((location, remove))

    def forget(self) -> None:
        """They are part of a version now, or may be."""
        self._files.clear()
        self._folders.clear()

    def remove(self, locations: Collection[str] | None = None) -> None:
        """Delete those of some tables, or all, as far as that can be done. What is left only takes room."""
        left = 0
        unwanted = [one for one in self._files if locations is None or one[0].location in locations]
        for storage, path in unwanted:
            try:
                storage.delete(path)
            except (DeltaError, OSError) as error:
                left += 1
                logger.warning("a file of a transaction that did not commit is left behind: %s", redact(str(error)))
        for location, remove in self._folders:
            if locations is None or location in locations:
                remove()
        if left:
            logger.warning("%d files are left behind; vacuum removes them", left)
        self._files = [] if locations is None else [one for one in self._files if one[0].location not in locations]
        self._folders = [] if locations is None else [one for one in self._folders if one[0] not in locations]
