"""Cases of Delta logs: commits, checkpoints of all kinds, hints, deletion vectors, statistics, data files."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb import DeltaTable, connect
from deltalakedb.data.deletion_vectors import DeletionVectors, decode_bitmap, decode_z85, encode_bitmap, encode_z85
from deltalakedb.files.checkpoint_reader import split_lines
from deltalakedb.files.optional_files import hinted_version
from deltalakedb.files.parsed_stats import ParsedPartitionValues, ParsedStats
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.actions import CommitInfo, DeletionVector, Metadata
from deltalakedb.log.protocol.commit import iter_actions, parse_action, render_line
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.log.schema.types import leaf_columns, parse_schema, to_arrow_type
from deltalakedb.log.statistics.bounds import compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns
from deltalakedb.log.statistics.file_bounds import bounds_of_file
from deltalakedb.log.statistics.stats import parse_stats, typed_value, value_at
from deltalakedb.storage.location import open_storage
from tests.files.checkpoints import ADD, REMOVE, TABLE_ACTIONS, TEXT_MAP, VECTOR, write_parquet
from tests.fuzz.cases import parser
from tests.fuzz.mutations import damage_bytes, damage_json, damage_text, damaged_json_text

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {"comment": "a name"}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "place", "type": {"type": "struct", "fields": [
            {"name": "city", "type": "string", "nullable": True, "metadata": {}}]}, "nullable": True, "metadata": {}},
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True,
         "metadata": {}},
        {"name": "ratio", "type": "double", "nullable": True, "metadata": {}},
    ],
}  # fmt: skip
STATS: Json = {
    "numRecords": 3,
    "minValues": {"id": 1, "name": "a", "price": 1.25, "at": "2026-01-01T00:00:00.000Z", "place": {"city": "B"},
                  "ratio": -0.5},
    "maxValues": {"id": 9, "name": "z", "price": 12.5, "at": "2026-02-01T00:00:00.999Z", "place": {"city": "W"},
                  "ratio": 1e10},
    "nullCount": {"id": 0, "name": 1, "price": 0, "at": 0, "place": {"city": 0}, "tags": 0, "ratio": 0},
    "tightBounds": True,
}  # fmt: skip
PROTOCOL: Json = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                               "writerFeatures": ["deletionVectors"]}}  # fmt: skip
METADATA: Json = {
    "metaData": {
        "id": "11111111-2222-3333-4444-555555555555",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {"delta.enableDeletionVectors": "true"},
        "createdTime": 1_700_000_000_000,
    }
}
INFO: Json = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {},
                             "inCommitTimestamp": 5, "operationMetrics": {"numFiles": "1"}}}  # fmt: skip
DOMAIN: Json = {"domainMetadata": {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["id"]]}',
                                   "removed": False}}  # fmt: skip
TXN: Json = {"txn": {"appId": "app", "version": 7, "lastUpdated": 1_700_000_000_000}}


@cache
def inline_vector() -> Json:
    bitmap = encode_bitmap(np.array([0, 2], np.uint64))
    text = encode_z85(bitmap + bytes(-len(bitmap) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 2}


def add_of(number: int, *, vector: bool = False) -> Json:
    add: Json = {
        "path": f"day=2026-01-01/part-{number:05d}.parquet",
        "partitionValues": {"day": "2026-01-01"},
        "size": 1234,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": json.dumps(STATS),
    }
    return {"add": add | ({"deletionVector": inline_vector()} if vector else {})}


def remove_of(number: int) -> Json:
    add = add_of(number)["add"]
    shared = {name: add[name] for name in ("path", "dataChange", "partitionValues", "size")}
    return {"remove": {**shared, "deletionTimestamp": 1_700_000_000_000, "extendedFileMetadata": True}}


CDC: Json = {"cdc": {"path": "_change_data/x.parquet", "partitionValues": {"day": "2026-01-01"}, "size": 5,
                     "dataChange": False}}  # fmt: skip
FIRST = [INFO, PROTOCOL, METADATA, add_of(1), add_of(2), TXN, DOMAIN]
SECOND = [INFO, remove_of(1), add_of(3, vector=True), CDC]
VALUES = [json.dumps(SCHEMA), json.dumps(STATS), inline_vector(), {"day": None}, "__HIVE_DEFAULT_PARTITION__"]


def damaged_line(random: Random, action: Json) -> bytes:
    """A line of a commit; texts that are JSON themselves are damaged inside."""
    ((kind, fields),) = action.items()
    for name, inner in (("schemaString", SCHEMA), ("stats", STATS)):
        if name in fields and random.random() < 0.5:
            text = damaged_json_text(random, inner).decode("utf-8", "replace")
            return json.dumps({kind: {**fields, name: text}}).encode()
    return damaged_json_text(random, action, VALUES)


def lines_of(random: Random, actions: list[Json], *, damaged: bool = True) -> bytes:
    """A commit with one damaged line, or with damaged bytes."""
    lines = [json.dumps(action).encode() for action in actions]
    if damaged:
        place = random.randrange(len(lines))
        lines[place] = damaged_line(random, actions[place])
    data = b"\n".join(lines) + b"\n"
    return damage_bytes(random, data, [data]) if damaged and random.random() < 0.2 else data


@parser("actions of a commit", says=("table shop.orders, version 4",), cases=150)
def parse_commit(random: Random) -> object:
    data = lines_of(random, random.choice((FIRST, SECOND)))
    actions = list(iter_actions(split_lines([data[:50], data[50:]]), table="shop.orders", version=4))
    for action in actions:
        line = render_line(action)
        assert render_line(parse_action(line, where="again")) == line
        if isinstance(action, CommitInfo):
            _ = (action.operation, action.timestamp, action.in_commit_timestamp, action.txn_id)
    state = SnapshotState()
    state.apply_commit(actions)
    return state


@parser("schemas of tables", says=("schema",))
def parse_table_schema(random: Random) -> object:
    return to_arrow_type(parse_schema(damaged_json_text(random, SCHEMA).decode("utf-8", "replace")))


@parser("statistics", cases=150)
def read_statistics(random: Random) -> object:
    """Never an error: a file without usable statistics is legal."""
    text = damaged_json_text(random, STATS).decode("utf-8", "replace")
    schema = parse_schema(json.dumps(SCHEMA))
    columns = bounds_columns(schema, ["day"], {})
    partitions: Mapping[str, str | None] = {"day": random.choice(("2026-01-01", None, "", "x", "99999999-01-01"))}
    compute_bounds(columns, [(text, partitions), (json.dumps(STATS), partitions)])
    bounds_of_file(columns, text, json.dumps(partitions))
    for exact in (False, True):
        stats = parse_stats(text, exact=exact)
        bounds = {} if stats is None else stats.min_values
        for leaf in leaf_columns(schema):
            typed_value(value_at(bounds, leaf.physical_path), leaf.type)
    metadata = parse_action(json.dumps(METADATA), where="metadata")
    assert isinstance(metadata, Metadata)
    return ParsedStats(metadata).parse(pa.array([text, None, json.dumps(STATS)]))


@parser("partition values")
def read_partition_values(random: Random) -> object:
    metadata = parse_action(json.dumps(METADATA), where="metadata")
    assert isinstance(metadata, Metadata)
    value = damage_text(random, "2026-01-01")
    return ParsedPartitionValues(metadata).parse(pa.array([json.dumps({"day": value})]))


@parser("hints to checkpoints")
def read_hint(random: Random) -> object:
    return hinted_version(
        damaged_json_text(random, {"version": 4, "size": 9, "checksum": None, "parts": [1, {"a": 2}]})
    )


# ---- whole tables


@contextmanager
def table_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="orders-"))
    (folder / "_delta_log").mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def log_name(version: int, end: str = "json") -> str:
    return f"_delta_log/{version:020d}.{end}"


def read_log(folder: Path) -> object:
    """Everything that the log says, as a reader of files sees it."""
    snapshot = FileTxnLogReader(folder).snapshot()
    return [snapshot.files().read_all(), snapshot.tombstones().read_all(), snapshot.app_transactions(),
            snapshot.domain_metadata(), snapshot.timestamp_ms]  # fmt: skip


def read_table(folder: Path) -> object:
    """What users ask of a table."""
    table = DeltaTable(folder)
    return [table.schema().to_arrow(), table.files(), table.get_add_actions(flatten=True), table.history(),
            table.metadata(), table.protocol()]  # fmt: skip


@parser("logs of tables", says=("orders-",), cases=40)
def read_damaged_log(random: Random) -> object:
    with table_folder() as folder:
        Path(folder, log_name(0)).write_bytes(lines_of(random, FIRST, damaged=random.random() < 0.6))
        Path(folder, log_name(1)).write_bytes(lines_of(random, SECOND, damaged=random.random() < 0.6))
        if random.random() < 0.2:
            Path(folder, "_delta_log/_last_checkpoint").write_bytes(
                damaged_json_text(random, {"version": 1, "size": 2})
            )
        add_odd_names(random, folder)
        return read_log(folder)


def add_odd_names(random: Random, folder: Path) -> None:
    """Files in the log whose names overlap, repeat or are of versions that cannot be."""
    names = [
        log_name(0, "00000000000000000001.compacted.json").replace(".0", ".0", 1), "99999999999999999999.json",
        "00000000000000000003.json", "00000000000000000001.checkpoint.0000000002.0000000001.parquet",
        "00000000000000000001.checkpoint.0000000001.9999999999.parquet", "00000000000000000001.crc", "x.json.tmp",
        "00000000000000000001.00000000000000000000.compacted.json", "0000000000000000000１.json",
        "09223372036854775807.checkpoint.parquet", "-0000000000000000001.json",
    ]  # fmt: skip
    for name in random.sample(names, random.choice((0, 0, 0, 1, 2))):
        Path(folder, "_delta_log", Path(name).name).write_bytes(lines_of(random, SECOND))


@parser("tables of files", also=(ValueError,), cases=25)
def read_damaged_table(random: Random) -> object:
    with table_folder() as folder:
        Path(folder, log_name(0)).write_bytes(lines_of(random, FIRST))
        Path(folder, log_name(1)).write_bytes(lines_of(random, SECOND, damaged=random.random() < 0.3))
        return read_table(folder)


@parser("tables that are attached", cases=15)
def attach_damaged_table(random: Random) -> object:
    """The log as SQL takes it, which it is read from afterwards."""
    with table_folder() as folder:
        Path(folder, log_name(0)).write_bytes(lines_of(random, FIRST))
        Path(folder, log_name(1)).write_bytes(lines_of(random, SECOND, damaged=random.random() < 0.3))
        with connect(folder / "catalog.db", warehouse=str(folder / "lake")) as catalog:
            catalog.attach_table(folder, "shop.orders")
            table = catalog.table("shop.orders")
            return [table.schema().to_arrow(), table.files(), table.get_add_actions(), table.history()]


# ---- checkpoints


def checkpoint_actions() -> list[Json]:
    return [PROTOCOL, METADATA, TXN, DOMAIN, remove_of(1), add_of(2), add_of(3, vector=True), add_of(4)]


@cache
def plain_checkpoint(kind: int) -> bytes:
    choices: list[dict[str, Any]] = [
        {},
        {"compression": "none", "use_dictionary": False},
        {"data_page_version": "2.0"},
        {"compression": "zstd", "row_group_size": 2},
        {"compression": "gzip"},
    ]
    with table_folder() as folder:
        path = folder / "checkpoint.parquet"
        write_parquet(path, checkpoint_actions(), **choices[kind])
        return path.read_bytes()


def damaged_parquet(random: Random, data: bytes) -> bytes:
    """A Parquet file with damage in its footer, in its pages or anywhere; the length of the footer mostly stays."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, pages = data[-8 - length : -8], data[: -8 - length]
    match random.randrange(4):
        case 0:
            return damage_bytes(random, data)
        case 1:
            return damage_bytes(random, pages, [data], first=4) + footer + data[-8:]
        case _:
            damaged = damage_bytes(random, footer, [footer])
            size = len(damaged) if random.random() < 0.9 else random.choice((0, 1, 2**31 - 1, 2**32 - 1, length + 1))
            return pages + damaged + size.to_bytes(4, "little") + b"PAR1"


