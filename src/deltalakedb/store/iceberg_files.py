"""The files of native Iceberg tables in SQL: what was read of their manifests, and the manifests of each snapshot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalakedb.log.statistics.bounds import FileBounds
from deltalakedb.store.bounds_index import BoundsIndex
from deltalakedb.store.connection import Connection, DuplicateRowError, LostRaceError
from deltalakedb.store.rows import fill_columns, row_schema

EPOCH = 0
"""The epoch of the bounds of Iceberg tables: manifests are immutable, so their files never close."""

LOST_RACES = (DuplicateRowError, LostRaceError)
"""Errors of a process that indexes a table at the same time as another one: what the other one wrote is used."""


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The columns of a table that have bounds."""

    keys: list[tuple[str, str]]
    """The path and the kind of each."""
    are_partitions: list[bool]


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Some files of a manifest: `rows` of dl_iceberg_files without ids, and the bounds of the data files among them."""

    rows: pa.Table
    bounds: list[pa.RecordBatch]
    """For each index key; none of delete files."""


@dataclass(frozen=True, slots=True)
class IndexedManifest:
    """A manifest that was read, ready to be written."""

    manifest_path: str
    manifest_content: str
    spec_id: int
    chunks: list[FileChunk]

    @property
    def num_files(self) -> int:
        return sum(chunk.rows.num_rows for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """How many files a snapshot has; None of it is known before its manifests are indexed."""

    num_data_files: int
    num_delete_files: int


def list_key(snapshot: Mapping[str, Any]) -> int:
    """What the manifests of a snapshot are stored under.

    Not its id alone: that comes again with other manifests if a table is moved and registered again.
    """
    manifests = snapshot.get("manifest-list") or list(snapshot.get("manifests", ()))
    digest = hashlib.sha256(json.dumps([snapshot["snapshot-id"], manifests]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def snapshot_size(conn: Connection, table_id: int, list_key: int) -> SnapshotSize | None:
    row = conn.one("select_iceberg_snapshot", table_id=table_id, list_key=list_key)
    if row is None or not row["num_manifests"]:
        return None
    return SnapshotSize(int(row["num_data_files"]), int(row["num_delete_files"]))


def manifest_ids(conn: Connection, table_id: int) -> dict[str, int]:
    """The ids of a table's indexed manifests, by their paths."""
    rows = conn.all("select_iceberg_manifests", table_id=table_id)
    return {row["manifest_path"]: row["manifest_id"] for row in rows}


def add_manifests(
    conn: Connection, table_id: int, columns: IndexKeys, manifests: Sequence[IndexedManifest]
) -> dict[str, int]:
    """Writes the files of manifests that are not in SQL yet; returns the ids of all of the table's manifests.

    Raises one of LOST_RACES, here or at the commit, if another process writes manifests of the table meanwhile.
    """
    ids = manifest_ids(conn, table_id)
    new = [manifest for manifest in manifests if manifest.manifest_path not in ids]
    if not new:
        return ids
    row = conn.one("select_next_iceberg_ids", table_id=table_id)
    assert row is not None
    next_id, next_file_id = int(row["manifest_id"]), int(row["file_id"])
    index = BoundsIndex(conn, table_id, EPOCH, conn.all("select_bounds_columns", table_id=table_id))
    index.use_keys(columns.keys, columns.are_partitions, next_file_id)
    first_ids = []
    for manifest in new:
        first_ids.append(next_file_id)
        next_file_id += manifest.num_files
    # First the manifests: their ids are the lock, and fail before anything else is written.
    _insert_manifests(conn, table_id, new, next_id, first_ids)
    for number, (manifest, first_id) in enumerate(zip(new, first_ids, strict=True)):
        _insert_files(conn, table_id, next_id + number, manifest, first_id, index)
    index.save()
    return ids | {manifest.manifest_path: next_id + number for number, manifest in enumerate(new)}


def _insert_manifests(
    conn: Connection, table_id: int, manifests: Sequence[IndexedManifest], next_id: int, first_ids: Sequence[int]
) -> None:
    conn.insert_few(
        "dl_iceberg_manifests",
        {
            "table_id": [table_id] * len(manifests),
            "manifest_id": [next_id + number for number in range(len(manifests))],
            "manifest_path": [manifest.manifest_path for manifest in manifests],
            "manifest_content": [manifest.manifest_content for manifest in manifests],
            "spec_id": [manifest.spec_id for manifest in manifests],
            "first_file_id": list(first_ids),
            "num_files": [manifest.num_files for manifest in manifests],
        },
    )


def _insert_files(
    conn: Connection, table_id: int, manifest_id: int, manifest: IndexedManifest, first_id: int, index: BoundsIndex
) -> None:
    for chunk in manifest.chunks:
        file_ids = range(first_id, first_id + chunk.rows.num_rows)
        first_id = file_ids.stop
        ids = {"table_id": table_id, "manifest_id": manifest_id, "file_id": pa.array(file_ids, pa.int64())}
        for batch in chunk.rows.combine_chunks().to_batches():
            conn.insert("dl_iceberg_files", fill_columns(batch, "dl_iceberg_files", **ids))
        if chunk.bounds:
            index.insert(file_ids, FileBounds(chunk.bounds, pa.nulls(len(file_ids), pa.int64()), 0))


def add_snapshot(conn: Connection, table_id: int, list_key: int, rows: pa.Table) -> None:
    """Writes the manifests of a snapshot, all of which are indexed; `rows` are without table and snapshot."""
    ids = {"table_id": table_id, "list_key": list_key}
    for batch in rows.combine_chunks().to_batches():
        table = fill_columns(batch, "dl_iceberg_snapshot_manifests", **ids)
        conn.insert("dl_iceberg_snapshot_manifests", table)


def remove_snapshots(conn: Connection, table_id: int, kept: Collection[int]) -> None:
    """Removes the manifests of all snapshots but some, by key, and the files of manifests that none has any more."""
    rows = conn.all("select_iceberg_list_keys", table_id=table_id)
    expired = [row["list_key"] for row in rows if row["list_key"] not in kept]
    if not expired:
        return
    for key in expired:
        conn.run("delete_iceberg_snapshot", table_id=table_id, list_key=key)
    for query in ("delete_unused_iceberg_bounds", "delete_unused_iceberg_files", "delete_unused_iceberg_manifests"):
        conn.run(query, table_id=table_id)


FILE_ROWS = pa.schema(
    [item for item in row_schema("dl_iceberg_files") if item.name not in ("table_id", "manifest_id", "file_id")]
)
"""The columns of FileChunk.rows."""
