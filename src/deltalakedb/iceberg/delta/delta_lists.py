"""DeltaLists: writes what Iceberg clients that plan by themselves read: manifests, their lists, and metadata files.

The lists of versions are made in order, each from the one before, when a client first asks for the table after a
commit. Of two processes that do this at once, the first to commit its rows wins; the other deletes its files.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import MalformedLogError, MissingFileError, StorageError, StoreBusyError
from deltalakedb.iceberg.delta.delta_files import COLUMNS, DeltaFile, FileShape
from deltalakedb.iceberg.delta.delta_metadata import in_force
from deltalakedb.iceberg.delta.delta_snapshots import FOLDER, id_of_version
from deltalakedb.iceberg.delta.delta_tables import FOLLOWER, DeltaState, OptionsOf
from deltalakedb.iceberg.delta.field_ids import stored_form
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.iceberg.delta.list_building import ListBuilder, ListedVersion, VersionEntries
from deltalakedb.iceberg.delta.manifest_entries import EntryEncoder
from deltalakedb.iceberg.delta.vectors import VectorFiles
from deltalakedb.iceberg.metadata.normal_form import wire_form
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.storage.location import open_storage
from deltalakedb.store.connection import Connection, DuplicateRowError, LostRaceError, Store, select_columns
from deltalakedb.store.delta_manifests import (
    NewestList,
    is_history_unchanged,
    read_lists,
    read_newest_list,
    read_newest_listed_version,
    write_lists,
)
from deltalakedb.store.iceberg_delta import SnapshotRow, read_field_ids

logger = logging.getLogger(__name__)

BATCH_VERSIONS: Final = 500
BATCH_FILES: Final = 20_000
"""How many versions, and files that they added, are written and committed at once."""

PAGE_FILES: Final = 20_000
VECTORS_AT_ONCE: Final = 2_000
ATTEMPTS: Final = 1_000
_LOST_FILES = (MissingFileError, MalformedLogError)


class StaleStateError(StoreBusyError):
    """The table's history or field ids changed after the state was loaded: load it again."""


class DeltaLists:
    """Writes the lists and metadata files of a catalog's Delta tables."""

    def __init__(self, store: Store, options_of: OptionsOf) -> None:
        """`options_of` returns the storage options of a table."""
        self._store = store
        self._options_of = options_of
        self._locks: dict[int, threading.Lock] = {}
        self._guard = threading.Lock()
        self._metadata_files: dict[int, str] = {}
        """The metadata file of each table that was written last."""

    def publish(self, state: DeltaState) -> DeltaState:
        """Write what is missing of the files that the table's metadata names; return the state with their names.

        Raises StaleStateError if the table has changed otherwise than by new versions.
        """
        table = state.opened.table
        try:
            lists = self._complete(state)
            published = replace(state, metadata=_with_lists(state.metadata, lists))
            return replace(published, metadata_location=self._write_metadata(published))
        except StorageError as error:
            if table.mode != FOLLOWER:
                raise
            # It may be in a place where this process can only read. Clients that let the catalog plan need no files.
            logger.warning("cannot write manifests of %s for Iceberg clients: %s", table.full_name, error)
            return state

    def _write_metadata(self, state: DeltaState) -> str:
        data = orjson.dumps(wire_form(state.metadata))
        version, digest = state.opened.head.current_version, hashlib.sha256(data).hexdigest()[:32]
        name = f"{FOLDER}/{version:05d}-{digest}.metadata.json"
        table = state.opened.table
        location = f"{state.location}/{name}"
        if self._metadata_files.get(table.table_id) != location:
            storage = open_storage(table.location, self._options_of(table))
            storage.put_if_absent(name, data, decides=False)
            self._metadata_files[table.table_id] = location
        return location

    def _complete(self, state: DeltaState) -> Mapping[int, str | None]:
        """The lists of all kept versions by version, after writing those that are missing."""
        with self._store.read(single=True) as conn:
            lists: Mapping[int, str | None] = read_lists(conn, state.opened.table.table_id)
        if not _missing(state, lists):
            return lists
        with self._lock_of(state.opened.table.table_id):
            for _ in range(ATTEMPTS):
                lists, newest = self._read(state)
                missing = _missing(state, lists)
                if not missing:
                    return lists
                _Batch(self._store, state, self._options_of(state.opened.table), newest, missing).write()
        raise StaleStateError(f"the table {state.opened.table.full_name} changes faster than it can be described")

    def _read(self, state: DeltaState) -> tuple[Mapping[int, str | None], NewestList]:
        with self._store.read() as conn:
            table_id = state.opened.table.table_id
            return read_lists(conn, table_id), read_newest_list(conn, table_id)

    def _lock_of(self, table_id: int) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(table_id, threading.Lock())


