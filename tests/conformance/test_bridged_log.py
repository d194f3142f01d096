"""BridgedLog: Spark's commits become exactly one version each, or are staged; what it is served is SQL's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltalakedb import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import (
    ConcurrentAppendError,
    ConfigError,
    InvalidCommitError,
    NotWritableError,
    TableExistsError,
    VersionTakenError,
)
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.places import Place, bridge_uri, location_of, path_of
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.transactions.transaction import CatalogTransaction
from tests.conformance.transacting import ids_in, log_files, numbers, open_catalog

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
    separators=(",", ":"),
)


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


@pytest.fixture
def log(catalog: Catalog) -> BridgedLog:
    return BridgedLog(catalog)


def info(operation: str = "WRITE", *, blind: bool = True, **fields: Any) -> dict[str, Any]:
    value = {
        "timestamp": 1_700_000_000_000,
        "operation": operation,
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "isolationLevel": "Serializable",
        "isBlindAppend": blind,
        "operationMetrics": {"numFiles": "1"},
        "engineInfo": "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
        "txnId": str(uuid.uuid4()),
    }
    return {"commitInfo": value | fields}


def metadata(**configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": 1_700_000_000_000,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    stats = json.dumps({"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 3}, "nullCount": {"id": 0}})
    whole = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True, "stats": stats}
    return {"add": whole | fields}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 2, "dataChange": True, "size": 10, "partitionValues": {}}}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def lines(*actions: dict[str, Any]) -> list[bytes]:
    return [json.dumps(action, separators=(",", ":")).encode() for action in actions]


def created(log: BridgedLog, tmp_path: Path, name: str = "orders", **configuration: str) -> str:
    """A table made by Spark's first commit; its bridge path."""
    path = f"/file{tmp_path}/lake/sales/{name}"
    first = lines(info("CREATE TABLE"), PROTOCOL, metadata(**configuration))
    log.commit(place_of(log, path), None, 0, first, str(uuid.uuid4()))
    return path


def place_of(log: BridgedLog, path: str, tx: CatalogTransaction | None = None) -> Place:
    place = log.resolve(path, tx)
    assert place is not None
    return place


def append(log: BridgedLog, path: str, version: int, file: str, tx: CatalogTransaction | None = None) -> str:
    token = str(uuid.uuid4())
    log.commit(place_of(log, path, tx), tx, version, lines(info(), add(file)), token)
    return token


def reader(catalog: Catalog, name: str) -> SqlTxnLogReader:
    with catalog.store.read() as conn:
        return SqlTxnLogReader(catalog.store, require_table(conn, parse_table_name(name)))


def versions(log: BridgedLog, path: str, tx: CatalogTransaction | None = None, start: int = 0) -> list[int]:
    return [entry.version for entry in log.entries(place_of(log, path, tx), tx, start).entries]


# -- paths


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/file/lake/a b/t", "file:///lake/a%20b/t"),
        ("/s3a/bucket/sales/t", "s3://bucket/sales/t"),
        ("/s3a/bucket/100%", "s3://bucket/100%25"),
        ("/gs/bucket/t", "gs://bucket/t"),
        ("/abfss/box@acc.dfs.core.windows.net/t", "abfss://box@acc.dfs.core.windows.net/t"),
    ],
)
def test_a_bridge_path_and_a_location_say_the_same(path: str, location: str) -> None:
    assert location_of(path) == location
    assert path_of(location) == path
    assert bridge_uri(location, "t1").startswith("dldb://t1/")


@pytest.mark.parametrize("path", ["", "/", "/file", "/file/", "file/lake/t", "/nosuch/bucket/t"])
def test_what_is_no_bridge_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        location_of(path)


# -- commits


