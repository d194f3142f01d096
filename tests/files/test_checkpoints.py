"""Checkpoints of every kind, written by hand, give the same snapshot as the commits they stand for."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltalakedb.files import FileTxnLogReader
from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata
from deltalakedb.log.protocol.codec import from_sql_text
from tests.files.checkpoints import (
    ADD,
    METADATA,
    PROTOCOL,
    V2_PROTOCOL,
    Action,
    checkpoint_schema,
    classic,
    multipart,
    v2,
)
from tests.files.conftest import OpenLog
from tests.files.expected import files_of
from tests.fixtures.handmade import HandmadeTable, add, remove

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
INLINE = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91", "sizeInBytes": 40, "cardinality": 2}
ADDS = [
    add("plain.parquet"),
    add("p=a%20b/x.parquet", partitionValues={"p": "a b", "q": None}, tags={"k": 'say "hi"\\\n', "none": None}),
    add("dv.parquet", deletionVector=VECTOR, baseRowId=7, defaultRowCommitVersion=2),
    add("inline.parquet", deletionVector=INLINE, clusteringProvider="liquid"),
    add("no-stats.parquet", records=None),
    add("s3://elsewhere/absolute.parquet", stats='{"numRecords":1,"minValues":{"name":"back\\\\slash"}}'),
]
TOMBSTONE = remove("gone.parquet", extendedFileMetadata=True, partitionValues={"p": ""}, size=3)
OTHERS: list[Action] = [
    {"txn": {"appId": "stream", "version": 2**53 + 1, "lastUpdated": 5}},
    {"txn": {"appId": "other", "version": 1}},
    {"domainMetadata": {"domain": "my.domain", "configuration": '{"a":1}', "removed": False}},
]
STATE: list[Action] = [METADATA, *ADDS, TOMBSTONE, *OTHERS]

Writer = Callable[[Path, int], object]
WRITERS: dict[str, Writer] = {
    "classic": lambda log, version: classic(log, version, [PROTOCOL, *STATE]),
    "classic in many row groups": lambda log, version: classic(log, version, [PROTOCOL, *STATE], row_group_size=2),
    "classic without footer statistics": lambda log, version: classic(
        log, version, [PROTOCOL, *STATE], row_group_size=3, write_statistics=False
    ),
    "multi-part": lambda log, version: multipart(log, version, [PROTOCOL, *STATE], 3),
    "V2 Parquet": lambda log, version: v2(log, version, [V2_PROTOCOL, *STATE]),
    "V2 JSON": lambda log, version: v2(log, version, [V2_PROTOCOL, *STATE], form="json"),
    "V2 Parquet with sidecars": lambda log, version: v2(log, version, [V2_PROTOCOL, *STATE], sidecars=2),
    "V2 JSON with sidecars": lambda log, version: v2(log, version, [V2_PROTOCOL, *STATE], form="json", sidecars=3),
    "V2 under a classic name": lambda log, version: v2(
        log, version, [V2_PROTOCOL, *STATE], sidecars=1, classic_name=True
    ),
}


def expected(*adds: Action) -> dict[tuple[str, str], Action]:
    found = {}
    for action in adds:
        fields = {name: value for name, value in action["add"].items() if name != "dataChange"}
        vector = fields.get("deletionVector")
        dv_id = ""
        if vector:
            dv_id = (
                vector["storageType"]
                + vector["pathOrInlineDv"]
                + (f"@{vector['offset']}" if "offset" in vector else "")
            )
        found[fields["path"], dv_id] = fields
    return found


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_checkpoint_gives_the_same_state(kind: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    """The log starts at the checkpoint: nothing below it is left."""
    WRITERS[kind](handmade.log, 7)
    reader = open_log(handmade.path)
    assert (reader.earliest_version(), reader.latest_version()) == (7, 7)
    snapshot = reader.snapshot()
    assert files_of(snapshot) == expected(*ADDS)
    assert snapshot.metadata.id == METADATA["metaData"]["id"]
    assert snapshot.protocol.reader_features == (("v2Checkpoint",) if "V2" in kind else None)
    assert snapshot.app_transactions() == {
        "stream": AppTransaction("stream", 2**53 + 1, 5),
        "other": AppTransaction("other", 1),
    }
    assert snapshot.domain_metadata() == {"my.domain": DomainMetadata("my.domain", '{"a":1}', False)}
    assert snapshot.tombstones().read_all().to_pylist() == [
        {
            "path": "gone.parquet",
            "data_change": True,
            "deletion_timestamp": 1_700_000_001_000,
            "extended_file_metadata": True,
            "partition_values": '{"p":""}',
            "size": 3,
            "stats": None,
            "tags": None,
            "deletion_vector": None,
            "base_row_id": None,
            "default_row_commit_version": None,
            "extra": "",
        }
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_commits_after_a_checkpoint_speak_last(kind: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    WRITERS[kind](handmade.log, 7)
    handmade.version = 7
    newer = add("plain.parquet", records=99)
    handmade.commit(newer, remove("dv.parquet", deletionVector=VECTOR), {"txn": {"appId": "stream", "version": 9}})
    handmade.commit(
        add("dv.parquet", deletionVector=VECTOR | {"offset": 8}),
        add("gone.parquet"),
        remove("inline.parquet"),  # another file key: the one with a deletion vector stays
        {"domainMetadata": {"domain": "my.domain", "configuration": "", "removed": True}},
    )
    snapshot = open_log(handmade.path).snapshot()
    replaced = add("dv.parquet", deletionVector=VECTOR | {"offset": 8})
    kept = [ADDS[1], ADDS[3], ADDS[4], ADDS[5]]
    assert files_of(snapshot) == expected(newer, *kept, replaced, add("gone.parquet"))
    assert snapshot.app_transactions()["stream"].version == 9
    assert snapshot.domain_metadata() == {}
    removed = snapshot.tombstones().read_all().to_pylist()
    assert [(row["path"], row["deletion_vector"] is not None) for row in removed] == [
        ("dv.parquet", True),
        ("inline.parquet", False),
    ]


def test_a_sidecar_named_by_its_whole_uri_is_found(handmade: HandmadeTable, open_log: OpenLog) -> None:
    path = v2(handmade.log, 3, [V2_PROTOCOL, *STATE], form="json", sidecars=1)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "sidecar" in action:
            action["sidecar"]["path"] = "s3://bucket/table/_delta_log/_sidecars/" + action["sidecar"]["path"]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert files_of(open_log(handmade.path).snapshot()) == expected(*ADDS)


@pytest.mark.parametrize("int96", [False, True])
def test_parsed_statistics_stand_in_where_the_text_is_missing(
    int96: bool, handmade: HandmadeTable, open_log: OpenLog
) -> None:
    """Spark writes a timestamp as INT96: an instant, though the file names no zone."""
    values = pa.struct(
        [("at", pa.timestamp("us", "UTC")), ("n", pa.int32()), ("deep", pa.struct([("d", pa.date32())]))]
    )
    counts = pa.struct([("at", pa.int64()), ("n", pa.int64())])
    parsed = pa.struct(
        [("numRecords", pa.int64()), ("minValues", values), ("maxValues", values), ("nullCount", counts)]
    )
    late = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    stats = {
        "numRecords": 2,
        "minValues": {"at": dt.datetime(1, 1, 1, tzinfo=dt.UTC), "n": None, "deep": {"d": dt.date(2026, 1, 2)}},
        "maxValues": {"at": late, "n": None, "deep": None},
        "nullCount": {"at": 0, "n": 2},
    }
    actions = [
        add("parsed", records=None, stats_parsed=stats),
        add("text"),
        add("both", stats_parsed=stats),
        add("neither", records=None),
    ]
    schema = checkpoint_schema(ADD | {"stats_parsed": parsed})
    classic(handmade.log, 0, [PROTOCOL, METADATA, *actions], schema=schema, use_deprecated_int96_timestamps=int96)
    files = {path: fields for (path, _), fields in files_of(open_log(handmade.path).snapshot()).items()}
    assert files["parsed"]["stats"] == (
        '{"numRecords":2,"minValues":{"at":"0001-01-01T00:00:00.000000Z","deep":{"d":"2026-01-02"}},'
        '"maxValues":{"at":"9999-12-31T23:59:59.999000Z"},"nullCount":{"at":0,"n":2}}'
    )
    assert files["text"]["stats"] == files["both"]["stats"] == actions[1]["add"]["stats"]
    assert "stats" not in files["neither"]


def test_fields_a_checkpoint_has_beyond_the_protocol_are_kept(handmade: HandmadeTable, open_log: OpenLog) -> None:
    schema = checkpoint_schema(ADD | {"futureField": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])})
    future = add("a.parquet", futureField={"a": 1, "b": ["x", None]})
    classic(handmade.log, 0, [PROTOCOL, METADATA, future, add("b.parquet")], schema=schema)
    rows = open_log(handmade.path).snapshot().files().read_all().to_pylist()
    assert {row["path"]: row["extra"] for row in rows} == {
        "a.parquet": '{"futureField":{"a":1,"b":["x",null]}}',
        "b.parquet": "",
    }


def test_empty_feature_lists_below_the_feature_versions_mean_none(handmade: HandmadeTable, open_log: OpenLog) -> None:
    """Some writers fill the list columns; the protocol wants them only from reader 3 and writer 7 on."""
    padded = {"protocol": PROTOCOL["protocol"] | {"readerFeatures": [], "writerFeatures": []}}
    classic(handmade.log, 0, [padded, METADATA])
    protocol = open_log(handmade.path).snapshot().protocol
    assert (protocol.reader_features, protocol.writer_features, protocol.extra) == (None, None, "")


def test_paths_with_nul_and_backslash_survive_a_checkpoint(handmade: HandmadeTable, open_log: OpenLog) -> None:
    odd = ["nul\0.parquet", "back\\slash.parquet", "日本/é.parquet"]
    classic(handmade.log, 0, [PROTOCOL, METADATA, *(add(path) for path in odd)])
    handmade.version = 0
    handmade.commit(remove(odd[1]))
    found = open_log(handmade.path).snapshot().files().read_all().column("path").to_pylist()
    assert [from_sql_text(path) for path in found] == [odd[0], odd[2]]


def test_a_checkpoint_that_cannot_be_opened_is_passed_over(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    for number in range(4):
        deltalake.write_deltalake(table, pa.table({"id": [number]}), mode="append")
        if number in (1, 3):
            deltalake.DeltaTable(table).create_checkpoint()
    newest = tmp_path / "t" / "_delta_log" / f"{3:020}.checkpoint.parquet"
    newest.unlink()
    newest.symlink_to(newest)
    assert sum(batch.num_rows for batch in FileTxnLogReader(table).snapshot().files()) == 4
