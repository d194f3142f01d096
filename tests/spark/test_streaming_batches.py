"""dls.foreach_batch: several tables, one transaction a batch, each row exactly once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import deltalakedb.spark as dls
from deltalakedb.exceptions import ConfigError
from deltalakedb.spark.transaction import SparkTransaction
from tests.spark.shop import Shop
from tests.spark.test_streaming import arrive, finish, source


def totals_of(shop: Shop) -> Any:
    """Merges the number of rows per batch into a table that it creates itself."""
    name = shop.name("totals")

    def merge(batch: DataFrame, _batch_id: int, tx: SparkTransaction) -> None:
        tx.sql(f"create table if not exists {{{name}}} (id long, value long) using delta")
        tx.sql(
            f"merge into {{{name}}} t using {{new}} n on t.id = n.id "
            "when matched then update set value = t.value + n.value when not matched then insert *",
            new=batch.groupBy((batch.id % 2).alias("id")).agg({"*": "count"}).toDF("id", "value"),
        )

    return merge


def test_a_batch_is_one_transaction_over_all_tables(shop: Shop, tmp_path: Path) -> None:
    for batch in ([1, 2, 3], [4, 5]):
        arrive(tmp_path / "in", *batch)
    rows, totals, quiet = (shop.name(table) for table in ("rows", "totals", "quiet"))
    sink = dls.foreach_batch(
        {
            rows: lambda batch, _batch_id: batch,
            totals: totals_of(shop),
            quiet: lambda _batch, _batch_id: None,
        }
    )
    stream = source(shop, tmp_path / "in").writeStream.foreachBatch(sink)
    assert finish(stream, tmp_path / "checkpoint") == [3, 2]
    assert shop.ids("rows") == [1, 2, 3, 4, 5]
    assert shop.rows("totals") == [(0, 2), (1, 3)]
    assert shop.catalog.tables(shop.namespace) == [rows, totals]
    # One transaction a batch, and in each table the batch that it holds.
    ids = [[entry["txnId"] for entry in shop.catalog.history(name)] for name in (rows, totals)]
    assert set(ids[0]) == set(ids[1])
    assert [len(set(of_table)) for of_table in ids] == [2, 2]
    assert "batch 1 of query" in shop.catalog.history(rows)[0]["deltalakedb"]["message"]
    shop.check_level("rows", "totals")


def test_a_batch_that_was_committed_is_not_written_again(shop: Shop, tmp_path: Path) -> None:
    first, second = shop.name("first"), shop.name("second")
    sink = dls.foreach_batch(
        {name: lambda batch, _batch_id: batch for name in (first, second)}, app_id="the same, again and again"
    )
    arrive(tmp_path / "in", 1, 2)
    for attempt in range(2):  # another checkpoint under the same id: batch 0 comes once more
        finish(source(shop, tmp_path / "in").writeStream.foreachBatch(sink), tmp_path / f"checkpoint {attempt}")
    assert shop.ids("first") == shop.ids("second") == [1, 2]
    assert shop.version("first") == 0
    # A table that comes later has not seen the batch.
    third = shop.name("third")
    more = dls.foreach_batch(
        {name: lambda batch, _batch_id: batch for name in (first, third)}, app_id="the same, again and again"
    )
    finish(source(shop, tmp_path / "in").writeStream.foreachBatch(more), tmp_path / "checkpoint 2")
    assert shop.ids("first") == shop.ids("third") == [1, 2]


def test_a_new_checkpoint_starts_over_under_a_new_id(shop: Shop, tmp_path: Path) -> None:
    name = shop.name("rows")
    sink = dls.foreach_batch({name: lambda batch, _batch_id: batch})
    arrive(tmp_path / "in", 1)
    for attempt in range(2):
        finish(source(shop, tmp_path / "in").writeStream.foreachBatch(sink), tmp_path / f"checkpoint {attempt}")
    assert shop.ids("rows") == [1, 1]


def test_a_batch_that_meets_a_conflict_is_run_again(shop: Shop, tmp_path: Path) -> None:
    name, other = shop.create("state", [1]), shop.create("log")
    disturbed: list[int] = []

    def merge(batch: DataFrame, batch_id: int, tx: SparkTransaction) -> None:
        tx.sql(f"merge into {{{name}}} t using {{b}} b on t.id = b.id when not matched then insert *", b=batch)
        if len(disturbed) < 2:
            disturbed.append(batch_id)
            shop.append_elsewhere("state", [100 + len(disturbed)])

    arrive(tmp_path / "in", 1, 2)
    sink = dls.foreach_batch({name: merge, other: lambda batch, _batch_id: batch})
    finish(source(shop, tmp_path / "in").writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    assert disturbed == [0, 0]
    assert shop.ids("state") == [1, 2, 101, 102]
    assert shop.ids("log") == [1, 2]
    shop.check_level("state", "log")


def test_a_function_that_fails_leaves_nothing_of_the_batch(shop: Shop, tmp_path: Path) -> None:
    name, other = shop.create("first"), shop.create("second")
    attempts: list[int] = []

    def fail_once(batch: DataFrame, batch_id: int) -> DataFrame:
        attempts.append(batch_id)
        if len(attempts) == 1:
            raise RuntimeError("the mapping is wrong")
        return batch

    sink = dls.foreach_batch({name: lambda batch, _batch_id: batch, other: fail_once})
    arrive(tmp_path / "in", 1)
    stream = source(shop, tmp_path / "in").writeStream.foreachBatch(sink)
    with pytest.raises(StreamingQueryException, match="the mapping is wrong"):
        finish(stream, tmp_path / "checkpoint")
    assert shop.ids("first") == shop.ids("second") == []
    finish(stream, tmp_path / "checkpoint")
    assert shop.ids("first") == shop.ids("second") == [1]
    shop.check_level("first", "second")


def test_what_cannot_work_is_refused_at_once(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="at least one table"):
        dls.foreach_batch({})
    with pytest.raises(ConfigError, match=r"must take \(batch, batch_id\)"):
        dls.foreach_batch({"a.b": lambda batch: batch})
    with pytest.raises(ConfigError, match="is not a valid name"):
        dls.foreach_batch({"a..b": lambda batch, _: batch})
    with pytest.raises(ConfigError, match="named twice"):
        dls.foreach_batch({"default.b": lambda batch, _: batch, "b": lambda batch, _: batch})
    with pytest.raises(ConfigError, match="attempts must be 1 or more"):
        dls.foreach_batch({"a.b": lambda batch, _: batch}, attempts=0)
    with pytest.raises(ConfigError, match="belongs to no streaming query"):
        dls.foreach_batch({shop.name("x"): lambda batch, _: batch})(shop.frame([1]), 0)
