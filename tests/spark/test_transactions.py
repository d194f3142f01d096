"""Transactions over many tables from Spark: all at once or nothing, and nobody sees anything before."""

import gc
import threading
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import ConfigError, DeltaError, NotWritableError, TableNotFoundError
from tests.spark.shop import Shop, as_rows

METADATA_QUERIES = "spark.databricks.delta.optimizeMetadataQuery.enabled"


def test_statements_on_many_tables_become_true_at_once(shop: Shop) -> None:
    orders, lines = shop.create("orders", range(10)), shop.create("lines", range(10), enableDeletionVectors="true")
    fresh, copied = shop.name("fresh"), shop.name("copied")
    with dls.begin(shop.spark, message="all at once") as tx:
        shop.frame(range(10, 15)).write.format("delta").mode("append").save(tx.path(orders))
        tx.sql(
            f"merge into {{{lines}}} t using {{u}} u on t.id = u.id when matched then update set value = 7 "
            "when not matched then insert *",
            u=shop.frame(range(8, 12), 5),
        )
        tx.sql(f"update {{{orders}}} set value = 1 where id < 2")
        tx.sql(f"delete from {{{lines}}} where id = 3")
        tx.sql(f"create table {{{fresh}}} (id long, value long) using delta comment 'it''s {{new}}'")
        tx.sql(f"insert into {{{fresh}}} select * from {{{lines}}} where id > 8")
        tx.sql(f"create table {{{copied}}} using delta as select id, value from {{{orders}}} where value = 1")
        # It reads its own writes.
        assert tx.table(orders).count() == 15
        assert sorted(map(tuple, tx.table(fresh).collect())) == [(9, 7), (10, 5), (11, 5)]
        assert sorted(map(tuple, tx.table(copied).collect())) == [(0, 1), (1, 1)]
        # Nobody else does: not this very session outside of the transaction, not SQL, not who reads the files.
        assert (shop.version("orders"), shop.version("lines")) == (1, 1)
        assert shop.ids("orders") == shop.ids("lines") == list(range(10))
        assert shop.catalog.tables(shop.namespace) == [lines, orders]
        warehouse = shop.path("orders").parent
        assert not deltalake.DeltaTable.is_deltatable(str(warehouse / "fresh"))
    assert tx.result == {orders: 3, lines: 3, fresh: 1, copied: 0}
    assert shop.catalog.history(orders)[0]["txnId"] == tx.txn_id
    assert shop.catalog.history(copied)[0]["deltalakedb"]["message"] == "all at once"
    assert shop.rows("orders") == [(0, 1), (1, 1)] + [(number, 0) for number in range(2, 15)]
    merged = [(number, 0) for number in (0, 1, 2, 4, 5, 6, 7)]
    assert shop.rows("lines") == [*merged, (8, 7), (9, 7), (10, 5), (11, 5)]
    assert shop.rows("fresh") == [(9, 7), (10, 5), (11, 5)]
    assert shop.rows("copied") == [(0, 1), (1, 1)]
    shop.check_level("orders", "lines", "fresh", "copied")
    # Four tables, one transaction: before it there was none of the new ones.
    before = shop.catalog.history(lines)[2]["txnId"]
    assert shop.catalog.at(before).tables(shop.namespace) == [lines, orders]


def test_many_staged_commits_cross_a_checkpoint(shop: Shop) -> None:
    name = shop.create("busy", range(3))
    with dls.begin(shop.spark) as tx:
        for number in range(14):
            shop.frame([100 + number]).write.format("delta").mode("append").save(tx.path(name))
        tx.sql(f"delete from {{{name}}} where id in (1, 101)")
        tx.sql(f"optimize {{{name}}}")
        assert tx.table(name).count() == 15
        # Spark's own checkpoint of the staged versions lies apart from everybody else's.
        (overlay,) = shop.path("busy").glob("_dldb/txn-*")
        assert list(overlay.rglob("*.checkpoint*.parquet"))
        assert shop.ids("busy") == [0, 1, 2]
    assert tx.result == {name: 17}
    assert shop.ids("busy") == [0, 2, 100, *range(102, 114)]
    shop.check_level("busy")
    # Staged checkpoints are of the transaction alone: further statements read what is committed.
    shop.frame([500]).write.format("delta").mode("append").saveAsTable(name)
    assert shop.ids("busy")[-1] == 500
    shop.check_level("busy")


