"""The live files of a snapshot, with the deletes that apply to each; what Delta cannot say is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from deltalakedb.exceptions import CannotMirrorError, redact
from deltalakedb.iceberg.planning.deletes import DeleteFile, Deletes
from deltalakedb.iceberg.planning.manifests import (
    INHERITED,
    Entry,
    ManifestFile,
    read_manifest,
    read_manifest_list,
)
from deltalakedb.iceberg.planning.reading import ReadFile, read_ahead
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.store.connection import Row


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a snapshot, and the files of position deletes, or the vector, that apply to it."""

    entry: Entry
    deletes: tuple[DeleteFile, ...]

    @property
    def path(self) -> str:
        return self.entry.file_path

    @property
    def deletes_key(self) -> str | None:
        """The same as long as the same rows are deleted; None if none are."""
        if not self.deletes:
            return None
        parts = sorted([item.file["file-path"], item.file.get("content-offset")] for item in self.deletes)
        return hashlib.sha256(to_json(parts).encode()).hexdigest()[:32]


@dataclass(slots=True)
class SnapshotReader:
    """Reads snapshots of one table; each manifest once."""

    read: ReadFile
    _manifests: dict[str, list[Entry]] = field(default_factory=dict)

    def files(self, metadata: Mapping[str, Any], shape: TableShape) -> list[LiveFile]:
        """Return the live files of the newest snapshot of the branch main."""
        snapshot_id = metadata.get("current-snapshot-id")
        snapshots = metadata.get("snapshots", ())
        snapshot = next((item for item in snapshots if item["snapshot-id"] == snapshot_id), None)
        if snapshot is None:
            return []
        manifest_list = snapshot.get("manifest-list")
        if manifest_list is None:
            raise CannotMirrorError("its snapshot has no manifest list, as in version 1 of the format")
        manifests = read_manifest_list(manifest_list, self.read(manifest_list))
        data: dict[str, tuple[Entry, Row]] = {}
        deletes: dict[str, list[DeleteFile]] = {}
        for manifest, entry in self._entries(manifests, shape):
            row = _row(manifest, entry)
            if entry.file_content != "data":
                assert entry.delete_key is not None, "delete files have a key"
                deletes.setdefault(entry.delete_key, []).append(DeleteFile(row))
                continue
            if entry.file_path in data:
                raise CannotMirrorError(f"its snapshot has the data file {redact(entry.file_path)} twice")
            data[entry.file_path] = entry, row
        rules = Deletes(deletes, shape.schema)
        return [LiveFile(entry, _checked(entry, rules.on(row))) for entry, row in data.values()]

    def _entries(self, manifests: list[ManifestFile], shape: TableShape) -> Iterator[tuple[ManifestFile, Entry]]:
        missing = [manifest for manifest in manifests if manifest.path not in self._manifests]
        for manifest, content in read_ahead(missing, {item: item.path for item in missing}, self.read):
            spec = shape.specs.get(manifest.spec_id)
            if spec is None:
                raise CannotMirrorError(f"its manifest {redact(manifest.path)} has an unknown partition spec")
            self._manifests[manifest.path] = list(read_manifest(manifest, content, spec))
        for manifest in manifests:
            for entry in self._manifests[manifest.path]:
                yield manifest, entry


def _row(manifest: ManifestFile, entry: Entry) -> Row:
    """An entry as the rows that plans are made of."""
    return {
        "file_content": entry.file_content,
        "file_path": entry.file_path,
        "spec_id": entry.spec_id,
        "file_partition": entry.file_partition,
        "sequence_number": entry.sequence_number,
        "manifest_sequence_number": manifest.sequence_number if entry.sequence_number == INHERITED else 0,
        "file": entry.file,
        "file_stats": entry.file_stats,
    }


def _checked(entry: Entry, deletes: list[DeleteFile]) -> tuple[DeleteFile, ...]:
    """The deletes on a data file, unless it or they are of a kind that Delta does not have."""
    path = redact(entry.file_path)
    for file in (orjson.loads(entry.file), *(item.file for item in deletes)):
        name = redact(file["file-path"])
        if "key-metadata" in file:
            raise CannotMirrorError(f"the file {name} is encrypted")
        if file["file-format"] not in ("parquet", "puffin"):
            raise CannotMirrorError(f"the file {name} is {file['file-format']}, and Delta has Parquet files only")
    if any(item.content == "equality-deletes" for item in deletes):
        raise CannotMirrorError(
            f"equality deletes apply to the file {path}, which Delta does not have: rewrite the data files"
        )
    return tuple(deletes)
