"""Writes manifests and manifest lists of Delta tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deltalakedb.iceberg.delta.avro_writer import NULL, PRESENT, avro_file, avro_long, avro_optional, avro_text
from deltalakedb.iceberg.delta.delta_files import FileShape
from deltalakedb.iceberg.delta.delta_snapshots import sequence_number
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.iceberg.delta.manifest_entries import ADDED, EXISTING, FileEntry, partition_summaries
from deltalakedb.iceberg.delta.manifest_schemas import manifest_list_schema, manifest_schema
from deltalakedb.store.connection import LIVE
from deltalakedb.store.delta_manifests import Content, ManifestRow

_CONTENTS: Final[Mapping[Content, int]] = {"data": 0, "deletes": 1}


def write_manifest(
    files: GeneratedFiles,
    shape: FileShape,
    schema: Mapping[str, Any],
    entries: Sequence[FileEntry],
    *,
    content: Content,
    manifest_id: int,
    version: int,
    snapshot_id: int,
    format_version: int,
) -> ManifestRow:
    """Write a manifest of entries in the order of their ids; `schema` is that of the version, in Iceberg's JSON."""
    partition = [
        (item["field-id"], item["name"], type_)
        for item, type_ in zip(shape.spec["fields"], shape.partition_types, strict=True)
    ]
    header = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(shape.spec["fields"]),
        "partition-spec-id": str(shape.spec_id),
        "format-version": str(format_version),
        "content": content,
    }
    added = [entry for entry in entries if entry.added_version == version]
    records = [(ADDED if entry.added_version == version else EXISTING) + entry.encoded for entry in entries]
    data = avro_file(manifest_schema(format_version, partition), header, records)
    rows, rows_added = sum(entry.num_rows for entry in entries), sum(entry.num_rows for entry in added)
    first_row_ids = [entry.first_row_id for entry in entries if entry.first_row_id is not None]
    return ManifestRow(
        manifest_id=manifest_id,
        version=version,
        removed_version=LIVE,
        manifest_path=files.write(f"m-{version}-{uuid.uuid4()}.avro", data),
        manifest_content=content,
        manifest_length=len(data),
        spec_id=shape.spec_id,
        snapshot_id=snapshot_id,
        first_file_id=entries[0].file_id,
        last_file_id=entries[-1].file_id,
        num_added=len(added),
        rows_added=rows_added,
        num_existing=len(entries) - len(added),
        rows_existing=rows - rows_added,
        min_sequence_number=min(entry.sequence_number for entry in entries),
        # With a first id, readers give ids to files that have none: it is there only if all files have theirs.
        first_row_id=min(first_row_ids) if len(first_row_ids) == len(entries) else None,
        partitions=partition_summaries(shape.partition_types, entries),
    )


def list_entry(row: ManifestRow, format_version: int) -> bytes:
    """A manifest as a row of a manifest list."""
    parts = [
        avro_text(row.manifest_path),
        avro_long(row.manifest_length),
        avro_long(row.spec_id),
        avro_long(_CONTENTS[row.manifest_content]),
        avro_long(sequence_number(row.version)),
        avro_long(row.min_sequence_number),
        avro_long(row.snapshot_id),
        avro_long(row.num_added),
        avro_long(row.num_existing),
        avro_long(0),
        avro_long(row.rows_added),
        avro_long(row.rows_existing),
        avro_long(0),
        avro_optional(row.partitions),
        NULL,
    ]
    if format_version > 2:
        parts.append(NULL if row.first_row_id is None else PRESENT + avro_long(row.first_row_id))
    return b"".join(parts)


def write_list(
    files: GeneratedFiles, entries: Sequence[bytes], snapshot: Mapping[str, Any], *, version: int, format_version: int
) -> str:
    """Write the manifest list of a snapshot; return its path as clients read it."""
    parent = snapshot.get("parent-snapshot-id")
    header = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot["sequence-number"]),
        "format-version": str(format_version),
    }
    if format_version > 2:
        header["first-row-id"] = str(snapshot.get("first-row-id", 0))
    data = avro_file(manifest_list_schema(format_version), header, entries)
    return files.write(f"snap-{version}-{snapshot['snapshot-id']}-{uuid.uuid4()}.avro", data)