def test_leaving_the_block_by_an_exception_leaves_nothing(shop: Shop) -> None:
    name, fresh = shop.create("kept", range(3)), shop.name("fresh")

    def fail() -> None:
        with dls.begin(shop.spark) as tx:
            tx.sql(f"update {{{name}}} set value = 9")
            tx.sql(f"create table {{{fresh}}} using delta as select * from {{{name}}}")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shop.version("kept") == 1
    assert shop.catalog.tables(shop.namespace) == [name]
    assert shop.rows("kept") == [(0, 0), (1, 0), (2, 0)]
    shop.check_level("kept")
    files = [path for path in shop.path("kept").parent.rglob("*.*") if path.is_file() and path.name != "README.txt"]
    left = [path for path in files if "_delta_log" not in path.parts]
    assert len(left) == 1, "the one data file of what is committed"
    # The name is free.
    with dls.begin(shop.spark) as tx:
        tx.sql(f"create table {{{fresh}}} (id long, value long) using delta")
    assert tx.result == {fresh: 0}


def test_an_aborted_transaction_is_over(shop: Shop) -> None:
    name = shop.create("kept", range(3))
    with dls.begin(shop.spark) as tx:
        tx.sql(f"delete from {{{name}}}")
        tx.abort()
        for statement in (lambda: tx.table(name), lambda: tx.sql("select 1"), lambda: tx.path(name), tx.commit):
            with pytest.raises(DeltaError, match="is aborted; begin another one"):
                statement()
    assert shop.ids("kept") == [0, 1, 2]
    shop.check_level("kept")


def test_a_failed_statement_leaves_what_was_staged_before(shop: Shop) -> None:
    name = shop.create("orders", range(3))
    with dls.begin(shop.spark) as tx:
        tx.sql(f"insert into {{{name}}} values (10, 1)")
        with pytest.raises(Exception, match="torn"):
            tx.sql(f"insert into {{{name}}} select id, raise_error('torn') from range(20, 22)")
        tx.sql(f"insert into {{{name}}} values (11, 1)")
    assert shop.ids("orders") == [0, 1, 2, 10, 11]
    shop.check_level("orders")


def test_a_transaction_sees_one_cut(shop: Shop) -> None:
    left, right = shop.create("left", range(3)), shop.create("right", range(3))
    with dls.begin(shop.spark) as tx:
        assert tx.table(left).count() == 3
        with shop.catalog.begin() as other:
            for name in (left, right):
                other.write(name, pa.table({"id": [7], "value": [7]}), mode="append")
        assert tx.table(right).count() == 3, "a table first read later is as it was when the transaction began"
        assert tx.table(left).count() == 3
        assert tx.table(left, versionAsOf=0).count() == 0
    assert tx.result == {}, "who has only read has nothing to commit, and nothing to be checked"
    assert shop.ids("left") == shop.ids("right") == [0, 1, 2, 7]


def test_settings_of_the_session_are_put_back_by_the_last_transaction(shop: Shop) -> None:
    assert shop.spark.conf.get(METADATA_QUERIES) == "true"
    outer = dls.begin(shop.spark)
    with dls.begin(shop.spark) as inner:
        assert inner.txn_id != outer.txn_id
        assert shop.spark.conf.get(METADATA_QUERIES) == "false"
    assert shop.spark.conf.get(METADATA_QUERIES) == "false"
    outer.abort()
    assert shop.spark.conf.get(METADATA_QUERIES) == "true"
    shop.spark.conf.set(METADATA_QUERIES, "false")
    try:
        with pytest.raises(ZeroDivisionError), dls.begin(shop.spark):
            raise ZeroDivisionError
        assert shop.spark.conf.get(METADATA_QUERIES) == "false"
    finally:
        shop.spark.conf.unset(METADATA_QUERIES)


def test_threads_of_one_session_have_transactions_of_their_own(shop: Shop) -> None:
    shared = shop.create("shared")
    ids, errors = [], []

    def work(number: int) -> None:
        own = shop.name(f"own_{number}")
        try:
            with dls.begin(shop.spark) as tx:
                shop.frame([number]).write.format("delta").save(tx.path(own))
                shop.frame([number]).write.format("delta").mode("append").save(tx.path(shared))
                assert tx.table(own).count() == 1
            ids.append(tx.txn_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(ids)) == 3
    assert shop.ids("shared") == [0, 1, 2]
    assert [shop.ids(f"own_{number}") for number in range(3)] == [[0], [1], [2]]
    assert shop.spark.conf.get(METADATA_QUERIES) == "true"


