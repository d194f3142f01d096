"""Delta tables whose files exist only in the log, for tests that look at what is written for Iceberg clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list

from deltalakedb import Catalog
from deltalakedb.iceberg.catalog import IcebergCatalog, LoadedTable
from deltalakedb.log.protocol.actions import Action, AddFile, RemoveFile
from deltalakedb.store.names import TableName

NAME = TableName("shop", "t")


def create(catalog: Catalog) -> None:
    catalog.create_table("shop.t", "id long, p string", ["p"])


def add(number: int) -> AddFile:
    values = {"id": number}
    stats = json.dumps({"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": {"id": 0}})
    partition: Mapping[str, str | None] = {"p": str(number % 3) if number % 7 else None}
    return AddFile(f"part-{number}.parquet", partition, 100, 1_700_000_000_000, True, stats)


def remove(number: int) -> RemoveFile:
    file = add(number)
    return RemoveFile(file.path, True, 1_700_000_000_000, True, file.partition_values, file.size)


def commit(catalog: Catalog, *actions: Action) -> None:
    with catalog.begin() as tx:
        tx.commit_actions("shop.t", actions, read="table")


def load(catalog: Catalog) -> LoadedTable:
    return IcebergCatalog(catalog).load_table(NAME)


def lists(table: LoadedTable) -> dict[int, str]:
    """The manifest lists by version."""
    return {int(item["summary"]["delta.version"]): item["manifest-list"] for item in table.metadata["snapshots"]}


def manifests(path: str) -> list[ManifestFile]:
    return list(read_manifest_list(PyArrowFileIO().new_input(path)))


def numbers(path: str) -> list[int]:
    """The files of a manifest list, by their numbers; the counts and sequence numbers of its manifests are checked."""
    found: list[int] = []
    for manifest in manifests(path):
        entries = manifest.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
        statuses = [int(entry.status) for entry in entries]
        assert (statuses.count(1), statuses.count(0)) == (manifest.added_files_count, manifest.existing_files_count)
        assert min(entry.sequence_number or 0 for entry in entries) == manifest.min_sequence_number
        assert all(entry.snapshot_id == manifest.added_snapshot_id for entry in entries if int(entry.status) == 1)
        found += [int(entry.data_file.file_path.rpartition("-")[2].removesuffix(".parquet")) for entry in entries]
    assert len(found) == len(set(found))
    return sorted(found)


def folder(catalog: Catalog) -> Path:
    """Where the files for Iceberg clients are."""
    return Path(catalog.table("shop.t").table_uri.removeprefix("file://")) / "_iceberg"


def files_in(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()} if place.exists() else set()