def _missing(state: DeltaState, lists: Mapping[int, str | None]) -> list[SnapshotRow]:
    last = max(lists, default=-1)
    return [row for row in state.history.snapshots if row.version > last]


def _with_lists(metadata: Mapping[str, Any], lists: Mapping[int, str | None]) -> dict[str, Any]:
    """The metadata with the snapshots that have a list."""
    snapshots: list[dict[str, Any]] = []
    for item in metadata["snapshots"]:
        path = lists.get(int(item["summary"]["delta.version"]))
        if path is None:
            continue
        snapshot = {**item, "manifest-list": path}
        snapshot.pop("parent-snapshot-id", None)
        if snapshots:
            snapshot["parent-snapshot-id"] = snapshots[-1]["snapshot-id"]
        snapshots.append(snapshot)
    ids = {item["snapshot-id"] for item in snapshots}
    return {
        **metadata,
        "snapshots": snapshots,
        "snapshot-log": [item for item in metadata["snapshot-log"] if item["snapshot-id"] in ids],
        "refs": {name: ref for name, ref in metadata["refs"].items() if ref["snapshot-id"] in ids},
    }


class _SnapshotIds(dict[int, int]):
    """The snapshot ids of versions; those of versions that are not kept are made of their numbers."""

    def __init__(self, state: DeltaState) -> None:
        pairs = zip(state.history.snapshots, state.metadata["snapshots"], strict=True)
        super().__init__({row.version: item["snapshot-id"] for row, item in pairs})
        self._table_uuid = state.opened.table.table_uuid

    def __missing__(self, version: int) -> int:
        return self.setdefault(version, id_of_version(self._table_uuid, version))


