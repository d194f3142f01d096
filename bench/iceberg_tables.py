"""A native Iceberg table of many files, of which only the metadata exists: manifests as PyIceberg writes them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType, TimestampType

FILES_PER_MANIFEST = 5_000
SNAPSHOT_ID = 1_000
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "number", IntegerType()),
    NestedField(3, "amount", DoubleType()),
    NestedField(4, "name", StringType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestampType()),
)


def write_iceberg_table(root: Path, num_files: int, rows_per_file: int) -> Path:
    """Writes a table of version 2 whose file n holds the ids from n times `rows_per_file` on; returns its metadata."""
    folder = root / "metadata"
    folder.mkdir(parents=True)
    io = PyArrowFileIO()
    manifests: list[ManifestFile] = []
    for first in range(0, num_files, FILES_PER_MANIFEST):
        output = io.new_output((folder / f"m{first:09d}.avro").as_uri())
        with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, SCHEMA, output, SNAPSHOT_ID, "deflate") as writer:
            for number in range(first, min(first + FILES_PER_MANIFEST, num_files)):
                file = _data_file(root, number, rows_per_file)
                status = ManifestEntryStatus.ADDED
                writer.add(ManifestEntry.from_args(status=status, snapshot_id=SNAPSHOT_ID, data_file=file))
        manifests.append(writer.to_manifest_file())
    output = io.new_output((folder / "list.avro").as_uri())
    with write_manifest_list(2, output, SNAPSHOT_ID, None, 1, "deflate") as list_writer:
        list_writer.add_manifests(manifests)
    path = folder / "v1.metadata.json"
    path.write_text(json.dumps(_metadata(root, folder / "list.avro")))
    return path


def _data_file(root: Path, number: int, rows: int) -> DataFile:
    low, high = number * rows, (number + 1) * rows - 1
    day, micros = number // 100, number * 3_600_000_000
    ends = [(low, high), (0, 999), (0.5, 99.5), (f"name-{number:09d}-a", f"name-{number:09d}-z"), (day, day)]
    ends.append((micros, micros + 3_599_000_000))
    packed = [[_pack(place, end) for place, end in enumerate(side)] for side in zip(*ends, strict=True)]
    names = range(1, len(ends) + 1)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=(root / "data" / f"{number:09d}-5f3c8f0e-9d64-4a1c-8a57-3d5e0c2f7b11.parquet").as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=100_000,
        value_counts=dict.fromkeys(names, rows),
        null_value_counts=dict.fromkeys(names, 0),
        nan_value_counts={3: 0},
        lower_bounds=dict(zip(names, packed[0], strict=True)),
        upper_bounds=dict(zip(names, packed[1], strict=True)),
    )
    file.spec_id = 0
    return file


def _pack(place: int, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return struct.pack(("<q", "<i", "<d", "", "<i", "<q")[place], value)


def _metadata(root: Path, manifest_list: Path) -> dict[str, Any]:
    snapshot = {
        "snapshot-id": SNAPSHOT_ID,
        "sequence-number": 1,
        "timestamp-ms": 1,
        "manifest-list": manifest_list.as_uri(),
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": root.as_uri(),
        "last-sequence-number": 1,
        "last-updated-ms": 1,
        "last-column-id": 6,
        "current-schema-id": 0,
        "schemas": [json.loads(SCHEMA.model_dump_json())],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "current-snapshot-id": SNAPSHOT_ID,
        "snapshots": [snapshot],
        "refs": {"main": {"snapshot-id": SNAPSHOT_ID, "type": "branch"}},
    }