def test_nested_transactions_do_not_see_each_other(shop: Shop) -> None:
    name = shop.create("orders", range(2))
    with dls.begin(shop.spark) as outer:
        shop.frame([10]).write.format("delta").mode("append").save(outer.path(name))
        with dls.begin(shop.spark) as inner:
            assert inner.table(name).count() == 2
            shop.frame([20]).write.format("delta").mode("append").save(inner.path(name))
        assert sorted(row.id for row in outer.table(name).collect()) == [0, 1, 10]
        outer.abort()
    assert shop.ids("orders") == [0, 1, 20]


def test_a_table_that_is_not_there_is_named(shop: Shop) -> None:
    missing = shop.name("missing")
    with dls.begin(shop.spark) as tx:
        with pytest.raises(TableNotFoundError, match=missing):
            tx.table(missing)
        with pytest.raises(TableNotFoundError, match=missing):
            tx.sql(f"select * from {{{missing}}}")
        with pytest.raises(ConfigError, match="a brace that is meant as one"):
            tx.sql("select { from x")
        with pytest.raises(ConfigError, match="is not a valid name"):
            tx.sql("select * from {a..b}")
        assert tx.sql("select '{a}' as `{{`, map('k', 1)['k'] as v").first() == ("{a}", 1)
    assert tx.result == {}


def test_a_table_that_others_write_has_no_part_in_a_transaction(shop: Shop, tmp_path: Path) -> None:
    name = shop.name("followed")
    deltalake.write_deltalake(tmp_path / "others", pa.table({"id": [1], "value": [1]}))
    shop.catalog.attach_table(tmp_path / "others", name)
    with dls.begin(shop.spark) as tx:
        for use in (tx.path, tx.table):
            with pytest.raises(NotWritableError, match=f"dl promote {name}"):
                use(name)
    assert tx.result == {}


def test_a_new_table_may_be_saved_to_and_read_by_its_path(shop: Shop) -> None:
    name = shop.name("Odd name ü")
    with dls.begin(shop.spark) as tx:
        path = tx.path(name)
        assert path.startswith("dldb://t")
        shop.frame(range(3)).write.format("delta").partitionBy("value").save(path)
        assert shop.spark.read.format("delta").load(path).count() == 3
        assert tx.sql(f"select max(id) from {{{name.upper()}}}").first() == (2,)
    assert tx.result == {shop.name("`Odd name ü`"): 0}
    table = shop.catalog.table(name)
    assert table.metadata().partition_columns == ["value"]
    assert as_rows(table.to_pyarrow_table()) == [(0, 0), (1, 0), (2, 0)]


def test_a_transaction_is_entered_once_and_tells_what_it_is(shop: Shop) -> None:
    tx = dls.begin(shop.spark)
    assert repr(tx) == f"SparkTransaction('{tx.txn_id}', open)"
    with tx:
        tx.commit()
    assert repr(tx) == f"SparkTransaction('{tx.txn_id}', committed)"
    with pytest.raises(DeltaError, match="was entered before"):
        tx.__enter__()
    with pytest.raises(DeltaError, match="is committed; begin another one"):
        tx.sql("select 1")


def test_a_transaction_that_is_forgotten_gives_no_more_signs_of_life(shop: Shop) -> None:
    tx = dls.begin(shop.spark)
    heartbeat = tx._heartbeat
    assert not heartbeat._stopped.is_set()
    del tx
    gc.collect()
    assert heartbeat._stopped.is_set()
    assert shop.spark.conf.get(METADATA_QUERIES) == "true"


def test_another_catalog_than_the_sessions_is_refused(shop: Shop, tmp_path: Path) -> None:
    with dls.begin(shop.spark, shop.catalog) as tx:
        assert tx.sql("select 1").first() == (1,)
    with dl.connect(tmp_path / "other.db", warehouse=str(tmp_path)) as other, pytest.raises(ConfigError):
        dls.begin(shop.spark, other)


def test_a_locked_table_is_claimed_until_the_end(shop: Shop) -> None:
    name = shop.create("rewritten", range(3))

    def held() -> list[str]:
        found = shop.catalog.sql("select holder from dl_leases where lease like 'intent:%'")
        return [str(holder) for holder in found["holder"].to_pylist()]

    with dls.begin(shop.spark, lock=[name]) as tx:
        assert held() == [tx.txn_id]
        tx.sql(f"update {{{name}}} set value = 2")
    assert held() == []
    assert shop.rows("rewritten") == [(0, 2), (1, 2), (2, 2)]