def test_the_first_commit_in_the_warehouse_creates_the_table_of_that_name(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = f"/file{tmp_path}/lake/sales/orders"
    assert log.entries(place_of(log, path), None, 0).head == -1
    created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    table = catalog.table("sales.orders")
    assert table.version() == 1
    assert [entry["operation"] for entry in catalog.history("sales.orders")] == ["WRITE", "CREATE TABLE"]
    assert catalog.history("sales.orders")[0]["engineInfo"] == "Apache-Spark/4.1.4 Delta-Lake/4.4.0"
    catalog.mirror.flush()
    assert log_files(tmp_path / "lake" / "sales" / "orders") == [f"{v:020d}.json" for v in range(2)]


def test_a_commit_is_exactly_the_next_version_or_refused(log: BridgedLog, tmp_path: Path) -> None:
    path = created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    for version in (0, 1, 3):
        with pytest.raises(VersionTakenError):
            append(log, path, version, "f2.parquet")
    assert versions(log, path) == [0, 1]


def test_a_commit_that_is_sent_again_is_there_once(catalog: Catalog, log: BridgedLog, tmp_path: Path) -> None:
    path = created(log, tmp_path)
    text = lines(info(), add("f1.parquet"))
    for _ in range(3):
        assert log.commit(place_of(log, path), None, 1, text, "the-same-token") == 1
    assert versions(log, path) == [0, 1]
    assert catalog.table("sales.orders").count() == 3


def test_what_is_served_has_the_told_length_no_fence_and_the_actions_of_sql(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    catalog.set_properties("sales.orders", {"delta.enableDeletionVectors": "true"})
    with catalog.begin() as tx:
        tx.write("sales.orders", numbers(7, 8), mode="append")
    for fresh in (log, BridgedLog(catalog)):
        for entry in fresh.entries(place_of(fresh, path), None, 0).entries:
            text = fresh.read(place_of(fresh, path), None, entry.version)
            assert text is not None
            assert (len(text.data), text.modified_ms) == (entry.size, entry.modified_ms)
            protocols = [line for line in text.data.decode().splitlines() if line.startswith('{"protocol"')]
            assert FEATURE not in "".join(protocols)
            served = list(iter_actions(text.data.splitlines(), table="t", version=entry.version))
            (kept,) = list(reader(catalog, "sales.orders").commits(entry.version, entry.version))
            assert served == list(kept.actions)


def test_the_mirror_is_fenced_and_holds_what_spark_said_of_its_commit(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    catalog.mirror.flush()
    first, second = FileTxnLogReader(tmp_path / "lake" / "sales" / "orders").commits(0)
    assert any(FEATURE in str(action) for action in first.actions)
    told = second.commit_info
    assert told is not None
    assert told.value["operationMetrics"] == {"numFiles": "1"}
    assert told.value["deltalakedb"]["table"] == "sales.orders"
    assert told.timestamp == second.timestamp_ms


def test_in_commit_timestamps_are_those_that_spark_has_put_there(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = f"/file{tmp_path}/lake/sales/timed"
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}
    first = [
        info("CREATE TABLE", inCommitTimestamp=1_000),
        protocol,
        metadata(**{"delta.enableInCommitTimestamps": "true"}),
    ]
    log.commit(place_of(log, path), None, 0, lines(*first), "a")
    before = reader(catalog, "sales.timed").snapshot().timestamp_ms
    log.commit(place_of(log, path), None, 1, lines(info(inCommitTimestamp=2_000), add("f")), "b")
    assert before == 1_000
    assert reader(catalog, "sales.timed").snapshot().timestamp_ms == 2_000
    checksum = log.checksum(place_of(log, path), None, 1)
    assert checksum is not None
    assert json.loads(checksum)["inCommitTimestampOpt"] == 2_000
    # The catalog at an instant goes by the transactions' time: neither version was there in 1970.
    moment = int(catalog.sql("select min(committed_at_ms) as t from dl_transactions").column("t")[0].as_py())
    assert catalog.at(moment).table("sales.timed").version() == 0
    assert catalog.at(moment - 1).tables() == []


def test_a_checksum_is_served_for_every_commit_and_adds_up(catalog: Catalog, log: BridgedLog, tmp_path: Path) -> None:
    path = created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    with catalog.begin() as tx:
        tx.write("sales.orders", numbers(7, 8), mode="append")
    log.commit(place_of(log, path), None, 3, lines(info("DELETE", blind=False), remove("f1.parquet")), "d")
    counted = []
    for version in range(4):
        text = log.checksum(place_of(log, path), None, version)
        assert text is not None
        value = json.loads(text)
        assert "writerFeatures" not in value["protocol"]
        counted.append(value["numFiles"])
    assert counted == [0, 1, 2, 1]
    assert log.checksum(place_of(log, path), None, 4) is None


# -- what is not ours, or must not be


def test_a_path_outside_of_the_warehouse_is_not_ours_until_it_is_registered_or_reserved(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = f"/file{tmp_path}/elsewhere/t"
    assert log.resolve(path) is None
    reserved = log.reserve("sales.away", location=f"file://{tmp_path}/elsewhere/t")
    assert reserved.location == f"file://{tmp_path}/elsewhere/t"
    log.commit(place_of(log, path), None, 0, lines(info("CREATE TABLE"), PROTOCOL, metadata()), "a")
    assert catalog.tables() == ["sales.away"]
    assert place_of(BridgedLog(catalog), path).table is not None


def test_no_table_is_created_at_an_odd_place_of_the_warehouse_nor_under_a_taken_name(
    log: BridgedLog, tmp_path: Path
) -> None:
    first = lines(info("CREATE TABLE"), PROTOCOL, metadata())
    with pytest.raises(ConfigError, match="<namespace>/<name>"):
        log.commit(place_of(log, f"/file{tmp_path}/lake/a/b/c"), None, 0, first, "a")
    created(log, tmp_path)
    with pytest.raises(TableExistsError):
        log.reserve("sales.orders")
    with pytest.raises(TableExistsError):
        log.reserve("sales.other", location=f"file://{tmp_path}/lake/sales/orders")


def test_a_commit_with_addresses_of_the_bridge_is_refused(log: BridgedLog, tmp_path: Path) -> None:
    path = created(log, tmp_path)
    with pytest.raises(InvalidCommitError, match="SHALLOW CLONE"):
        append(log, path, 1, "dldb:///file/other/f.parquet")
    assert versions(log, path) == [0]


def test_a_follower_is_served_and_takes_no_commit(catalog: Catalog, log: BridgedLog, tmp_path: Path) -> None:
    import deltalake

    deltalake.write_deltalake(str(tmp_path / "plain"), numbers(1, 2))
    catalog.attach_table(str(tmp_path / "plain"), "sales.plain")
    path = f"/file{tmp_path}/plain"
    (entry,) = log.entries(place_of(log, path), None, 0).entries
    text = log.read(place_of(log, path), None, 0)
    assert text is not None
    assert len(text.data) == entry.size
    with pytest.raises(NotWritableError, match="follower"):
        append(log, path, 1, "f.parquet")


# -- transactions


def test_staged_commits_are_seen_inside_only_and_become_true_at_once(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = created(log, tmp_path)
    inside = f"/file{tmp_path}/lake/sales/inside"
    tx = catalog.begin()
    append(log, path, 1, "f1.parquet", tx)
    append(log, path, 2, "f2.parquet", tx)
    log.commit(place_of(log, inside, tx), tx, 0, lines(info("CREATE TABLE"), PROTOCOL, metadata()), "c")
    assert versions(log, path, tx) == [0, 1, 2]
    assert versions(log, inside, tx) == [0]
    text = log.read(place_of(log, path, tx), tx, 2)
    assert text is not None
    assert b"f2.parquet" in text.data
    assert versions(log, path) == [0]
    assert log.entries(place_of(log, inside), None, 0).entries == ()
    log.prepare(tx)
    assert tx.commit() == {"sales.orders": 2, "sales.inside": 0}
    assert versions(log, path) == [0, 1, 2]
    assert len({entry["txnId"] for entry in catalog.history("sales.orders", limit=2)}) == 1


def test_a_staged_blind_append_is_rebased_and_another_commit_conflicts(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = created(log, tmp_path)
    append(log, path, 1, "f1.parquet")
    blind, other = catalog.begin(), catalog.begin()
    append(log, path, 2, "blind.parquet", blind)
    update = lines(info("UPDATE", blind=False), remove("f1.parquet"), add("f1-new.parquet"))
    log.commit(place_of(log, path, other), other, 2, update, "u")
    append(log, path, 2, "f2.parquet")
    assert versions(log, path, blind) == [0, 1, 2]
    log.prepare(blind)
    assert blind.commit() == {"sales.orders": 3}
    log.prepare(other)
    with pytest.raises(ConcurrentAppendError):
        other.commit()
    assert versions(log, path) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["opened", "file read"])
def test_a_table_that_was_read_under_a_transaction_is_checked(
    catalog: Catalog, log: BridgedLog, tmp_path: Path, how: str
) -> None:
    rates, orders = created(log, tmp_path, "rates"), created(log, tmp_path)
    append(log, rates, 1, "r1.parquet")
    tx = catalog.begin()
    log.entries(place_of(log, rates, tx), tx, 0)
    if how == "file read":
        append(log, rates, 2, "r-own.parquet", tx)  # blind, but its files were looked at too
        assert log.touch(f"{rates}/r1.parquet", tx) == rates
    append(log, orders, 1, "o1.parquet", tx)
    append(log, rates, 2, "r2.parquet")
    log.prepare(tx)
    with pytest.raises(ConcurrentAppendError):
        tx.commit()
    assert versions(log, orders) == [0]


def test_row_ids_that_spark_handed_out_are_given_anew_when_others_came_first(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    path = f"/file{tmp_path}/lake/sales/tracked"
    protocol = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    }
    first = lines(info("CREATE TABLE"), protocol, metadata(**{"delta.enableRowTracking": "true"}))
    log.commit(place_of(log, path), None, 0, first, "a")

    def tracked(file: str) -> list[bytes]:
        mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":2}', "removed": False}
        return lines(info(), add(file, baseRowId=0, defaultRowCommitVersion=1), {"domainMetadata": mark})

    tx = catalog.begin()
    log.commit(place_of(log, path, tx), tx, 1, tracked("staged"), "s")
    log.commit(place_of(log, path), None, 1, tracked("first"), "f")
    log.prepare(tx)
    tx.commit()
    files = reader(catalog, "sales.tracked").snapshot().files_table().to_pylist()
    assert {file["path"]: file["base_row_id"] for file in files} == {"first": 0, "staged": 3}


def test_an_abandoned_transaction_leaves_nothing(catalog: Catalog, log: BridgedLog, tmp_path: Path) -> None:
    path = created(log, tmp_path)
    tx = catalog.begin()
    append(log, path, 1, "f1.parquet", tx)
    tx.rollback()
    assert versions(log, path) == [0]
    append(log, path, 1, "f1.parquet")
    assert versions(log, path) == [0, 1]


# -- a log that does not begin at 0


def test_where_the_commits_do_not_reach_a_checkpoint_of_ours_is_laid_for_spark(
    catalog: Catalog, log: BridgedLog, tmp_path: Path
) -> None:
    import deltalake

    plain = str(tmp_path / "plain")
    for number in range(3):
        deltalake.write_deltalake(plain, numbers(number), mode="append")
    deltalake.DeltaTable(plain).create_checkpoint()
    deltalake.write_deltalake(plain, numbers(3), mode="append")
    catalog.import_table(plain, "sales.plain", history="latest")
    path = f"/file{plain}"
    listing = log.entries(place_of(log, path), None, 0)
    assert listing.entries[-1].version == listing.head
    assert listing.entries[0].version > 0
    overlay = tmp_path / "plain" / "_dldb" / "log"
    (checkpoint,) = overlay.glob("*.checkpoint.parquet")
    assert int(checkpoint.name[:20]) == listing.entries[0].version - 1
    (protocol,) = [row["protocol"] for row in pq.read_table(checkpoint).to_pylist() if row["protocol"]]
    assert FEATURE not in (protocol["writerFeatures"] or [])
    assert json.loads((overlay / "_last_checkpoint").read_text())["version"] == listing.entries[0].version - 1
    assert sorted(ids_in(catalog, "sales.plain")) == [0, 1, 2, 3]


def test_after_many_commits_of_others_spark_finds_a_checkpoint(
    log: BridgedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltalakedb.serve.bridge.overlay.MANY_COMMITS", 5)
    path = created(log, tmp_path)
    for version in range(1, 8):
        append(log, path, version, f"f{version}.parquet")
    assert log.entries(place_of(log, path), None, 0).head == 7
    overlay = tmp_path / "lake" / "sales" / "orders" / "_dldb" / "log"
    assert [file.name for file in overlay.glob("*.checkpoint.parquet")] == [f"{7:020d}.checkpoint.parquet"]
    append(log, path, 8, "f8.parquet")
    assert versions(log, path, start=7) == [7, 8]
    assert len(list(overlay.glob("*.checkpoint.parquet"))) == 1
