"""Puts the files of a snapshot into SQL when a plan first needs them: each manifest is read once, ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError, StoreBusyError
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.bounds import IndexColumn, compute_bounds, index_columns
from deltalakedb.iceberg.planning.manifests import Entry, ManifestFile, checked_path, read_manifest, read_manifest_list
from deltalakedb.iceberg.planning.reading import ReadFile, read_ahead
from deltalakedb.iceberg.planning.schema import PartitionSpec, TableShape
from deltalakedb.store import Store
from deltalakedb.store.iceberg_files import (
    FILE_ROWS,
    LOST_RACES,
    FileChunk,
    IndexedManifest,
    IndexKeys,
    SnapshotSize,
    add_manifests,
    add_snapshot,
    list_key,
    manifest_ids,
    snapshot_size,
)
from deltalakedb.store.rows import row_schema

CHUNK_FILES: Final = 5_000
"""How many entries become Arrow at a time."""

GROUP_FILES: Final = 20_000
"""How many files of small manifests are written in one transaction; writers of other tables wait for it on SQLite."""

GROUP_MANIFESTS: Final = 500
MAX_RACES: Final = 20

_SNAPSHOT_ROWS = pa.schema(
    [
        item
        for item in row_schema("dl_iceberg_snapshot_manifests")
        if item.name not in ("table_id", "list_key", "manifest_id")
    ]
)


def index_snapshot(
    store: Store, table_id: int, shape: TableShape, snapshot: Mapping[str, Any], read: ReadFile
) -> SnapshotSize:
    """Makes sure that all files of a snapshot are in SQL; returns how many there are."""
    key = list_key(snapshot)
    with store.read(single=True) as conn:
        size = snapshot_size(conn, table_id, key)
    if size is not None:
        return size
    manifests = _manifests_of(snapshot, read)
    if not manifests:
        return SnapshotSize(0, 0)
    with store.read(single=True) as conn:
        ids = manifest_ids(conn, table_id)
    missing = [manifest for manifest in manifests if manifest.path not in ids]
    columns = index_columns(shape)
    keys = IndexKeys(
        [(column.key, column.kind) for column in columns], [column.partition is not None for column in columns]
    )
    for group in _groups(_read(missing, columns, shape, read)):
        _write(store, table_id, keys, group)
    return _write_snapshot(store, table_id, keys, snapshot, manifests)


def _manifests_of(snapshot: Mapping[str, Any], read: ReadFile) -> list[ManifestFile]:
    path = snapshot.get("manifest-list")
    if path is not None:
        path = _checked(path)
        return read_manifest_list(path, read(path))
    # In version 1 a snapshot may list its manifests itself.
    return [_listed(_checked(path), read) for path in snapshot.get("manifests", ())]


def _checked(path: Any) -> str:
    try:
        return checked_path(path)
    except ValueError as error:
        raise MalformedLogError(f"a snapshot names a manifest list that cannot be read: {error}") from error


def _listed(path: str, read: ReadFile) -> ManifestFile:
    spec_id = open_avro(path, read(path)).metadata.get("partition-spec-id", "0")
    return ManifestFile(path, None, int(spec_id) if spec_id.isdecimal() else 0, "data", 0, 0, None)


# ---- reading


def _read(
    manifests: Sequence[ManifestFile], columns: Sequence[IndexColumn], shape: TableShape, read: ReadFile
) -> Iterator[IndexedManifest]:
    paths = {manifest: manifest.path for manifest in manifests}
    for manifest, content in read_ahead(manifests, paths, read):
        spec = shape.specs.get(manifest.spec_id)
        if spec is None:
            raise MalformedLogError(
                f"the manifest {manifest.path} has the partition spec {manifest.spec_id}, which the table does not have"
            )
        yield _indexed(manifest, content, spec, columns, shape)


def _indexed(
    manifest: ManifestFile, content: bytes, spec: PartitionSpec, columns: Sequence[IndexColumn], shape: TableShape
) -> IndexedManifest:
    entries = read_manifest(manifest, content, spec)
    chunks = []
    while chunk := list(islice(entries, CHUNK_FILES)):
        bounds = [compute_bounds(column, chunk, shape) for column in columns] if manifest.content == "data" else []
        chunks.append(FileChunk(_rows(chunk), bounds))
    return IndexedManifest(manifest.path, manifest.content, manifest.spec_id, chunks)


def _rows(entries: Sequence[Entry]) -> pa.Table:
    columns = {name: [getattr(entry, name) for entry in entries] for name in FILE_ROWS.names}
    return pa.table(columns, schema=FILE_ROWS)


def _groups(manifests: Iterable[IndexedManifest]) -> Iterator[list[IndexedManifest]]:
    """Manifests that are written together: one transaction costs as much as some hundred files."""
    group: list[IndexedManifest] = []
    num_files = 0
    for manifest in manifests:
        group.append(manifest)
        num_files += manifest.num_files
        if num_files >= GROUP_FILES or len(group) >= GROUP_MANIFESTS:
            yield group
            group, num_files = [], 0
    if group:
        yield group


# ---- writing


def _write(store: Store, table_id: int, keys: IndexKeys, group: Sequence[IndexedManifest]) -> dict[str, int]:
    for _ in range(MAX_RACES):
        try:
            with store.write() as conn:
                return add_manifests(conn, table_id, keys, group)
        except LOST_RACES:
            continue  # another process indexes the same table
    raise StoreBusyError(f"other processes index table {table_id} all the time; try again")


def _write_snapshot(
    store: Store, table_id: int, keys: IndexKeys, snapshot: Mapping[str, Any], manifests: Sequence[ManifestFile]
) -> SnapshotSize:
    key = list_key(snapshot)
    ids = _write(store, table_id, keys, ())
    columns = {
        "ordinal": list(range(len(manifests))),
        "manifest_content": [manifest.content for manifest in manifests],
        "sequence_number": [manifest.sequence_number for manifest in manifests],
        "added_snapshot_id": [manifest.added_snapshot_id for manifest in manifests],
        "first_row_id": [manifest.first_row_id for manifest in manifests],
    }
    rows = pa.table(columns, schema=_SNAPSHOT_ROWS)
    rows = rows.append_column("manifest_id", pa.array([ids[manifest.path] for manifest in manifests], pa.int64()))
    for _ in range(MAX_RACES):
        try:
            with store.write() as conn:
                size = snapshot_size(conn, table_id, key)
                if size is None:
                    add_snapshot(conn, table_id, key, rows)
                    size = snapshot_size(conn, table_id, key)
            assert size is not None
            return size
        except LOST_RACES:
            continue
    raise StoreBusyError(f"other processes index snapshot {snapshot['snapshot-id']} all the time; try again")
