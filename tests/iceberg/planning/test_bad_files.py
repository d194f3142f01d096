"""Manifests that nobody vouches for: damaged, hostile or odd ones are told, quickly, and nothing of them is stored."""

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import MalformedLogError
from deltalakedb.iceberg.planning import avro
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.names import TableName
from tests.fixtures.sizes import sized
from tests.iceberg.planning.avro_files import Row, field, list_schema
from tests.iceberg.planning.lake import Lake

NAME = TableName("lake", "t")
SCHEMA: Row = {"type": "record", "name": "r", "fields": [field(1, "a", "long"), field(2, "b", ["null", "string"])]}
ROWS = [{"a": n, "b": None if n % 3 else f"text {n}"} for n in range(100)]


def container(block: bytes, count: int, codec: str, schema: Any = SCHEMA) -> bytes:
    """An Avro file of one block."""
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, [], codec="null")
    sync = stream.getvalue()[-16:]
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    parts = [b"Obj\x01", number(len(header))]
    for key, value in header.items():
        parts += [number(len(key)), key.encode(), number(len(value)), value]
    return b"".join([*parts, b"\0", sync, number(count), number(len(block)), block, sync])


def number(value: int) -> bytes:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def content() -> bytes:
    stream = io.BytesIO()
    for row in ROWS:
        fastavro.schemaless_writer(stream, SCHEMA, row)
    return stream.getvalue()


def snappy(data: bytes) -> bytes:
    compressed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return compressed + zlib.crc32(data).to_bytes(4, "big")


def deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflate,
    "snappy": snappy,
    "zstandard": zstandard.compress,
}


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_of_manifests_is_read(codec: str) -> None:
    records = list(open_avro("x", container(CODECS[codec](content()), len(ROWS), codec)).records())
    assert records == [{"f1": row["a"], "f2": row["b"]} for row in ROWS]


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_a_block_that_would_fill_the_memory_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_BLOCK_BYTES", 100_000)
    bomb = CODECS[codec](bytes(10_000_000))
    with pytest.raises(MalformedLogError, match="bytes"):
        list(open_avro("x", container(bomb, 5, codec)).records())


def test_a_block_that_claims_many_records_is_refused() -> None:
    for count in (10**18, -5, 101, 99):
        with pytest.raises(MalformedLogError):
            list(open_avro("x", container(content(), count, "null")).records())


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        ["null", "long"],
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]},
        {"type": "record", "name": "r", "fields": [field(1, "a", "r")]},
        {"type": "record", "name": "r", "fields": [field(1, "a", ["null", "r"])]},
        {"type": "record", "name": "r", "fields": [field(1, "a", {"type": "array", "items": "null"})]},
        {"type": "record", "name": "r", "fields": [field(1, "a", {"type": "fixed", "name": "f", "size": -1})]},
        {"type": "record", "name": "r", "fields": [field(1, "a", "no such type")]},
        {"type": "record", "name": "r", "fields": [field(1, "a", 5)]},
        {"type": "record", "name": "r", "fields": 7},
        None,
    ],
)
def test_a_schema_that_no_manifest_has_is_refused(schema: Any) -> None:
    with pytest.raises(MalformedLogError):
        list(open_avro("x", container(content(), 100, "null", schema)).records())


def test_a_type_that_grows_with_each_use_is_refused() -> None:
    kind: Any = {"type": "record", "name": "r0", "fields": [field(1, "a", "long")]}
    for level in range(1, 30):
        fields = [field(1, "a", kind), field(2, "b", f"r{level - 1}")]
        kind = {"type": "record", "name": f"r{level}", "fields": fields}
    with pytest.raises(MalformedLogError, match="too large"):
        open_avro("x", container(b"", 0, "null", kind))


def test_a_type_may_be_used_again_by_its_name() -> None:
    pair = {"type": "record", "name": "pair", "fields": [field(3, "k", "int")]}
    schema = {"type": "record", "name": "r", "fields": [field(1, "a", pair), field(2, "b", "pair")]}
    assert list(open_avro("x", container(b"\x02\x04", 1, "null", schema)).records()) == [
        {"f1": {"f3": 1}, "f2": {"f3": 2}}
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "t", {"id": "long", "name": "string"}, version=2)
    lake.partition_by((1, "bucket[4]"))
    lake.append([{1: n, 2: f"n{n}"} for n in range(8)])
    return lake


