"""Reads the manifests of a snapshot that an Iceberg client adds to a Delta table: which files are new."""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from typing import Final

from deltalakedb.exceptions import BadIcebergRequestError, MalformedLogError
from deltalakedb.iceberg.delta.append_requests import Append, refuse
from deltalakedb.iceberg.delta.table_folder import TableFolder
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.manifests import INHERITED, Entry, ManifestFile, read_manifest, read_manifest_list
from deltalakedb.iceberg.planning.schema import PartitionSpec

_DELETED: Final = 2

LiveFiles = Callable[[], Set[str]]
"""Returns the paths of the files that an append is based on."""


class AppendReader:
    """Reads what a client wrote for its appends. All of it is checked: only new files of data come back."""

    def __init__(self, folder: TableFolder, spec: PartitionSpec) -> None:
        self._folder = folder
        self._table = folder.table
        self._spec = spec

    def new_files(self, append: Append, num_before: int, live_before: LiveFiles) -> list[Entry]:
        """Return the entries of the new files of a snapshot, which must keep the `num_before` files of its parent."""
        try:
            return self._new_files(append, num_before, live_before)
        except MalformedLogError as error:
            raise BadIcebergRequestError(f"{self._table}: {error}") from error

    def _new_files(self, append: Append, num_before: int, live_before: LiveFiles) -> list[Entry]:
        data = self._folder.read(append.manifest_list, "the manifest list")
        others, added, existing = 0, dict[str, Entry](), set[str]()
        for manifest in read_manifest_list(append.manifest_list, data):
            is_own = manifest.added_snapshot_id == append.snapshot_id
            if manifest.content != "data":
                if is_own:
                    refuse(self._table, "a snapshot with delete files")
            elif is_own:
                for entry in self._entries(append, manifest):
                    self._take(entry, added, existing)
            elif manifest.live_files is None:
                raise BadIcebergRequestError(
                    f"{self._table}: a manifest list says for each manifest how many files it has"
                )
            else:
                others += manifest.live_files
        if others + len(existing) != num_before:
            refuse(
                self._table,
                f"a snapshot that keeps {others + len(existing)} files, where the one that it is based on has "
                f"{num_before},",
            )
        if existing and not existing <= live_before():
            refuse(self._table, f"a snapshot that keeps {min(existing - live_before())}, which is not in the table,")
        return list(added.values())

    def _entries(self, append: Append, manifest: ManifestFile) -> list[Entry]:
        if manifest.spec_id != self._spec.spec_id:
            refuse(self._table, f"a manifest of the partition spec {manifest.spec_id}, which is not the table's,")
        data = self._folder.read(manifest.path, "the manifest")
        if any(record.get("f0") == _DELETED for record in open_avro(manifest.path, data).records()):
            refuse(self._table, "a snapshot that removes files")
        entries = list(read_manifest(manifest, data, self._spec))
        for entry in entries:
            if entry.added_by not in (None, INHERITED, append.snapshot_id):
                refuse(self._table, f"the file {entry.file_path} as one of the snapshot {entry.added_by}")
        return entries

    def _take(self, entry: Entry, added: dict[str, Entry], existing: set[str]) -> None:
        """Sort an entry into the new files, or those that the client copied from the table's own manifests."""
        if entry.file_path in added or entry.file_path in existing:
            raise BadIcebergRequestError(f"{self._table}: the file {entry.file_path} is in the snapshot twice")
        if entry.added_by is None:
            existing.add(entry.file_path)
            return
        kind = json.loads(entry.file)["file-format"]
        if kind != "parquet":
            raise BadIcebergRequestError(
                f"{self._table}: the file {entry.file_path} is of the format {kind}, and Delta tables have Parquet "
                "files"
            )
        added[entry.file_path] = entry
