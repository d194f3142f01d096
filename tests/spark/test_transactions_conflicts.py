"""What a transaction from Spark has read, and what others may do meanwhile: rebased, or a named error and nothing."""

from collections.abc import Callable

import pytest

import deltalakedb.spark as dls
from deltalakedb.exceptions import CommitFailedError, ConcurrentAppendError, ConcurrentDeleteReadError, GoneError
from deltalakedb.spark.transaction import SparkTransaction
from tests.spark.shop import Shop


def test_blind_appends_are_rebased_when_a_table_moved(shop: Shop) -> None:
    left, right = shop.create("left", range(2)), shop.create("right", range(2))
    with dls.begin(shop.spark) as tx:
        for name in (left, right):
            shop.frame([10]).write.format("delta").mode("append").save(tx.path(name))
        for number in (20, 21, 22):
            shop.append_elsewhere("left", [number])
        tx.sql(f"insert into {{{left}}} values (11, 0)")
    assert tx.result == {left: 6, right: 2}
    assert shop.ids("left") == [0, 1, 10, 11, 20, 21, 22]
    assert shop.ids("right") == [0, 1, 10]
    shop.check_level("left", "right")


STATEMENTS: dict[str, Callable[[SparkTransaction, str, Shop], object]] = {
    "update": lambda tx, name, _shop: tx.sql(f"update {{{name}}} set value = 5 where id = 0"),
    "delete": lambda tx, name, _shop: tx.sql(f"delete from {{{name}}} where id = 1"),
    "merge": lambda tx, name, shop: tx.sql(
        f"merge into {{{name}}} t using {{u}} u on t.id = u.id when not matched then insert *", u=shop.frame([20])
    ),
    "overwrite": lambda tx, name, shop: shop.frame([5]).write.format("delta").mode("overwrite").save(tx.path(name)),
    "insert from itself": lambda tx, name, _shop: tx.sql(f"insert into {{{name}}} select id + 50, 0 from {{{name}}}"),
}


SEEN = {"update": 0, "delete": 1}
"""A row that the condition of the statement holds for; the others see every row."""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_any_other_statement_conflicts_with_rows_that_it_would_have_seen(shop: Shop, statement: str) -> None:
    number = SEEN.get(statement, 20)
    moved, other = shop.create("moved", range(2)), shop.create("other", range(2))
    tx = dls.begin(shop.spark)
    shop.frame([10]).write.format("delta").mode("append").save(tx.path(other))
    STATEMENTS[statement](tx, moved, shop)
    shop.append_elsewhere("moved", [number])
    with pytest.raises(CommitFailedError) as refused:
        tx.commit()
    assert type(refused.value) is ConcurrentAppendError
    assert (refused.value.table, refused.value.version) == (moved, 2)
    assert "Nothing was committed" in str(refused.value)
    assert shop.ids("moved") == sorted([0, 1, number])
    assert shop.ids("other") == [0, 1]
    shop.check_level("moved", "other")


READS: dict[str, Callable[[SparkTransaction, str], object]] = {
    "rows": lambda tx, name: tx.table(name).collect(),
    "count": lambda tx, name: tx.table(name).count(),
    "bounds": lambda tx, name: tx.sql(f"select min(id), max(id) from {{{name}}}").collect(),
    "older version": lambda tx, name: tx.table(name, versionAsOf=1).collect(),
}


@pytest.mark.parametrize("read", READS)
def test_a_table_that_was_only_read_counts_as_read(shop: Shop, read: str) -> None:
    rates, orders = shop.create("rates", range(2)), shop.create("orders")
    tx = dls.begin(shop.spark)
    READS[read](tx, rates)
    shop.frame([10]).write.format("delta").mode("append").save(tx.path(orders))
    shop.append_elsewhere("rates", [20])
    with pytest.raises(ConcurrentAppendError) as refused:
        tx.commit()
    assert refused.value.table == rates
    assert shop.ids("orders") == []
    # The same again, and nobody is in the way.
    with dls.begin(shop.spark) as tx:
        READS[read](tx, rates)
        shop.frame([10]).write.format("delta").mode("append").save(tx.path(orders))
    assert tx.result == {orders: 1}


@pytest.mark.parametrize("read", ["rows", "count", "bounds"])
def test_an_append_to_a_table_that_was_read_as_well_is_not_blind(shop: Shop, read: str) -> None:
    name = shop.create("numbers", range(2))
    tx = dls.begin(shop.spark)
    READS[read](tx, name)
    shop.frame([10]).write.format("delta").mode("append").save(tx.path(name))
    shop.append_elsewhere("numbers", [20])
    with pytest.raises(ConcurrentAppendError) as refused:
        tx.commit()
    assert refused.value.table == name
    assert shop.ids("numbers") == [0, 1, 20]


def test_what_was_read_and_deleted_meanwhile_is_named(shop: Shop) -> None:
    name, other = shop.create("read", range(4)), shop.create("other")
    tx = dls.begin(shop.spark)
    tx.table(name).collect()
    shop.frame([10]).write.format("delta").mode("append").save(tx.path(other))
    shop.spark.sql(f"delete from {name}")
    with pytest.raises(ConcurrentDeleteReadError) as refused:
        tx.commit()
    assert refused.value.table == name
    assert (shop.ids("read"), shop.ids("other")) == ([], [])


def test_two_transactions_that_create_the_same_table_are_told(shop: Shop) -> None:
    name = shop.name("both")
    first, second = dls.begin(shop.spark), dls.begin(shop.spark)
    for tx in (first, second):
        tx.sql(f"create table {{{name}}} (id long, value long) using delta")
    assert first.commit() == {name: 0}
    with pytest.raises(Exception, match=f"{name} exists already"):
        second.commit()
    assert shop.ids("both") == []
    shop.check_level("both")


def test_a_transaction_that_the_endpoint_has_ended_says_so(shop: Shop) -> None:
    name = shop.create("orders", range(2))
    endpoint = dls.bridge_of(shop.spark)

    def begin_and_lose() -> SparkTransaction:
        tx = dls.begin(shop.spark)
        tx.sql(f"update {{{name}}} set value = 3")
        endpoint.abort(tx._id)  # as the endpoint itself does when it hears nothing
        return tx

    with pytest.raises(GoneError, match="nothing of it was committed"), begin_and_lose() as tx:
        tx.sql(f"select * from {{{name}}}").collect()
    with pytest.raises(GoneError, match="nothing of it was committed"), begin_and_lose() as tx:
        tx.sql(f"delete from {{{name}}}")
    # Spark alone hears of it here, in its own words; the block tells it in ours.
    with pytest.raises(GoneError, match="nothing of it was committed") as told, begin_and_lose() as tx:
        shop.frame([9]).write.format("delta").mode("append").save(tx.path(name))
    assert told.value.__cause__ is not None
    with pytest.raises(GoneError, match="nothing of it was committed"):
        begin_and_lose().commit()
    assert shop.rows("orders") == [(0, 0), (1, 0)]
    shop.check_level("orders")
