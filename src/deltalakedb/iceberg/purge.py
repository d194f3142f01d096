"""Deletes the files of a purged Iceberg table or view: those that its last metadata reaches, and no others.

Data files are deleted first and the metadata file last. A purge that was interrupted reads the metadata in SQL and the
manifests that are left, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from deltalakedb.exceptions import MissingExtraError, redact
from deltalakedb.files.log_folder import LOG_FOLDER
from deltalakedb.iceberg.locations import open_file
from deltalakedb.iceberg.metadata_files import is_own_or_free
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import open_storage
from deltalakedb.store import registry
from deltalakedb.store.iceberg import read_iceberg_version

if TYPE_CHECKING:
    from deltalakedb.runtime.config import Config
    from deltalakedb.store.connection import Store
    from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 1_000

_GC = "gc.enabled"
_OTHER_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


class IcebergPurge:
    """The purge of one table or view that was dropped. `limits` are the settings that say which files may be named."""

    def __init__(self, store: Store, table: TableRow, options: Mapping[str, str] | None, limits: Config | None) -> None:
        self._store = store
        self._table = table
        self._options = options
        self._limits = limits
        with store.read() as conn:
            head = registry.read_head(conn, table.table_id)
            assert head is not None, "a dropped table keeps its head until its rows are collected"
            version = read_iceberg_version(conn, table.table_id, head.current_version)
            rows = conn.all("select_iceberg_files", table_id=table.table_id)
        self._metadata = version.metadata
        self._current_file = version.metadata_location
        self._own_files = [row["metadata_location"] for row in rows]

    @property
    def is_protected(self) -> bool:
        """Whether the table's properties keep all files, because other tables may have them too."""
        return str(self._metadata.get("properties", {}).get(_GC, "true")).lower() == "false"

    @property
    def has_other_places(self) -> bool:
        """Whether clients may have written files outside of the table's location."""
        return any(name in self._metadata.get("properties", {}) for name in _OTHER_PLACES)

    def delete_reachable(self) -> None:
        """Delete the files that the metadata reaches; missing ones are no error."""
        try:
            from deltalakedb.iceberg.reachable import find_files, read_data_files
        except ModuleNotFoundError:
            raise MissingExtraError(f"the purge of the Iceberg table {self._table.full_name}", "iceberg") from None
        files = find_files(self._metadata, self._options)
        self._delete(read_data_files(files.manifests, self._options))
        reached("drop.data_deleted")
        self._delete(files.manifests)
        self._delete(files.manifest_lists)
        self._delete(files.statistics)
        reached("purge.manifests_deleted")
        storage = open_storage(self._table.location, self._options)
        storage.delete_folder(LOG_FOLDER)  # of its mirror; that of another table would have stopped the purge
        self._delete(self._metadata_files())
        storage.delete_empty_folders()

    def _metadata_files(self) -> list[str]:
        """Return the metadata files of all versions, the current one last."""
        logged = [entry["metadata-file"] for entry in self._metadata.get("metadata-log", ())]
        older = dict.fromkeys([*logged, *self._own_files])
        older.pop(self._current_file, None)
        return [*older, self._current_file]

    def _delete(self, paths: Iterable[str]) -> None:
        folders: dict[str, list[str]] = {}
        num_files = 0
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
            num_files += 1
            if num_files == FILES_AT_ONCE:
                self._delete_in(folders)
                folders, num_files = {}, 0
        self._delete_in(folders)

    def _delete_in(self, folders: Mapping[str, list[str]]) -> None:
        for folder, paths in folders.items():
            if is_own_or_free(folder, self._table, self._store, self._options, self._limits):
                storage, _ = open_file(paths[0], self._options)
                storage.delete(*(path.rpartition("/")[2] for path in paths))
            else:
                logger.warning(
                    "table %s is purged; %d files in %s are left alone: they may be those of another table",
                    self._table.full_name,
                    len(paths),
                    redact(folder),
                )
