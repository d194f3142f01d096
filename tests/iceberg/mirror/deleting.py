"""Commits delete files to Iceberg tables by hand, as no library here writes them all."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb import Catalog
from deltalakedb.data.deletion_vectors import encode_bitmap
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.describing import load_version
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.store.names import parse_table_name
from deltalakedb.transactions.drafts import IcebergFiles
from tests.iceberg.planning.avro_files import (
    FILE_COUNTS,
    ROW_COUNTS,
    field,
    list_schema,
    manifest_metadata,
    manifest_schema,
    optional,
    to_avro,
)

Positions = dict[str, list[int]]
_PATHS, _NUMBERS = 2_147_483_546, 2_147_483_545


def change(catalog: Catalog, name: str, *updates: dict[str, Any]) -> None:
    """Commits updates of the REST protocol."""
    IcebergCatalog(catalog, IcebergFiles(None)).commit([TableChange(parse_table_name(name), [], updates)])


def upgrade(catalog: Catalog, name: str) -> None:
    """Raises a table to version 3 of the format."""
    change(catalog, name, {"action": "upgrade-format-version", "format-version": 3})


def data_files(catalog: Catalog, name: str = "shop.t") -> list[str]:
    """The live data files, in the order of their first ids."""
    tasks = catalog.iceberg(name).scan().plan_files()
    return sorted((task.file.file_path for task in tasks), key=lambda path: _first_value(path))


def _first_value(path: str) -> Any:
    return pq.read_table(path.removeprefix("file://")).column(0)[0].as_py()


def delete_positions(catalog: Catalog, positions: Positions, name: str = "shop.t", **changed: Any) -> None:
    """One file of position deletes, on any number of data files."""
    pairs = sorted((path, row) for path, rows in positions.items() for row in rows)
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_PATHS)}),
            pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": str(_NUMBERS)}),
        ]
    )
    path = _new_path(catalog, name, "parquet")
    table = pa.table([[path for path, _ in pairs], [row for _, row in pairs]], schema=schema)
    pq.write_table(table, path)
    _commit(catalog, name, [{**_file(1, path, len(pairs)), **changed}])


def delete_by_vectors(catalog: Catalog, positions: Positions, name: str = "shop.t") -> None:
    """A Puffin file with the vectors of data files that have none yet."""
    path = _new_path(catalog, name, "puffin")
    content, blobs, files = b"PFA1", [], []
    for data_file, rows in positions.items():
        bitmap = encode_bitmap(np.array(rows, np.uint64))
        blob = struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
        properties = {"referenced-data-file": data_file, "cardinality": str(len(rows))}
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_NUMBERS],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": properties,
            }
        )
        place = {"content_offset": len(content), "content_size_in_bytes": len(blob), "referenced_data_file": data_file}
        files.append({**_file(1, path, len(rows)), "file_format": "PUFFIN", **place})
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(content + b"PFA1" + footer + struct.pack("<II", len(footer), 0) + b"PFA1")
    _commit(catalog, name, [{**file, "file_size_in_bytes": path.stat().st_size} for file in files])


def delete_equal(catalog: Catalog, values: pa.Table, field_id: int, name: str = "shop.t", **bounds: int) -> None:
    """A file of equality deletes by one column of whole numbers, with these bounds."""
    path = _new_path(catalog, name, "parquet")
    item = values.schema.field(0).with_metadata({"PARQUET:field_id": str(field_id)})
    pq.write_table(pa.table([values.column(0)], schema=pa.schema([item])), path)
    stats: dict[str, Any] = {
        key: [{"key": field_id, "value": struct.pack("<q", value)}] for key, value in bounds.items()
    }
    if stats:
        stats["null_value_counts"] = [{"key": field_id, "value": 0}]
    _commit(catalog, name, [{**_file(2, path, values.num_rows), "equality_ids": [field_id], **stats}])


def _file(content: int, path: Path, num_records: int) -> dict[str, Any]:
    return {
        "content": content,
        "file_path": f"file://{path}",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": num_records,
        "file_size_in_bytes": path.stat().st_size if path.exists() else 1,
    }


def _new_path(catalog: Catalog, name: str, kind: str) -> Path:
    folder = Path(catalog.iceberg(name).location().removeprefix("file://"))
    return folder / ("metadata" if kind == "avro" else "data") / f"{uuid.uuid4()}.{kind}"


def _commit(catalog: Catalog, name: str, files: list[dict[str, Any]]) -> None:
    metadata = load_version(catalog, name).metadata
    version, sequence_number = int(metadata["format-version"]), int(metadata["last-sequence-number"]) + 1
    current = next(item for item in metadata["snapshots"] if item["snapshot-id"] == metadata["current-snapshot-id"])
    snapshot_id = uuid.uuid4().int >> 66
    inherited = {"status": 1, "snapshot_id": snapshot_id, "sequence_number": None, "file_sequence_number": None}
    entries = [{**inherited, "data_file": item} for item in files]
    schema = next(item for item in metadata["schemas"] if item["schema-id"] == metadata["current-schema-id"])
    manifest = _new_path(catalog, name, "avro")
    header = manifest_metadata(version, schema, {"spec-id": 0, "fields": []}, "deletes")
    kinds = manifest_schema(version, [])
    if any("key_metadata" in item for item in files):
        data_file = next(item for item in kinds["fields"] if item["name"] == "data_file")["type"]
        data_file["fields"].append(field(131, "key_metadata", optional("bytes")))
    manifest.write_bytes(to_avro(kinds, entries, header))
    old_list = Path(current["manifest-list"].removeprefix("file://")).read_bytes()
    rows: list[Any] = list(fastavro.reader(io.BytesIO(old_list)))
    rows.append(
        {
            "manifest_path": f"file://{manifest}",
            "manifest_length": manifest.stat().st_size,
            "partition_spec_id": 0,
            "content": 1,
            "added_snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "min_sequence_number": sequence_number,
            **dict.fromkeys((*FILE_COUNTS, *ROW_COUNTS), len(files)),
        }
    )
    manifest_list = _new_path(catalog, name, "avro")
    rows = [{**row, "first_row_id": row.get("first_row_id") if row["content"] else 0} for row in rows]
    manifest_list.write_bytes(to_avro(list_schema(version), rows, {"format-version": str(version)}))
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": current["snapshot-id"],
        "sequence-number": sequence_number,
        "timestamp-ms": metadata["last-updated-ms"],
        "summary": {"operation": "delete"},
        "manifest-list": f"file://{manifest_list}",
        "schema-id": metadata["current-schema-id"],
    }
    if version > 2:
        snapshot |= {"first-row-id": metadata.get("next-row-id", 0), "added-rows": 0}
    reference = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    change(catalog, name, {"action": "add-snapshot", "snapshot": snapshot}, reference)
