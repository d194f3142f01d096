"""Promoting a table: the fence goes into the files first, and whatever happens in between, nobody's commit is lost."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import DeltaError, NotWritableError, UnsupportedFeatureError
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.mirror.follow import attach, follow
from deltalakedb.mirror.promote import promote
from deltalakedb.mirror.validate import validate
from deltalakedb.store import open_store
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from tests.conformance.conftest import OpenStore
from tests.conformance.lives import (
    append,
    audited,
    dump,
    head_of,
    kill_at,
    log_bytes,
    mirror,
    put_back,
    read_ids,
    row_of,
    write_rows,
)
from tests.conformance.test_attach import expected_paths, live_paths
from tests.fixtures.handmade import SCHEMA, HandmadeTable, add
from tests.fixtures.s3 import S3

RACING_WRITER = """
import sys, deltalake, pyarrow as pa
done = 0
print("started", flush=True)
try:
    for number in range(10_000):
        deltalake.write_deltalake(sys.argv[1], pa.table({"id": pa.array([number], pa.int64())}), mode="append")
        done += 1
except Exception as error:
    print(done, type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table of three versions by `deltalake`."""
    path = tmp_path / "t"
    for number in range(3):
        write_rows(path, number)
    return path


def attached(store: Store, path: Path, name: str = "t") -> TableRow:
    return attach(store, str(path), namespace="default", name=name).table


def test_a_promoted_table_is_managed_fenced_and_still_read_by_everyone(store: Store, lake: Path) -> None:
    before = log_bytes(lake)
    result = promote(store, attached(store, lake), actor="ann", origin="test")
    assert (result.version, result.table.mode, result.already_managed) == (3, "managed", False)
    protocol = SqlTxnLogReader(store, result.table).snapshot().protocol
    assert FEATURE not in (protocol.writer_features or ()), "SQL keeps the protocol without the fence"
    head = head_of(store, result.table)
    assert (head.current_version, head.mirrored_version) == (3, 3)
    assert deltalake.DeltaTable(lake).protocol().writer_features == ["appendOnly", "invariants", FEATURE]
    assert read_ids(lake) == [0, 1, 2]
    assert before.items() <= log_bytes(lake).items(), "no commit of others was touched"
    assert audited(store) == ["attach", "promote"]
    with store.read() as conn:
        version = conn.one("select_version", table_id=result.table.table_id, version=3)
        assert version is not None
        assert conn.one("select_transaction", txn_id=version["txn_id"]), "the fence is a transaction like others"


def test_writers_of_others_are_refused_afterwards(store: Store, lake: Path) -> None:
    promote(store, attached(store, lake))
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        write_rows(lake, 9)
    table = deltalake.DeltaTable(lake)
    for attempt in (
        lambda: table.delete("id = 1"),
        lambda: table.update({"id": "7"}),
        lambda: table.alter.set_table_properties({"delta.appendOnly": "true"}),
        lambda: table.restore(0),
    ):
        with pytest.raises(deltalake.exceptions.DeltaError):
            attempt()
    assert len(log_bytes(lake)) == 4
    assert read_ids(lake) == [0, 1, 2]


def test_what_was_written_since_the_last_follow_is_taken_in(store: Store, lake: Path) -> None:
    table = attached(store, lake)
    write_rows(lake, 8)
    write_rows(lake, 9)
    result = promote(store, table)
    assert result.version == 5
    assert live_paths(store, result.table) == expected_paths(lake, 5)


def test_promoting_again_changes_nothing(store: Store, lake: Path) -> None:
    table = attached(store, lake)
    first = promote(store, table)
    files = log_bytes(lake)
    again = promote(store, table)
    assert (again.version, again.already_managed) == (first.version, True)
    assert log_bytes(lake) == files
    assert audited(store) == ["attach", "promote"]


def test_two_promotes_at_once_put_one_fence(open_again: OpenStore, lake: Path) -> None:
    stores = [open_again(), open_again()]
    table = attached(stores[0], lake)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda store: promote(store, table), stores))
    assert [result.version for result in results] == [3, 3]
    assert len(log_bytes(lake)) == 4
    assert audited(stores[0]) == ["attach", "promote"]


def test_a_writer_racing_the_promote_loses_no_commit(store: Store, lake: Path) -> None:
    table = attached(store, lake)
    process = subprocess.Popen(
        [sys.executable, "-c", RACING_WRITER, str(lake)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "started"
    while len(log_bytes(lake)) < 6:
        pass
    result = promote(store, table)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    acknowledged, reason = int(said.split()[0]), said.split(maxsplit=1)[1]
    assert FEATURE in reason or "Protocol changed" in reason, "the fence is what stopped the writer"
    assert result.version == 3 + acknowledged, "every commit it was told of lies before the fence"
    assert live_paths(store, result.table) == expected_paths(lake, result.version)
    assert read_ids(lake) == sorted([0, 1, 2, *range(acknowledged)])


@pytest.mark.parametrize("step", ["promote.followed", "mirror.json_temp", "mirror.json_linked", "promote.fence_put"])
def test_a_promote_killed_before_sql_knows_is_finished_by_the_next_one(
    open_again: OpenStore, target: str, lake: Path, step: str
) -> None:
    store = open_again()
    attached(store, lake)
    store.close()
    kill_at(step, target, "cat.promote_table('t')")
    store = open_again()
    assert row_of(store).mode == "follower"
    is_fenced = len(log_bytes(lake)) == 4
    assert is_fenced == (step in ("mirror.json_linked", "promote.fence_put"))
    if is_fenced:
        with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
            write_rows(lake, 9)
    files = log_bytes(lake)
    result = promote(store, row_of(store))
    assert (result.version, result.already_managed) == (3, False)
    assert files.items() <= log_bytes(lake).items()
    assert audited(store) == ["attach", "promote"]
    assert read_ids(lake) == [0, 1, 2]


def test_a_promote_killed_at_its_end_is_done(open_again: OpenStore, target: str, lake: Path) -> None:
    store = open_again()
    attached(store, lake)
    store.close()
    kill_at("promote.imported", target, "cat.promote_table('t')")
    store = open_again()
    assert row_of(store).mode == "managed"
    assert promote(store, row_of(store)).already_managed


def test_a_follow_between_fence_and_promote_does_no_harm(open_again: OpenStore, target: str, lake: Path) -> None:
    store = open_again()
    attached(store, lake)
    store.close()
    kill_at("promote.fence_put", target, "cat.promote_table('t')")
    store = open_again()
    assert follow(store, row_of(store)).to_version == 3
    result = promote(store, row_of(store))
    assert (result.version, result.table.mode) == (3, "managed")
    assert head_of(store, result.table).mirrored_version == 3


def test_a_table_of_another_catalog_can_be_followed_but_not_promoted(store: Store, lake: Path, tmp_path: Path) -> None:
    with open_store("sqlite", str(tmp_path / "other.db")) as other:
        promote(other, attached(other, lake, "theirs"))
    table = attached(store, lake)
    with pytest.raises(NotWritableError, match=r"managed by the catalog .* \(as default.theirs\).*dl detach"):
        promote(store, table)
    assert row_of(store).mode == "follower"
    assert len(log_bytes(lake)) == 4
    with store.read() as conn:
        rows = conn.sql("select count(*) as n from dl_transactions")
    assert rows[0]["n"] == 0, "the other catalog's transactions are not ours"


def test_a_table_that_a_restored_database_has_forgotten_is_imported_again(
    store: Store, target: str, lake: Path
) -> None:
    """The backup is from before the table came; its files are ours all the same, fence and transactions included."""
    backup = dump(store)
    managed = promote(store, attached(store, lake)).table
    ours = append(store, managed, lake, 10, message="kept in the files")
    mirror(store, managed)
    put_back(store, backup)
    store.close()
    with dl.connect(target) as cat:
        again = cat.import_table(lake, "t")
        assert (again.mode, again.version()) == ("managed", 4)
        with cat.begin() as tx:
            tx.write("t", pa.table({"id": [11]}), mode="append")
        assert cat.sql(f"select message from dl_transactions where txn_id = '{ours.txn_id}'").num_rows == 1
        assert cat.validate("t").drift is None
    assert read_ids(lake) == [0, 1, 2, 10, 11]


def test_a_managed_table_is_not_followed(store: Store, lake: Path) -> None:
    table = attached(store, lake)
    promote(store, table)
    handmade = json.dumps({"commitInfo": {"operation": "WRITE"}})
    (lake / "_delta_log" / f"{4:020d}.json").write_text(handmade)
    with pytest.raises(DeltaError, match="managed"):
        follow(store, table)
    assert head_of(store, table).current_version == 3


def test_a_table_that_asks_for_more_than_we_can_write_is_not_fenced(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}}
    )
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        promote(store, attached(store, handmade.path))
    assert len(log_bytes(handmade.path)) == 2
    assert row_of(store).mode == "follower"


def test_a_table_with_in_commit_timestamps_keeps_them(store: Store, handmade: HandmadeTable) -> None:
    features = ["appendOnly", "invariants", "inCommitTimestamp"]
    future = 4_000_000_000_000  # a clock that went wrong once: the next version still comes later
    handmade.commit(
        {"commitInfo": {"inCommitTimestamp": future, "operation": "CREATE TABLE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": [],
                "configuration": {"delta.enableInCommitTimestamps": "true"},
            }
        },
        add("a"),
    )
    result = promote(store, attached(store, handmade.path))
    info = json.loads(handmade.commit_path(1).read_text().splitlines()[0])["commitInfo"]
    assert info["inCommitTimestamp"] == info["timestamp"] == future + 1
    assert info["deltalakedb"]["committedAt"] < future, "no table's clock becomes the catalog's"
    assert head_of(store, result.table).last_commit_ms == future + 1


def test_a_table_on_s3_is_promoted(store: Store, s3: S3) -> None:
    writing = {**s3.storage_options, "aws_conditional_put": "etag"}
    for number in range(3):
        write_rows(s3.uri("lake/t"), number, options=writing)
    table = attach(store, s3.uri("lake/t"), namespace="default", name="t", storage_options=s3.storage_options).table
    write_rows(s3.uri("lake/t"), 3, options=writing)
    result = promote(store, table, storage_options=s3.storage_options)
    assert result.version == 4
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        write_rows(s3.uri("lake/t"), 9, options=writing)
    assert read_ids(s3.uri("lake/t"), options=s3.storage_options) == [0, 1, 2, 3]
    assert validate(store, result.table, storage_options=s3.storage_options).drift is None


def test_a_legacy_protocol_is_spelled_out_behind_the_fence(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}})
    promote(store, attached(store, handmade.path))
    line = handmade.commit_path(2).read_text().splitlines()[1]
    assert json.loads(line)["protocol"] == {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": [
            "appendOnly",
            "invariants",
            "checkConstraints",
            "changeDataFeed",
            "generatedColumns",
            FEATURE,
        ],
    }


def test_the_rows_of_a_partitioned_table_stay_the_same(store: Store, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "day": ["a", "b", "a"]})
    deltalake.write_deltalake(tmp_path / "p", rows, partition_by=["day"])
    result = promote(store, attached(store, tmp_path / "p"))
    assert read_ids(tmp_path / "p") == [1, 2, 3]
    assert SqlTxnLogReader(store, result.table).snapshot().files().read_all().num_rows == 2