class _Batch:
    """The lists of some versions of a table, written together."""

    def __init__(
        self,
        store: Store,
        state: DeltaState,
        options: Mapping[str, str] | None,
        newest: NewestList,
        missing: Sequence[SnapshotRow],
    ) -> None:
        self._store = store
        self._state = state
        self._table = state.opened.table
        self._options = options
        self._newest = newest
        self._rows = _first_batch(missing)
        self._format_version = int(state.metadata["format-version"])
        self._has_row_ids = any("first-row-id" in item for item in state.metadata["snapshots"])
        self._snapshots = {int(item["summary"]["delta.version"]): item for item in state.metadata["snapshots"]}
        self._schemas = {item["schema-id"]: item for item in state.metadata["schemas"]}
        self._metadata = {row.version: metadata for row, (_, metadata) in in_force(state.history)}
        # By the identity of the metadata, and of the shape: both live as long as this batch.
        self._shapes: dict[int, FileShape] = {}
        self._encoders: dict[int, EntryEncoder] = {}
        self._snapshot_ids = _SnapshotIds(state)
        self._vectors = VectorFiles(
            self._store, self._table.table_id, self._table.location, state.location, self._options
        )
        self._files = GeneratedFiles(self._table.location, self._options)
        self._current = -1
        """The version that the list to go on from is of."""

    def write(self) -> None:
        """Write the lists, unless another process does."""
        has_base = self._newest.version is not None and self._newest.version >= self._state.opened.head.base_version
        before = self._newest.version if has_base else None
        builder = ListBuilder(
            self._files,
            self._newest.manifests if has_base else (),
            next_id=self._newest.last_manifest_id + 1,
            format_version=self._format_version,
            read=self._read_range,
        )
        try:
            lists = self._build(builder, before)
            self._files.sync()
        except BaseException:
            self._files.discard()
            raise
        if not has_base:
            builder.closed |= {row.manifest_id: min(lists) for row in self._newest.manifests}
        try:
            with self._store.write() as conn:
                self._check_unchanged(conn, min(lists) if before is None else before)
                if read_newest_listed_version(conn, self._table.table_id) != self._newest.version:
                    raise LostRaceError("another process has written lists, or forgotten them")
                write_lists(conn, self._table.table_id, lists, list(builder.manifests.values()), builder.closed)
        except (DuplicateRowError, LostRaceError):
            self._files.discard()
        except StaleStateError:
            self._files.discard()
            raise

    def _check_unchanged(self, conn: Connection, base: int) -> None:
        last = self._rows[-1]
        is_same = stored_form(self._state.ids).items() <= read_field_ids(conn, self._table.table_id).items()
        times = {last.version: last.committed_at_ms}
        if not is_same or not is_history_unchanged(conn, self._table.table_id, base=base, commit_times=times):
            raise StaleStateError(f"the history of {self._table.full_name} changed while it was read")

    # -- versions

    def _build(self, builder: ListBuilder, before: int | None) -> dict[int, str | None]:
        """Write the list of each version; None for an older version that has lost files."""
        lists: dict[int, str | None] = {}
        rows = list(self._rows)
        while before is None and rows:
            row = rows.pop(0)
            lists[row.version] = self._write_list(row, partial(self._start, builder, row.version))
            before = row.version if lists[row.version] is not None else None
        if before is None or not rows:
            return lists
        self._current = before
        added, removed = self._added(before, rows), self._removed(before, rows)
        self._copy_vectors(added)
        waiting: list[pa.Table] = []
        gone: list[int] = []
        for row in rows:
            waiting += added.get(row.version, ())
            gone += removed.get(row.version, ())
            path = self._write_list(row, partial(self._follow, builder, row.version, waiting, gone))
            lists[row.version] = path
            if path is not None:
                self._current = row.version
                waiting, gone = [], []
        return lists

    def _write_list(self, row: SnapshotRow, write: Callable[[], str]) -> str | None:
        try:
            return write()
        except _LOST_FILES as error:
            if row.version == self._state.opened.head.current_version:
                raise
            logger.warning(
                "Iceberg clients do not see version %d of %s, which has lost files: %s",
                row.version,
                self._table.full_name,
                error,
            )
            return None

    def _start(self, builder: ListBuilder, version: int) -> str:
        return builder.start_with(self._listed(version), self._pages(version))

    def _follow(self, builder: ListBuilder, version: int, added: Sequence[pa.Table], removed: Sequence[int]) -> str:
        listed = self._listed(version)
        entries = self._encode(listed.shape, added, removed)
        anew = not listed.shape.describes_like(self._shape(self._current))
        return builder.follow(listed, entries, removed, anew=anew)

    def _listed(self, version: int) -> ListedVersion:
        snapshot = self._snapshots[version]
        return ListedVersion(version, snapshot, self._shape(version), self._schemas[snapshot["schema-id"]])

    def _shape(self, version: int) -> FileShape:
        """How the files of a version are described; one shape for all versions with the same metadata."""
        if version not in self._metadata:
            with self._store.read(single=True) as conn:
                row = conn.one("select_metadata", table_id=self._table.table_id, version=version)
            assert row is not None, "a kept version has metadata"
            self._metadata[version] = metadata_from_row(row)
        metadata = self._metadata[version]
        if id(metadata) not in self._shapes:
            shape = FileShape(self._table.location, metadata, self._state.ids, options=self._options)
            self._shapes[id(metadata)] = shape
        return self._shapes[id(metadata)]

    # -- files

    def _added(self, before: int, rows: Sequence[SnapshotRow]) -> dict[int, list[pa.Table]]:
        """The rows of new files, under the first of the versions that has them."""
        with self._store.read(single=True) as conn:
            text = select_columns(COLUMNS, "select_files_added_between")
            table = conn.sql_arrow(
                text, table_id=self._table.table_id, after_version=before, version=rows[-1].version
            ).sort_by("file_id")
        versions = [row.version for row in rows]
        added: dict[int, list[pa.Table]] = {}
        start = 0
        for version, group in groupby(table.column("version").to_pylist()):
            length = sum(1 for _ in group)
            place = versions[bisect_left(versions, version)]
            added.setdefault(place, []).append(table.slice(start, length))
            start += length
        return added

    def _removed(self, before: int, rows: Sequence[SnapshotRow]) -> dict[int, list[int]]:
        """The ids of removed files, under the first of the versions that is without them."""
        ids = {"table_id": self._table.table_id, "after_version": before, "version": rows[-1].version}
        with self._store.read(single=True) as conn:
            table = conn.arrow("select_removals_between", **ids)
        versions = [row.version for row in rows]
        removed: dict[int, list[int]] = {}
        pairs = zip(table.column("file_id").to_pylist(), table.column("removed_version").to_pylist(), strict=True)
        for file_id, version in pairs:
            removed.setdefault(versions[bisect_left(versions, version)], []).append(file_id)
        return removed

    def _pages(self, version: int) -> Iterator[VersionEntries]:
        """All files of a version, in the order of their ids."""
        with self._store.read(single=True) as conn:
            ids = conn.arrow("select_file_ids_at", table_id=self._table.table_id, version=version)
        numbers = sorted(ids.column("file_id").to_pylist())
        self._current = version
        for start in range(0, len(numbers), PAGE_FILES):
            page = numbers[start : start + PAGE_FILES]
            yield self._read_range(self._shape(version), page[0], page[-1])

    def _read_range(self, shape: FileShape, first_id: int, last_id: int) -> VersionEntries:
        """The files with ids in a range that are in the list to go on from."""
        text = select_columns(COLUMNS, "select_files_of_version_between")
        with self._store.read(single=True) as conn:
            rows = conn.sql_arrow(
                text,
                table_id=self._table.table_id,
                version=self._current,
                first_file_id=first_id,
                last_file_id=last_id,
            )
        return self._encode(shape, [rows.sort_by("file_id")], ())

    def _encode(self, shape: FileShape, tables: Sequence[pa.Table], removed: Sequence[int]) -> VersionEntries:
        if removed:  # first: they may be lost
            gone = pa.array(removed, pa.int64())
            tables = [table.filter(pc.invert(pc.is_in(table.column("file_id"), gone))) for table in tables]
        files = [file for table in tables for file in shape.files(table)]
        with_vectors = [file for file in files if file.vector is not None]
        copies = self._vectors.copies(with_vectors) if with_vectors else {}
        if id(shape) not in self._encoders:
            self._encoders[id(shape)] = EntryEncoder(
                shape, self._format_version, self._snapshot_ids, has_row_ids=self._has_row_ids
            )
        encoder = self._encoders[id(shape)]
        return VersionEntries(
            [encoder.data_entry(file) for file in files],
            [encoder.vector_entry(file, copies[file.vector_key]) for file in with_vectors],
        )

    def _copy_vectors(self, added: Mapping[int, Sequence[pa.Table]]) -> None:
        """Copy the vectors of all versions side by side, rather than version by version."""
        shape = self._shape(self._rows[-1].version)
        files: list[DeltaFile] = []
        for tables in added.values():
            for table in tables:
                rows = table.filter(pc.is_valid(table.column("deletion_vector")))
                files += shape.files(rows) if rows.num_rows else ()
        for start in range(0, len(files), VECTORS_AT_ONCE):
            with suppress(*_LOST_FILES):  # then each version copies its own
                self._vectors.copies(files[start : start + VECTORS_AT_ONCE])


def _first_batch(rows: Sequence[SnapshotRow]) -> Sequence[SnapshotRow]:
    """The first versions that are written at once."""
    num_files = 0
    for place, row in enumerate(rows[:BATCH_VERSIONS]):
        num_files += row.num_added
        if num_files > BATCH_FILES and place > 0:
            return rows[:place]
    return rows[:BATCH_VERSIONS]
