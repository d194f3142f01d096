"""A capture from end to end: a real Postgres, a real Spark, and the lake equal to the source."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltalakedb import cdc
from deltalakedb.cdc.apply.batches import reload_capture
from deltalakedb.cdc.copy.resnapshot import resnapshot
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.run.report import BatchDone, CaptureReport
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.exceptions import CaptureRunningError, CaptureSetupError, ConfigError, SourceUnavailableError
from tests.cdc import judging
from tests.cdc.capturing import Capturing, wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import PUBLICATION, create_shop

WHAT: dict[str, Any] = {"publication": PUBLICATION, "namespace": "lake", "slot": "dl_shop"}


def settings_of(source: Source) -> CaptureSettings:
    return CaptureSettings(source.dsn, PUBLICATION, namespace="lake", slot="dl_shop")


def once(lake: Lake, source: Source, spark: SparkSession, **more: Any) -> CaptureReport:
    return cdc.run(lake.catalog, source.dsn, spark=spark, once=True, **{**WHAT, **more})


def check(lake: Lake, source: Source) -> None:
    """Both layers against the source, and what other readers see."""
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_all(lake.catalog, source, capture, None)


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.catalog.table(name).to_pyarrow_table().to_pylist()
    return found


def test_once_copies_what_is_there_and_then_captures_what_happens(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'order ' || i, i / 4.0 from generate_series(1, 500) i")
    first = once(lake, source, spark)
    assert sorted(first.copied) == ["public.items", "public.orders"]
    assert first.rows == 0
    check(lake, source)
    source.run(
        "insert into orders values (1001, 'new', null)",
        "begin; insert into items values (1, 1001, 'a'), (2, 1001, 'b'); "
        "update orders set amount = 7 where id < 10; commit",
        "update orders set id = 2000 where id = 3",
        "delete from orders where id between 100 and 199",
        "begin; insert into items values (9, 9, 'never'); rollback",
    )
    second = once(lake, source, spark)
    assert second.copied == ()
    assert {name: dict(ops) for name, ops in second.changes.items()} == {
        "public.orders": {"insert": 1, "update": 10, "delete": 100},
        "public.items": {"insert": 2},
    }
    assert second.transactions == 4
    assert second.lsn == reload_capture(lake.catalog, settings_of(source)).lsn
    check(lake, source)
    with source.connect() as conn:
        slot = find_slot(conn, "dl_shop")
    assert slot is not None
    assert slot.confirmed_lsn == second.lsn
    third = once(lake, source, spark)
    assert (third.rows, third.batches, third.copied) == (0, 0, ())


def test_a_small_batch_size_makes_more_batches_and_the_same_tables(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    create_shop(source)
    once(lake, source, spark)
    for number in range(8):
        source.run(f"insert into orders select i, repeat('x', 200), 1 from generate_series({number}000, {number}499) i")
        if number == 4:  # what was read ahead is of no use then
            source.run("alter table orders add column more int", "insert into items values (1, 1, 'one')")
    # One transaction that is larger than a batch: it is in the batch in which it ends.
    source.run("insert into items select i, 1, repeat('y', 300) from generate_series(101, 3100) i")
    batches: list[BatchDone] = []
    report = once(lake, source, spark, batch_size="256KB", on_batch=batches.append)
    assert len(batches) == report.batches >= 4
    assert [one.lsn for one in batches] == sorted(one.lsn for one in batches)
    assert sum(one.rows for one in batches) == report.rows == 7001
    with source.connect() as conn:
        slot = find_slot(conn, "dl_shop")
    assert slot is not None
    assert slot.confirmed_lsn == report.lsn, "the slot follows a backlog now and then, and at its end"
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_current(lake.catalog, source, capture)
    committed = {path for name in lake.catalog.tables() for path in lake.catalog.table(name).file_uris()}
    assert {str(path) for path in lake.warehouse.rglob("part-*.parquet")} == committed, "no file is left behind"


def test_a_stream_captures_as_changes_come_and_goes_on_where_it_was(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    create_shop(source)
    source.run("insert into orders values (1, 'one', 1)")
    batches: list[BatchDone] = []
    how = {**WHAT, "batch_window": "1s", "heartbeat": "1s", "on_batch": batches.append}
    with Capturing(lake, source, spark, **how) as capturing, source.connect() as conn:
        wait_until(lambda: "lake.orders" in lake.catalog.tables() and len(rows(lake, "lake.orders")) == 1)
        source.run("insert into orders values (2, 'two', 2)", "insert into items values (1, 2, 'x')")
        wait_until(lambda: len(rows(lake, "lake.orders")) == 2)
        before = len(batches)
        for number in range(3, 13):  # ten transactions, all within a window
            conn.execute("insert into orders values (%s, 'more', 1)", [number])
        wait_until(lambda: len(rows(lake, "lake.orders")) == 12)
        assert len(batches) <= before + 2
        # While nothing is captured the slot moves on with the heartbeat.
        noted = reload_capture(lake.catalog, settings_of(source)).lsn
        conn.execute("select pg_logical_emit_message(true, 'nothing', repeat('x', 1000))")
        wait_until(lambda: reload_capture(lake.catalog, settings_of(source)).lsn > noted + 1000)
        wait_until(lambda: (slot := find_slot(conn, "dl_shop")) is not None and slot.confirmed_lsn > noted + 1000)
    assert capturing.report is not None
    assert capturing.report.rows == sum(one.rows for one in batches) == 12
    source.run("delete from orders where id = 1", "update items set note = 'y'")
    with Capturing(lake, source, spark, **WHAT):
        wait_until(lambda: len(rows(lake, "lake.orders")) == 11)
    check(lake, source)


def test_a_stream_follows_new_columns_and_new_tables_and_copies_a_table_anew_when_asked(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    create_shop(source)
    with Capturing(lake, source, spark, **WHAT) as capturing:
        wait_until(lambda: "lake.orders" in lake.catalog.tables())
        source.run(
            "insert into orders values (1, 'one', 1)",
            "alter table orders add column more int",
            "insert into orders values (2, 'two', 2, 22)",
            "create table late (id int primary key, note text)",
            "insert into late values (1, 'here')",
        )
        wait_until(lambda: len(rows(lake, "lake.orders")) == 2)
        assert sorted((row["id"], row["more"]) for row in rows(lake, "lake.orders")) == [(1, None), (2, 22)]
        wait_until(lambda: "lake.late" in lake.catalog.tables())
        lake.catalog.table("lake.orders").delete("id = 1")  # which nobody should do
        _, is_running = resnapshot(lake.catalog, settings_of(source), ["orders"])
        assert is_running
        source.run("insert into late values (2, 'too')")
        wait_until(lambda: len(rows(lake, "lake.late")) == len(rows(lake, "lake.orders")) == 2)
    assert capturing.report is not None
    assert capturing.report.copied[-2:] == ("public.late", "public.orders")
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_current(lake.catalog, source, capture)
    judging.check_mirror(lake.catalog, capture)


def test_only_one_runner_at_a_time(lake: Lake, source: Source, spark: SparkSession) -> None:
    create_shop(source)
    with RunnerPresence(source.dsn, "dl_shop"), pytest.raises(CaptureRunningError, match="dl cdc stop"):
        once(lake, source, spark)
    assert "lake.cdc_dl_shop" not in lake.catalog.tables()


def test_what_cannot_work_is_refused_at_once(lake: Lake, source: Source, spark: SparkSession) -> None:
    with pytest.raises(CaptureSetupError, match="create publication shop for all tables"):
        once(lake, source, spark)
    with pytest.raises(ConfigError, match="publication"):
        cdc.run(lake.catalog, source.dsn, spark=spark, once=True)
    with pytest.raises(ConfigError, match="source"):
        cdc.run(lake.catalog, publication="shop", spark=spark, once=True)
    with pytest.raises(ConfigError, match="64KB"):
        once(lake, source, spark, batch_size="1KB")
    with pytest.raises(ConfigError):
        once(lake, source, spark, batch_sise="1MB")
    with pytest.raises(SourceUnavailableError, match="cannot be reached"):
        cdc.run(lake.catalog, "host=127.0.0.1 port=1 dbname=x", spark=spark, **WHAT)
    assert lake.catalog.tables() == []
