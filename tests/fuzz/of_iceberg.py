"""Cases of Iceberg's files and requests: metadata, manifests, vectors in Puffin files, position deletes, scans."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.data.deletion_vectors import encode_bitmap
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata
from deltalakedb.iceberg.metadata.table_metadata import parse_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import parse_view_metadata, render_view_metadata
from deltalakedb.iceberg.metadata_files import read_metadata_file
from deltalakedb.iceberg.mirror.live_files import LiveFile
from deltalakedb.iceberg.mirror.vectors import deleted_rows
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.deletes import DeleteFile
from deltalakedb.iceberg.planning.manifests import read_manifest, read_manifest_list
from deltalakedb.iceberg.planning.requests import bind_filter, parse_request, schemas_to_bind, snapshots_to_scan
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.serve.iceberg.call import objects_of, parse_body
from deltalakedb.serve.iceberg.errors import Refusal
from tests.fuzz.cases import parser
from tests.fuzz.mutations import damage_bytes, damage_json, damaged_json_text
from tests.fuzz.of_logs import damaged_parquet, table_folder
from tests.iceberg.metadata.samples import START_MS, add_snapshot, sample_table, sample_view, set_main
from tests.iceberg.planning.avro_files import list_schema, manifest_schema, to_avro
from tests.iceberg.planning.lake import Lake

Json = dict[str, Any]


@parser("Iceberg metadata files", cases=80)
def read_table_metadata(random: Random) -> object:
    sample = dict(sample_table(random.choice((1, 2, 3))))
    parsed = parse_table_metadata(damaged_json_text(random, sample, [sample["schemas"], sample["snapshots"]]))
    assert parse_table_metadata(render_metadata(parsed)) == parsed
    shape = TableShape(parsed)
    return [shape, snapshots_to_scan(parsed, parse_request({}))]


@parser("Iceberg view metadata files", cases=50)
def read_view_metadata(random: Random) -> object:
    parsed = parse_view_metadata(damaged_json_text(random, dict(sample_view())))
    assert parse_view_metadata(render_view_metadata(parsed)) == parsed
    return parsed


@parser("compressed Iceberg metadata files", says=("metadata",))
def read_compressed_metadata(random: Random) -> object:
    with table_folder() as folder:
        file = folder / "v1.metadata.json"
        file.write_bytes(damage_bytes(random, gzip.compress(json.dumps(sample_table(2)).encode(), mtime=0)))
        return parse_table_metadata(read_metadata_file(str(file), None))


@parser("changes of Iceberg tables", also=(Refusal,), cases=80)
def change_table(random: Random) -> object:
    table = dict(sample_table(random.choice((1, 2, 3))))
    updates = [add_snapshot(4, table["format-version"]), set_main(4),
               {"action": "set-properties", "updates": {"a": "b"}},
               {"action": "add-schema", "schema": table["schemas"][0]},
               {"action": "add-spec", "spec": table["partition-specs"][0]},
               {"action": "remove-snapshots", "snapshot-ids": [10]}]  # fmt: skip
    text = damaged_json_text(random, {"updates": updates, "requirements": [{"type": "assert-table-uuid", "uuid": "x"}]})
    body = parse_body(text)
    if random.random() < 0.3:
        check_requirements(objects_of(body, "requirements"), table)
    return apply_updates(table, objects_of(body, "updates"), now_ms=START_MS + 10**6)


# ---- Avro


@cache
def lake_files() -> dict[str, Any]:
    """Manifests and lists of two tables, with the specs to read them."""
    files: dict[str, Any] = {"manifests": [], "lists": []}
    for version in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake(Path(folder, "t"), {"id": "long", "name": "string", "price": "decimal(9,2)"}, version=version)
            lake.partition_by((1, "bucket[4]"), (2, "truncate[2]"))
            lake.append([{1: number, 2: f"n{number}", 3: None} for number in range(6)])
            for snapshot in lake.snapshots:
                data = Path(snapshot["manifest-list"].removeprefix("file://")).read_bytes()
                files["lists"].append(data)
                for manifest in read_manifest_list("list", data):
                    content = Path(manifest.path.removeprefix("file://")).read_bytes()
                    spec = TableShape(lake.metadata()).specs[manifest.spec_id]
                    files["manifests"].append((manifest, content, spec))
    return files


@parser("Avro files", says=("x.avro",), cases=150)
def read_avro(random: Random) -> object:
    data = random.choice([*lake_files()["lists"], *(content for _, content, _ in lake_files()["manifests"])])
    if random.random() < 0.3:
        data = odd_avro(random)
    return list(open_avro("x.avro", damage_bytes(random, data, [data])).records())


def odd_avro(random: Random) -> bytes:
    """A file whose header has a damaged schema."""
    schema = damage_json(random, random.choice((list_schema(2), manifest_schema(2, [(1000, "p", "long")]))))
    content = to_avro(list_schema(2), [], {}, "null")
    text = json.dumps(schema).encode()
    size = bytearray()
    number = len(text) << 1
    while number >= 0x80:
        size.append(number & 0x7F | 0x80)
        number >>= 7
    header = b"Obj\x01\x02\x16avro.schema" + bytes(size) + bytes([number]) + text + b"\0" + content[-16:]
    return header + bytes([2 * random.randrange(5), 20]) + random.randbytes(10) + content[-16:]


@parser("manifest lists", says=("list.avro",), cases=80)
def read_list(random: Random) -> object:
    data = random.choice(lake_files()["lists"])
    return read_manifest_list("list.avro", damage_bytes(random, data, lake_files()["lists"]))


@parser("manifests", says=("avro",), cases=80)
def read_one_manifest(random: Random) -> object:
    manifest, data, spec = random.choice(lake_files()["manifests"])
    return [entry.file for entry in read_manifest(manifest, damage_bytes(random, data), spec)]


# ---- deletes


@parser("vectors in Puffin files", says=("t.puffin",), cases=80)
def read_puffin(random: Random) -> object:
    bitmap = encode_bitmap(np.arange(0, 90, 3).astype(np.uint64))
    damaged = damage_bytes(random, bitmap) if random.random() < 0.5 else bitmap
    blob = len(damaged).to_bytes(4, "big") + damaged + zlib.crc32(damaged).to_bytes(4, "big")
    with table_folder() as folder:
        path = folder / "t.puffin"
        path.write_bytes(b"PFA1" + (damage_bytes(random, blob) if random.random() < 0.5 else blob))
        numbers = [30, 4, len(blob)]
        if random.random() < 0.3:
            numbers[random.randrange(3)] = random.choice((0, 1, 2**20, 2**40, 2**62))
        file = {"file-path": str(path), "referenced-data-file": "x", "record-count": numbers[0],
                "content-offset": numbers[1], "content-size-in-bytes": numbers[2], "file-format": "puffin"}  # fmt: skip
        return deleted_rows([live_file("x", file)], None)


def live_file(path: str, deletes: Json) -> LiveFile:
    """A data file with a file of deletes."""
    manifest, data, spec = lake_files()["manifests"][0]
    entry = replace(next(iter(read_manifest(manifest, data, spec))), file_path=path)
    row = {"file_content": "position-deletes", "sequence_number": 1, "manifest_sequence_number": 1,
           "file": json.dumps(deletes), "file_stats": None}  # fmt: skip
    return LiveFile(entry, (DeleteFile(row),))


@cache
def position_deletes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"file_path": ["x", "y", "x"], "pos": [1, 2, 3]}), sink)
    return bytes(sink.getvalue())


@parser("files of position deletes", says=("t.parquet",), cases=60)
def read_position_deletes(random: Random) -> object:
    with table_folder() as folder:
        path = folder / "t.parquet"
        path.write_bytes(damaged_parquet(random, position_deletes()))
        return deleted_rows([live_file("x", {"file-path": str(path), "file-format": "parquet"})], None)


# ---- scans

FILTERS: list[Any] = [
    {"type": "and", "left": {"type": "eq", "term": "id", "value": 5}, "right": {"type": "not-null", "term": "ts"}},
    {"type": "or", "left": {"type": "in", "term": "id", "values": [1, 2]},
     "right": {"type": "not", "child": {"type": "starts-with", "term": "place.city", "value": "B"}}},
    {"type": "lt", "term": {"type": "transform", "transform": "day", "term": "ts"}, "value": "2026-01-01"},
    {"type": "gt-eq", "term": {"type": "reference", "term": "ts"}, "value": "2026-01-01T00:00:00.000000"},
]  # fmt: skip


@parser("scan requests", also=(Refusal,), cases=150)
def plan_scan(random: Random) -> object:
    request = {"snapshot-id": 30, "filter": random.choice(FILTERS), "select": ["id"], "case-sensitive": True,
               "stats-fields": ["id"], "min-rows-requested": 5}  # fmt: skip
    body = parse_body(damaged_json_text(random, request, FILTERS))
    metadata = sample_table(2)
    parsed = parse_request(body)
    shape = TableShape(metadata)
    snapshots = snapshots_to_scan(metadata, parsed)
    return bind_filter(parsed, shape, schemas_to_bind(shape, parsed, snapshots))