def write_checkpoint(folder: Path, data: bytes) -> None:
    """A table whose state is in a checkpoint alone."""
    Path(folder, log_name(1, "checkpoint.parquet")).write_bytes(data)
    Path(folder, log_name(2)).write_bytes(json.dumps(add_of(9)).encode())


@parser("checkpoints with damaged bytes", says=("orders-",), cases=60)
def read_damaged_checkpoint(random: Random) -> object:
    with table_folder() as folder:
        write_checkpoint(folder, damaged_parquet(random, plain_checkpoint(random.randrange(5))))
        return read_log(folder)


ODD_TYPES = (
    pa.int8(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.date32(),
    pa.timestamp("ns"), pa.decimal128(38, 10), pa.list_(pa.string()), pa.struct([("a", pa.int32())]),
    pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct([("path", pa.string())])), TEXT_MAP, VECTOR,
    pa.dictionary(pa.int32(), pa.string()), pa.null(), pa.binary(4), pa.time64("us"), pa.uint64(), pa.float16(),
)  # fmt: skip


def odd_value(random: Random, kind: pa.DataType, depth: int = 0) -> Any:
    """A value of a type, as Arrow's builders take it."""
    if random.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {item.name: odd_value(random, item.type, depth + 1) for item in kind}
    if pa.types.is_map(kind):
        return [("k", odd_value(random, kind.item_type)) for _ in range(random.choice((0, 1, 2)))]
    if pa.types.is_list(kind):
        return [odd_value(random, kind.value_type, depth + 1) for _ in range(random.choice((0, 1, 3)))]
    if pa.types.is_dictionary(kind):
        return "x"
    if pa.types.is_integer(kind):
        return random.choice((0, 1, 5, 127))
    if pa.types.is_floating(kind):
        return random.choice((0.0, 1.5, float("nan"), float("inf")))
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return b"\xff" * kind.byte_width
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return random.choice(("", "x", "{}", "../../x", "a\0b", "a\nb", json.dumps(STATS), json.dumps(SCHEMA), "é"))
    if pa.types.is_binary(kind):
        return random.choice((b"", b"\xff\xfe", b"x", b"{}"))
    return pa.nulls(1, kind)[0].as_py() if pa.types.is_null(kind) else {
        "bool": True, "date32[day]": 1, "time64[us]": 5,
    }.get(str(kind), 1)  # fmt: skip


