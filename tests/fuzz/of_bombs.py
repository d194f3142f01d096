"""Small inputs that would take gigabytes of memory or hours of work; each of them is refused, or read in bounds."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltalakedb.data.deletion_vectors import decode_bitmap
from deltalakedb.exceptions import redact
from deltalakedb.iceberg.metadata.table_metadata import parse_table_metadata
from deltalakedb.iceberg.metadata_files import read_metadata_file
from deltalakedb.iceberg.mirror.vectors import deleted_rows
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.bounds import compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns
from tests.fuzz.cases import Run
from tests.fuzz.of_iceberg import lake_files, live_file
from tests.fuzz.of_logs import FIRST, SCHEMA, log_name, read_log, table_folder, write_checkpoint
from tests.fuzz.of_requests import check_answer, orders, served
from tests.fuzz.of_texts import schema

BOMBS: dict[str, Run] = {}
MEGABYTE = 2**20


def bomb(run: Run) -> Run:
    BOMBS[run.__name__.replace("_", " ")] = run
    return run


@bomb
def a_vector_of_all_rows(_: Random) -> object:
    rows = BitMap64()
    rows.add_range(0, 2**33)
    rows.run_optimize()
    return decode_bitmap((1681511377).to_bytes(4, "little") + rows.serialize())


@bomb
def a_vector_that_is_larger_than_the_memory(_: Random) -> object:
    with table_folder() as folder:
        path = folder / "t.puffin"
        path.write_bytes(b"PFA1")
        file = {"file-path": str(path), "record-count": 5, "content-offset": 4, "content-size-in-bytes": 2**40}
        return deleted_rows([live_file("x", file)], None)


@bomb
def gzip_of_zeros_as_metadata(_: Random) -> object:
    packer = zlib.compressobj(9, wbits=31)
    with table_folder() as folder:
        file = folder / "v1.metadata.json"
        parts = [packer.compress(bytes(MEGABYTE)) for _ in range(150)]
        file.write_bytes(b"".join([*parts, packer.flush()]))
        return read_metadata_file(str(file), None)


@bomb
def deep_metadata(_: Random) -> object:
    with table_folder() as folder:
        file = folder / "v1.metadata.json"
        file.write_bytes(gzip.compress(b'{"a":' * 10**6 + b"1" + b"}" * 10**6))
        return parse_table_metadata(read_metadata_file(str(file), None))


@bomb
def a_deflated_block_of_a_manifest(_: Random) -> object:
    data = lake_files()["lists"][0]
    header, sync = data[: data.index(b"avro.codec")], data[-16:]
    packed = zlib.compress(bytes(40 * MEGABYTE), 9, wbits=-15)
    codec = b"\x0eavro.codec".replace(b"\x0e", b"") + b"\x0edeflate\0" + sync
    return list(open_avro("x.avro", header + codec + b"\x02" + _long(len(packed)) + packed + sync).records())


def _long(value: int) -> bytes:
    value <<= 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


@bomb
def a_checkpoint_that_repeats_a_large_text(_: Random) -> object:
    """Ten kilobytes that stand for thirty gigabytes: a dictionary of one path, and how often it comes."""
    sink = pa.BufferOutputStream()

    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 30_000), pa.array(["x" * MEGABYTE]))
    pq.write_table(pa.table({"add": pa.StructArray.from_arrays([paths], ["path"])}), sink, compression="zstd")
    with table_folder() as folder:
        write_checkpoint(folder, bytes(sink.getvalue()))
        return read_log(folder)


@bomb
def deep_lines_of_a_commit(_: Random) -> object:
    for line in (b'{"add":' * 10**5 + b"1" + b"}" * 10**5, b'{"commitInfo":' + b"[" * 10**5 + b"]" * 10**5 + b"}"):
        list(iter_actions([line], table="t", version=1))
    return None


@bomb
def deep_schemas(_: Random) -> object:
    text = '{"type":"array","elementType":' * 10**5 + '"long"' + "}" * 10**5
    return parse_schema(text)


@bomb
def a_path_of_megabytes(_: Random) -> object:
    """An error that quotes it is masked in time that is proportional to its length."""
    line = json.dumps({"add": {"path": "../" + "x" * 5 * MEGABYTE, "partitionValues": {}, "size": 1}}).encode()
    redact("a://b:" * 10**5 + "@" + "secret" * 10**5)
    return list(iter_actions([line], table="t", version=1))


@bomb
def giant_numbers_in_a_predicate(_: Random) -> object:
    parse_predicate("price > 1e999999999 or ratio < -1e999999999 or id = 1e-999999999", schema(), ["day"])
    return parse_predicate(f"id = {'9' * 10**5}", schema(), ["day"])


@bomb
def giant_numbers_in_statistics(_: Random) -> object:
    columns = bounds_columns(parse_schema(json.dumps(SCHEMA)), ["day"], {})
    for number in ("1e999999999", "-1e-999999999", "9" * 4000, "1" * 10**6):
        text = '{"numRecords":1,"minValues":{"price":%s,"ratio":%s,"id":%s},"maxValues":{}}' % ((number,) * 3)
        compute_bounds(columns, [(text, {"day": None})])
    return None


@bomb
def giant_numbers_in_a_filter_of_spark(_: Random) -> object:
    for value in ({"d": "1e999999999"}, {"i": "9" * 4000}, {"date": 10**300}, {"f": "1e999999999"}, {"ts": 10**300}):
        for column in ("price", "id", "ratio", "at", "day"):
            body = json.dumps({"filters": [{"k": "cmp", "c": [column], "o": ">", "v": value}]}).encode()
            check_answer(*served().call("POST", "/bridge/v1/plan", f"{orders()}&version=0", body, {}))
    return None


@bomb
def deep_bodies(_: Random) -> object:
    for depth in (500, 5_000, 100_000):
        body = b'{"filters":[' * depth + b"]}" * depth
        for path in ("/bridge/v1/plan", "/bridge/v1/txn", "/iceberg/v1/namespaces"):
            check_answer(*served().call("POST", path, f"{orders()}&version=0", body, {}))
    return None


@bomb
def versions_that_are_far_apart(_: Random) -> object:
    """A log with the first and the last possible version, and compacted files over all between them."""
    with table_folder() as folder:
        lines = "\n".join(map(json.dumps, FIRST))
        for name in (log_name(0), log_name(2**63 - 1), log_name(0, f"{2**63 - 1:020d}.compacted.json")):
            Path(folder, name).write_text(lines)
        Path(folder, log_name(2**63 - 1, "checkpoint.0000000001.4294967295.parquet")).write_bytes(b"")
        return read_log(folder)