def files_in_sql(catalog: Catalog) -> int:
    with catalog.store.read() as conn:
        tables = ("dl_iceberg_manifests", "dl_iceberg_snapshot_manifests", "dl_iceberg_files", "dl_file_bounds")
        return sum(conn.sql(f"select count(*) as n from {table}")[0]["n"] for table in tables)


@pytest.mark.parametrize("seed", range(sized(30, 2000)))
def test_a_damaged_file_is_a_failed_plan_or_a_plan(lake: Lake, tmp_path: Path, seed: int) -> None:
    import deltalakedb

    random = Random(seed)
    victim = random.choice(sorted((tmp_path / "t" / "metadata").glob("*.avro")))
    data = bytearray(victim.read_bytes())
    for _ in range(random.randint(1, 5)):
        place = random.randrange(len(data))
        if random.random() < 0.3:
            del data[place : place + random.choice((1, 100, 10**6))]
        data = data or bytearray(b"x")
        data[min(place, len(data) - 1)] = random.randrange(256)
    victim.write_bytes(data)
    with deltalakedb.connect(f"deltasql://sqlite/{tmp_path}/catalog.db") as catalog:
        answer = PlanService(catalog).plan(NAME, 7, lake.metadata(), {})
        assert answer["status"] in ("completed", "failed")
        if answer["status"] == "failed":
            assert set(answer["error"]) == {"message", "type", "code"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lake: lake.manifests[0].update(partition_spec_id=9), "partition spec 9"),
        (lambda lake: lake.manifests[0].update(manifest_path="file:///nowhere/m.avro"), "does not exist"),
        (lambda lake: lake.manifests[0].update(manifest_path="x" * 5000), "longer than"),
        (lambda lake: lake.manifests[0].update(content=1), "in a manifest of deletes"),
        (lambda lake: lake.manifests[0].update(manifest_path="ftp://host/m.avro"), "Unknown scheme"),
    ],
)
def test_a_manifest_list_that_cannot_be_right_is_told(catalog: Catalog, lake: Lake, change: Any, message: str) -> None:
    change(lake)
    lake.commit("append")
    answer = PlanService(catalog).plan(NAME, 7, lake.metadata(), {})
    assert answer["status"] == "failed"
    assert message in answer["error"]["message"]
    assert files_in_sql(catalog) == 0


def test_an_existing_file_without_a_sequence_number_is_refused(catalog: Catalog, lake: Lake) -> None:
    # By the number of a later manifest, older deletes would not apply to it.
    for file in lake.files:
        file.sequence_number = None
    lake.rewrite()
    answer = PlanService(catalog).plan(NAME, 7, lake.metadata(), {})
    assert "an existing file has no sequence number" in answer["error"]["message"]


def test_metadata_without_what_a_plan_needs_is_refused(catalog: Catalog, lake: Lake) -> None:
    for key in ("schemas", "partition-specs"):
        metadata = lake.metadata()
        metadata[key] = [5]
        with pytest.raises(MalformedLogError):
            PlanService(catalog).plan(NAME, 7, metadata, {})


def test_names_that_rise_in_a_manifest_are_found_by_their_ids(catalog: Catalog, lake: Lake) -> None:
    """Fields are found by ids, not by names: a writer may call them what it likes."""
    schema = list_schema(2)
    names = {item["name"]: f"x{item['field-id']}" for item in schema["fields"]}
    renamed = {**schema, "fields": [{**item, "name": names[item["name"]]} for item in schema["fields"]]}
    rows = [{names[name]: value for name, value in row.items() if name in names} for row in lake.manifests]
    stream = io.BytesIO()
    fastavro.writer(stream, renamed, rows)
    path = Path(lake.snapshots[-1]["manifest-list"].removeprefix("file://"))
    path.write_bytes(stream.getvalue())
    assert len(PlanService(catalog).plan(NAME, 7, lake.metadata(), {})["file-scan-tasks"]) == len(lake.files)