def odd_checkpoint(random: Random) -> bytes:
    """A checkpoint with columns of other types, missing, unknown or repeated ones, and values that are null."""
    kinds: dict[str, dict[str, pa.DataType]] = {
        name: {item.name: item.type for item in kind} for name, kind in TABLE_ACTIONS.items()
    }
    kinds |= {"add": dict(ADD), "remove": dict(REMOVE)}
    if random.random() < 0.3:
        kinds["add"]["stats_parsed"] = pa.struct([("numRecords", pa.int64()), ("minValues", random.choice(ODD_TYPES))])
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = kinds[random.choice(list(kinds))]
        name = random.choice(list(kind)) if kind else "x"
        match random.randrange(5):
            case 0:
                kind.pop(name, None)
            case 1:
                kind[f"{name}_"] = random.choice(ODD_TYPES)
            case _:
                kind[name] = random.choice(ODD_TYPES)
    schema = pa.schema(
        [(name, pa.struct(list(fields.items())) if fields else pa.int32()) for name, fields in kinds.items()]
    )
    if random.random() < 0.1:
        schema = schema.set(
            random.randrange(len(schema)), pa.field(random.choice(list(kinds)), random.choice(ODD_TYPES))
        )
    rows = _odd_rows(random, schema)
    sink = pa.BufferOutputStream()
    columns = [pa.array([row.get(item.name) for row in rows], item.type) for item in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink, row_group_size=random.choice((1, 100)))
    return bytes(sink.getvalue())


