"""What an Iceberg client sends when it appends to a Delta table: data files, manifests and the request, by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tests.iceberg.rest.wire import Answer, Client, table_path

EXISTING, ADDED, DELETED = ManifestEntryStatus.EXISTING, ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED


def new_id() -> int:
    return random.getrandbits(62) | 1


def live_files(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-data-files"] or 0)


def kept(count: int, table: Table) -> ManifestFile:
    """A row of a manifest list for files that are in the table already; nobody reads its manifest."""
    name = f"kept-{table.metadata.current_snapshot_id}.avro"  # PyIceberg remembers such rows by their paths
    return ManifestFile.from_args(
        _table_format_version=2,
        manifest_path=f"{table.location()}/_iceberg/{name}",
        manifest_length=1,
        partition_spec_id=table.spec().spec_id,
        content=ManifestContent.DATA,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=7,
        added_files_count=0,
        existing_files_count=count,
        deleted_files_count=0,
        added_rows_count=0,
        existing_rows_count=count,
        deleted_rows_count=0,
        partitions=None,
        key_metadata=None,
    )


def data_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """The files of rows as PyIceberg writes them."""
    return list(_dataframe_to_data_files(table.metadata, rows, table.io))


@dataclass
class ManifestToWrite:
    """A manifest of a new snapshot."""

    files: Sequence[DataFile]
    status: ManifestEntryStatus = ADDED
    content: ManifestContent = ManifestContent.DATA
    spec_id: int | None = None
    schema: Schema | None = None


@dataclass
class Append:
    """A commit of one table with one snapshot; each field can be given as a client would not."""

    table: Table
    files: Sequence[DataFile] = ()
    snapshot_id: int = field(default_factory=new_id)
    parent_id: int | None = 0
    """0: the table's current snapshot."""
    operation: str = "append"
    kept: int | None = None
    """How many files of the table the list keeps; None: all."""
    manifests: Sequence[ManifestToWrite] | None = None
    list_path: str | None = None

    @property
    def parent(self) -> int | None:
        return self.table.metadata.current_snapshot_id if self.parent_id == 0 else self.parent_id

    def snapshot(self) -> dict[str, Any]:
        """Write the manifests, and return the snapshot."""
        rows = [
            kept(count, self.table) for count in [live_files(self.table) if self.kept is None else self.kept] if count
        ]
        todo = [ManifestToWrite(self.files)] if self.manifests is None else self.manifests
        rows += [self._write(number, manifest) for number, manifest in enumerate(todo) if manifest.files]
        path = self.list_path or f"{self.table.location()}/_iceberg/snap-{self.snapshot_id}-0.avro"
        self._write_list(path, rows)
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.table.last_sequence_number + 1,
            "timestamp-ms": self.table.metadata.last_updated_ms + 1,
            "manifest-list": path,
            "summary": {"operation": self.operation},
            "schema-id": self.table.metadata.current_schema_id,
        }
        return snapshot | ({} if self.parent is None else {"parent-snapshot-id": self.parent})

    def _write_list(self, path: str, rows: Sequence[ManifestFile]) -> None:
        Path(path.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
        with write_manifest_list(
            2, self.table.io.new_output(path), self.snapshot_id, self.parent, 5, "deflate"
        ) as writer:
            writer.add_manifests(list(rows))

    def _write(self, number: int, manifest: ManifestToWrite) -> ManifestFile:
        metadata = self.table.metadata
        path = f"{self.table.location()}/_iceberg/{self.snapshot_id}-m{number}.avro"
        Path(path.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
        spec = metadata.specs()[manifest.spec_id] if manifest.spec_id is not None else self.table.spec()
        output = self.table.io.new_output(path)
        with write_manifest(
            2, spec, manifest.schema or self.table.schema(), output, self.snapshot_id, "deflate"
        ) as writer:
            for file in manifest.files:
                entry = ManifestEntry.from_args(
                    status=manifest.status,
                    snapshot_id=self.snapshot_id,
                    sequence_number=None if manifest.status == ADDED else 1,
                    file_sequence_number=None if manifest.status == ADDED else 1,
                    data_file=file,
                )
                writer.add_entry(entry)
        written = writer.to_manifest_file()
        if manifest.content != ManifestContent.DATA:
            written._data[3] = manifest.content
        return written

    def body(self, *more: Mapping[str, Any]) -> dict[str, Any]:
        """The request, with more updates."""
        updates = [
            {"action": "add-snapshot", "snapshot": self.snapshot()},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": self.snapshot_id},
        ]
        return {"requirements": requirements(self.table, self.parent), "updates": [*updates, *more]}


def requirements(table: Table, main: int | None) -> list[dict[str, Any]]:
    """What clients require for an append."""
    return [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": main},
        {"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)},
    ]


class Lake:
    """A served catalog, as its Iceberg clients see it."""

    def __init__(self, url: str) -> None:
        self.wire = Client(url)
        self.uri = f"{url}/iceberg"

    def load(self, name: str = "t", *, plans: str = "client") -> Table:
        """Load a table of the namespace `shop` with PyIceberg, which plans scans itself or asks the catalog."""
        table: Table = RestCatalog("lake", uri=self.uri, **{"scan-planning-mode": plans}).load_table(f"shop.{name}")
        return table

    def post(self, body: Mapping[str, Any], name: str = "t", **headers: str) -> Answer:
        return self.wire.post(table_path(name), body, headers=headers)

    def append(self, rows: pa.Table, name: str = "t") -> Answer:
        """Append rows by a request made by hand."""
        table = self.load(name)
        return self.post(Append(table, data_files(table, rows)).body(), name)
