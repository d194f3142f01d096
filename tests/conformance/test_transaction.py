"""CatalogTransaction: all or nothing over many tables, one pinned cut, own writes visible; on every engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import (
    DeltaError,
    OutcomeUnknownError,
    SchemaMismatchError,
    TableNotFoundError,
    VersionNotFoundError,
)
from deltalakedb.log.protocol.actions import AppTransaction
from tests.conformance.transacting import (
    StopAt,
    add,
    data_files,
    days,
    ids_in,
    ids_of,
    log_files,
    numbers,
    open_catalog,
    operations,
    remove,
    row_counts,
)


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        with opened.begin() as tx:
            tx.write("sales.a", numbers(1, 2), mode="append")
            tx.write("sales.b", numbers(10), mode="append")
        yield opened


@pytest.fixture
def other(target: str, tmp_path: Path, catalog: Catalog) -> Iterator[Catalog]:  # noqa: ARG001  made first
    """Another process's view of the same catalog, as far as the store is concerned."""
    with open_catalog(target, tmp_path) as opened:
        yield opened


# -- all or nothing


def test_statements_over_many_tables_become_true_at_once(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin(message="nightly load") as tx:
        tx.write("sales.a", numbers(3), mode="append")
        tx.write("sales.b", numbers(11), mode="overwrite")
        tx.write("new.c", numbers(20), mode="append")
        assert ids_in(catalog, "sales.a") == [1, 2], "nobody else sees it yet"
        assert catalog.tables() == ["sales.a", "sales.b"]
    assert tx.result == {"sales.a": 1, "sales.b": 1, "new.c": 0}
    assert (ids_in(catalog, "sales.a"), ids_in(catalog, "sales.b"), ids_in(catalog, "new.c")) == ([1, 2, 3], [11], [20])
    found = catalog.sql("select txn_id, actor, message from dl_transactions order by committed_at_ms").to_pylist()
    assert found[-1] == {"txn_id": tx.txn_id, "actor": "ann", "message": "nightly load"}
    versions = catalog.sql(f"select table_id, version from dl_table_versions where txn_id = '{tx.txn_id}'")
    assert versions.num_rows == 3
    assert log_files(tmp_path / "lake/sales/a") == [f"{n:020}.json" for n in (0, 1)], "and mirrored"


def test_participants_are_named_in_each_table_of_the_transaction(catalog: Catalog) -> None:
    with catalog.begin(message="both") as tx:
        tx.write("sales.a", numbers(3), mode="append")
        tx.write("sales.b", numbers(11), mode="append")
    for name in ("sales.a", "sales.b"):
        info = catalog.history(name, limit=1)[0]
        assert info["txnId"] == tx.txn_id
        assert info["deltalakedb"]["message"] == "both"
        assert {part["version"] for part in info["deltalakedb"]["participants"]} == {1}
        assert len(info["deltalakedb"]["participants"]) == 2


class _Stop(BaseException):
    """Like KeyboardInterrupt: no Exception, and it must be heard."""


@pytest.mark.parametrize("reason", [RuntimeError, KeyboardInterrupt, _Stop])
def test_an_exception_in_the_block_means_that_nothing_happened(
    catalog: Catalog, tmp_path: Path, reason: type[BaseException]
) -> None:
    before, files = row_counts(catalog), data_files(tmp_path)
    tx = catalog.begin()

    def load() -> None:
        with tx:
            tx.write("sales.a", numbers(3), mode="append")
            tx.write("sales.b", numbers(4), mode="overwrite")
            tx.create_table("new.c", "id long")
            tx.rename_table("sales.b", "sales.z")
            raise reason

    with pytest.raises(reason):
        load()
    assert row_counts(catalog) == before
    assert data_files(tmp_path) == files, "files it had written are gone"
    assert tx.result == {}
    assert "rolled back" in repr(tx)
    assert not (tmp_path / "lake/new/c/_delta_log").exists()


def test_a_statement_that_fails_proposes_nothing_and_the_others_stand(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.write("sales.a", numbers(3), mode="append")
        with pytest.raises(SchemaMismatchError):
            tx.write("sales.b", pa.table({"nonsense": ["x"]}), mode="append")
        files = data_files(tmp_path / "lake/sales/b")
        assert len(files) == 1, "no file of the failed statement is left"
    assert tx.result == {"sales.a": 1}


def test_an_error_at_commit_leaves_every_table_as_it_was(catalog: Catalog, other: Catalog, tmp_path: Path) -> None:
    tx = catalog.begin()
    tx.write("sales.a", numbers(3), mode="append")
    tx.write("sales.b", numbers(11), mode="overwrite")
    with other.begin() as faster:
        faster.write("sales.b", numbers(12), mode="append")
    before, files = row_counts(catalog), data_files(tmp_path)
    with pytest.raises(deltalakedb.CommitFailedError, match="sales.b"):
        tx.commit()
    assert row_counts(catalog) == before
    assert ids_in(catalog, "sales.a") == [1, 2]
    assert set(data_files(tmp_path)) < set(files), "the files of the loser are removed"
    with pytest.raises(DeltaError, match="failed"):
        tx.commit()


def test_several_statements_on_one_table_are_several_versions(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("sales.a", numbers(3), mode="append")
        tx.write("sales.a", numbers(4), mode="append")
        tx.write("sales.a", numbers(5), mode="overwrite")
    assert tx.result == {"sales.a": 3}
    table = catalog.table("sales.a")
    found = []
    for version in range(4):
        table.load_as_version(version)
        found.append(ids_of(table))
    assert found == [[1, 2], [1, 2, 3], [1, 2, 3, 4], [5]]
    assert operations(catalog, "sales.a") == ["WRITE"] * 4


# -- the cut


def test_a_transaction_sees_the_catalog_as_it_was_when_it_began(catalog: Catalog, other: Catalog) -> None:
    tx = catalog.begin()
    with other.begin() as faster:
        faster.write("sales.a", numbers(3), mode="append")
        faster.write("sales.b", numbers(11), mode="append")
        faster.create_table("sales.c", "id long")
    assert (ids_of(tx.table("sales.a")), ids_of(tx.table("sales.b"))) == ([1, 2], [10])
    assert tx.tables() == ["sales.a", "sales.b"]
    with pytest.raises(TableNotFoundError, match="did you mean sales"):
        tx.table("sales.c")
    assert (tx.table("sales.a").version(), tx.table("sales.a").count()) == (0, 2)
    tx.rollback()
    assert ids_in(catalog, "sales.a") == [1, 2, 3]


def test_an_open_transaction_holds_no_lock(catalog: Catalog, other: Catalog) -> None:
    tx = catalog.begin()
    tx.write("sales.a", numbers(3), mode="overwrite")
    assert ids_of(tx.table("sales.b")) == [10]
    with other.begin() as faster:
        faster.write("sales.a", numbers(4), mode="append")
        faster.drop_table("sales.b")
    assert faster.result["sales.a"] == 1
    tx.rollback()


def test_a_transaction_begun_for_some_tables_refuses_others(catalog: Catalog) -> None:
    with catalog.begin(tables=["sales.a", "new.c"]) as tx:
        tx.write("sales.a", numbers(3), mode="append")
        tx.write("NEW.c", numbers(3), mode="append")
        with pytest.raises(DeltaError, match="sales.a, new.c only"):
            tx.table("sales.b")
    assert tx.result == {"sales.a": 1, "NEW.c": 0}


def test_many_tables_are_pinned_without_their_metadata_and_read_it_when_used(catalog: Catalog) -> None:
    from deltalakedb.store.snapshot import FEW_TABLES

    with catalog.begin() as tx:
        for number in range(FEW_TABLES + 1):
            tx.create_table(f"many.t{number}", "id long, note string")
    with catalog.begin() as tx:
        assert tx.table("many.t7").schema().names == ("id", "note")
        tx.write("sales.a", numbers(3), mode="append")
    assert tx.result == {"sales.a": 1}


# -- own writes


def test_a_transaction_sees_its_own_writes(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        early = tx.table("sales.a")
        tx.write("sales.a", numbers(3), mode="append")
        table = tx.table("sales.a")
        assert (early.version(), ids_of(early)) == (0, [1, 2]), "an open table stays where it is"
        early.update_incremental()
        assert (early.version(), ids_of(early)) == (1, [1, 2, 3])
        assert (table.version(), table.count(), table.files().num_rows, table.totals().num_files) == (1, 3, 2, 2)
        assert table.plan("id = 3").num_files == 1
        assert table.plan("id = 3").num_pruned == 1
        assert table.plan("id = 1").num_files == 1
        assert table.plan("id between 2 and 3").num_files == 2
        assert table.to_pyarrow_table(filters=[("id", ">", 1)]).num_rows == 2
        tx.write("sales.a", numbers(7), mode="overwrite")
        table.update_incremental()
        assert (ids_of(table), table.count(), table.totals().num_files) == ([7], 1, 1)
        assert table.plan("id < 5").num_files == 0
        assert len(table.file_uris()) == 1
        assert table.get_add_actions(flatten=True).column("min.id").to_pylist() == [7]
    assert ids_in(catalog, "sales.a") == [7]


def test_own_changes_of_a_table_are_visible_too(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.add_columns("sales.a", "note string")
        tx.set_properties("sales.a", {"owner": "ann"})
        tx.commit_actions("sales.a", [AppTransaction("loader", 7)], operation="LOAD")
        table = tx.table("sales.a")
        assert table.schema().names == ("id", "note")
        assert table.metadata().configuration["owner"] == "ann"
        assert table.transaction_version("loader") == 7
        assert table.transaction_version("nobody") is None
        assert table.to_pyarrow_table().column("note").null_count == 2
        tx.write("sales.a", pa.table({"id": [3], "note": ["hi"]}), mode="append")
        assert tx.table("sales.a").count() == 3
    assert tx.result == {"sales.a": 4}
    assert catalog.table("sales.a").transaction_version("loader") == 7


def test_a_table_that_the_transaction_creates_can_be_written_and_read_in_it(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.create_table("new.c", "id long, day string", partition_by="day")
        assert tx.table("new.c").count() == 0
        tx.write("new.c", days((1, "mon"), (2, "tue")), mode="append")
        table = tx.table("new.c")
        assert (table.version(), table.count("day = 'mon'"), ids_of(table)) == (1, 1, [1, 2])
        assert table.plan("day = 'tue'").num_files == 1
        assert table.history() == [], "none of it is committed"
    assert tx.result == {"new.c": 1}
    assert catalog.table("new.c").count("day = 'mon'") == 1


def test_files_removed_by_the_transaction_are_gone_for_it(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.commit_actions("sales.a", [add("x.parquet", 100, 200), add("y.parquet", 300, 400)])
        tx.commit_actions("sales.a", [remove("x.parquet")], read=["x.parquet"])
        table = tx.table("sales.a")
        assert max(table.files(["path"]).column("path").to_pylist()) == "y.parquet"
        assert (table.totals().num_files, table.count()) == (2, 3)
        assert table.plan("id = 150").num_files == 0
        assert table.plan("id = 350").num_files == 1
        tx.commit_actions("sales.a", [add("y.parquet", 500, 600)])
        again = tx.table("sales.a")
        assert (again.totals().num_files, again.plan("id = 350").num_files, again.plan("id = 550").num_files) == (
            2,
            0,
            1,
        )
    assert catalog.table("sales.a").plan("id = 550").num_files == 1


def test_older_versions_can_be_read_inside_and_later_ones_cannot(catalog: Catalog, other: Catalog) -> None:
    with other.begin() as faster:
        faster.write("sales.a", numbers(3), mode="append")
    with catalog.begin() as tx:
        table = tx.table("sales.a")
        table.load_as_version(0)
        assert ids_of(table) == [1, 2]
        with other.begin() as faster:
            faster.write("sales.a", numbers(4), mode="append")
        with pytest.raises(VersionNotFoundError, match="up to 1"):
            table.load_as_version(2)
        tx.write("sales.b", numbers(1), mode="append")
    assert tx.result == {"sales.b": 1}, "the past does not change, so reading it clashes with nothing"


# -- its life


def test_a_transaction_that_only_reads_commits_nothing(catalog: Catalog, other: Catalog) -> None:
    with catalog.begin() as tx:
        assert ids_of(tx.table("sales.a")) == [1, 2]
        with other.begin() as faster:
            faster.write("sales.a", numbers(3), mode="append")
        before = row_counts(catalog)
    assert row_counts(catalog) == before
    assert tx.result == {}
    assert "committed" in repr(tx)


def test_a_transaction_that_ended_says_so(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("sales.a", numbers(3), mode="append")
        assert tx.commit() == {"sales.a": 1}
        with pytest.raises(DeltaError, match="is committed; begin another"):
            tx.write("sales.a", numbers(4), mode="append")
    with pytest.raises(DeltaError, match="committed"):
        tx.table("sales.a")
    with pytest.raises(DeltaError, match="committed"):
        tx.rollback()
    with catalog.begin() as rolled:
        rolled.write("sales.a", numbers(4), mode="append")
        rolled.rollback()
    assert ids_in(catalog, "sales.a") == [1, 2, 3]
    with pytest.raises(DeltaError, match="entered before"), rolled:
        pass


def test_two_threads_cannot_use_one_transaction_at_once(catalog: Catalog) -> None:
    begun, go = threading.Event(), threading.Event()
    schema = pa.schema([("id", pa.int64())])

    def slow() -> Iterator[pa.RecordBatch]:
        begun.set()
        go.wait(30)
        yield pa.record_batch([pa.array([3], pa.int64())], schema=schema)

    with catalog.begin() as tx:
        reader = pa.RecordBatchReader.from_batches(schema, slow())
        writer = threading.Thread(target=tx.write, args=("sales.a", reader, "append"))
        writer.start()
        begun.wait(30)
        with pytest.raises(DeltaError, match="two threads"):
            tx.table("sales.a")
        go.set()
        writer.join()
    assert tx.result == {"sales.a": 1}


def test_begin_opens_a_catalog_for_one_transaction(target: str, catalog: Catalog, tmp_path: Path) -> None:
    with deltalakedb.begin(target, message="alone", warehouse=str(tmp_path / "lake")) as tx:
        tx.write("sales.a", numbers(3), mode="append")
    assert tx.result == {"sales.a": 1}
    with pytest.raises(TableNotFoundError), deltalakedb.begin(target) as tx:
        tx.table("sales.nothing")
    assert ids_in(catalog, "sales.a") == [1, 2, 3]


@pytest.mark.parametrize("reason", [OutcomeUnknownError("the connection was cut"), KeyboardInterrupt()])
def test_committing_again_after_an_unknown_outcome_never_commits_twice(catalog: Catalog, reason: BaseException) -> None:
    """The answer to COMMIT is lost: the transaction is there, and its writer was told nothing."""
    tx = catalog.begin()
    tx.write("sales.a", numbers(3), mode="append")
    with StopAt("commit.committed", reason), pytest.raises(type(reason)):
        tx.commit()
    with pytest.raises(DeltaError, match="commit\\(\\) again tells"):
        tx.write("sales.a", numbers(4), mode="append")
    assert tx.commit() == {"sales.a": 1}
    assert ids_in(catalog, "sales.a") == [1, 2, 3]


def test_giving_up_an_unknown_outcome_removes_no_file(catalog: Catalog) -> None:
    tx = catalog.begin()
    tx.write("sales.a", numbers(3), mode="append")
    with StopAt("commit.committed", OutcomeUnknownError("cut")), pytest.raises(OutcomeUnknownError):
        tx.commit()
    tx.rollback()
    assert ids_in(catalog, "sales.a") == [1, 2, 3], "it was committed, and its file is there"


def test_an_interrupt_before_the_decision_leaves_nothing(catalog: Catalog) -> None:
    before = row_counts(catalog)
    tx = catalog.begin()
    tx.write("sales.a", numbers(3), mode="append")
    with StopAt("commit.written", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        tx.commit()
    assert row_counts(catalog) == before
    assert tx.commit() == {"sales.a": 1}, "it may be committed after all"


def test_each_commit_is_one_event_and_each_conflict_is_counted(
    catalog: Catalog, other: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    from deltalakedb import telemetry

    with caplog.at_level("INFO", "deltalakedb.events"), catalog.begin(message="told") as tx:
        tx.write("sales.a", numbers(3), mode="append")
        tx.write("sales.b", numbers(4), mode="append")
    (event,) = [record.event for record in caplog.records if hasattr(record, "event")]
    assert (event["event"], event["txn_id"], event["message"]) == ("commit", tx.txn_id, "told")
    assert [(v["table"], v["version"], v["operation"]) for v in event["versions"]] == [
        ("sales.a", 1, "WRITE"),
        ("sales.b", 1, "WRITE"),
    ]
    slow = catalog.begin()
    slow.write("sales.a", numbers(9), mode="overwrite")
    with other.begin() as faster:
        faster.write("sales.a", numbers(5), mode="append")
    with pytest.raises(deltalakedb.CommitFailedError):
        slow.commit()
    told = telemetry.exposition().decode()
    assert 'deltalakedb_commit_conflicts_total{reason="ConcurrentAppendError"}' in told
    assert 'deltalakedb_versions_committed_total{table="sales.a"}' in told