def _odd_rows(random: Random, schema: pa.Schema) -> list[Json]:
    rows: list[Json] = []
    for action in checkpoint_actions():
        ((name, fields),) = action.items()
        index = schema.get_field_index(name)
        if index < 0 or not pa.types.is_struct(schema.field(index).type):
            continue
        value = {}
        for item in schema.field(index).type:
            given = fields.get(item.name)
            given = list(given.items()) if isinstance(given, dict) and pa.types.is_map(item.type) else given
            try:
                pa.array([given], item.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                given = odd_value(random, item.type)
            value[item.name] = None if random.random() < 0.03 else given
        rows.append({name: value})
    return rows


@parser("checkpoints with odd columns", says=("orders-",), cases=60)
def read_odd_checkpoint(random: Random) -> object:
    try:
        data = odd_checkpoint(random)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # Arrow does not write such a file
    with table_folder() as folder:
        write_checkpoint(folder, data)
        return read_log(folder)


@parser("checkpoints of version 2", says=("orders-",), cases=60)
def read_checkpoint_v2(random: Random) -> object:
    """JSON with sidecars, or Parquet that names sidecars."""
    with table_folder() as folder:
        sidecars = folder / "_delta_log/_sidecars"
        sidecars.mkdir()
        data = plain_checkpoint(0)
        (sidecars / "one.parquet").write_bytes(damaged_parquet(random, data) if random.random() < 0.4 else data)
        sidecar = {"sidecar": {"path": "one.parquet", "sizeInBytes": 5, "modificationTime": 6, "tags": {}}}
        protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"],
                                 "writerFeatures": ["v2Checkpoint"]}}  # fmt: skip
        actions = [
            {"checkpointMetadata": {"version": 1, "tags": {}}},
            protocol,
            METADATA,
            sidecar,
            add_of(8),
            remove_of(7),
        ]
        name = log_name(1, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
        Path(folder, name).write_bytes(lines_of(random, actions, damaged=random.random() < 0.7))
        Path(folder, log_name(2)).write_bytes(json.dumps(add_of(9)).encode())
        return read_log(folder)


# ---- deletion vectors and data files


@cache
def bitmaps() -> tuple[bytes, ...]:
    rows = (
        np.arange(5000),
        np.array([1, 5, 2**33 + 7]),
        np.arange(0, 200_000, 7),
        np.array([], np.int64),
        np.arange(3),
    )
    return tuple(encode_bitmap(numbers.astype(np.uint64)) for numbers in rows)


@parser("bitmaps of deletion vectors", says=("deletion vector",), cases=150)
def read_bitmap(random: Random) -> object:
    return decode_bitmap(damage_bytes(random, random.choice(bitmaps()), bitmaps()))


@parser("texts of deletion vectors", says=("Z85",))
def read_z85(random: Random) -> object:
    return decode_z85(damage_text(random, inline_vector()["pathOrInlineDv"]))


@parser("files of deletion vectors", says=("orders-",), cases=80)
def read_vector_file(random: Random) -> object:
    with table_folder() as folder:
        content = bytearray(b"\x01")
        bitmap = random.choice(bitmaps())
        damaged = damage_bytes(random, bitmap) if random.random() < 0.5 else bitmap
        content += len(damaged).to_bytes(4, "big") + damaged + zlib.crc32(damaged).to_bytes(4, "big")
        data = damage_bytes(random, bytes(content)) if random.random() < 0.5 else bytes(content)
        (folder / "deletion_vector.bin").write_bytes(data)
        fields = damage_json(random, {"offset": 1, "size": len(damaged), "cardinality": len(decode_bitmap(bitmap))})
        numbers = [fields.get(name) if isinstance(fields, dict) else None for name in ("size", "cardinality", "offset")]
        size, cardinality, offset = (value if type(value) is int and abs(value) < 2**63 else 1 for value in numbers)
        target = random.choice(("deletion_vector.bin", (folder / "deletion_vector.bin").as_uri(), "missing.bin"))
        kind = random.choice(("p", "p", "p", "u", "x", "i"))
        vector = DeletionVector(kind, target, size, cardinality, offset)
        return DeletionVectors(open_storage(folder)).rows(vector)


@cache
def data_file(kind: int) -> bytes:
    rows = {"id": [1, 2, 3], "name": ["a", None, "c"], "ratio": [0.5, None, 1.0], "tags": [["x"], [], None]}
    choices: list[Json] = [{}, {"compression": "none"}, {"data_page_version": "2.0", "compression": "zstd"}]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(rows), sink, **choices[kind])
    return bytes(sink.getvalue())


@parser("data files", also=(OSError, pa.ArrowException), cases=40)
def read_data_file(random: Random) -> object:
    """Errors of Arrow pass: that is what `deltalake` raises for a file that is no Parquet."""
    with table_folder() as folder:
        columns = [item for item in SCHEMA["fields"] if item["name"] in ("id", "name", "ratio", "tags")]
        metadata = {"metaData": {**METADATA["metaData"], "partitionColumns": [],
                                 "schemaString": json.dumps({"type": "struct", "fields": columns})}}  # fmt: skip
        data = damaged_parquet(random, data_file(random.randrange(3)))
        (folder / "x.parquet").write_bytes(data)
        add = {"add": {"path": "x.parquet", "partitionValues": {}, "size": len(data), "modificationTime": 1,
                       "dataChange": True}}  # fmt: skip
        if random.random() < 0.3:
            add["add"]["deletionVector"] = inline_vector()
        lines = b"\n".join(json.dumps(action).encode() for action in (PROTOCOL, metadata, add))
        Path(folder, log_name(0)).write_bytes(lines)
        return DeltaTable(folder).to_pyarrow_table()
