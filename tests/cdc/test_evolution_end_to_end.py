"""Tables that are altered while they are captured by Spark: followed, or stopped alone and copied anew."""

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from deltalakedb.cdc.control import Capture, load_capture
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc.capturing import Capturing, capture_once, wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.judging import captured, check_current, check_mirror
from tests.fixtures.sizes import FULL

WHAT: dict[str, Any] = {"publication": "shop", "slot": "dl_shop", "namespace": "lake", "column_mapping": True}
TABLES = (
    "create table orders (id bigint primary key, name text, amount int)",
    "create table items (id int primary key, note text)",
    "create table notes (id int primary key, x text)",
    "create publication shop for all tables",
    "insert into orders select n, 'order ' || n, n from generate_series(1, 50) n",
    "insert into notes select n, 'note ' || n from generate_series(1, 5) n",
)


def settings_of(source: Source) -> CaptureSettings:
    return CaptureSettings(source.dsn, "shop", slot="dl_shop", namespace="lake", column_mapping=True)


def loaded(lake: Lake, source: Source) -> Capture:
    capture = load_capture(lake.catalog, settings_of(source))
    assert capture is not None
    return capture


def test_a_backlog_with_many_changes_of_columns_is_followed_and_what_is_not_is_copied_anew(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    source.run(*TABLES)
    capture_once(lake, source, spark, **WHAT)
    source.run(
        "insert into orders values (101, 'a', 1)",
        "alter table orders add state text default 'new'",
        "begin; insert into orders values (102, 'b', 2, 'old'); insert into items values (1, 'x'); "
        "alter table orders add fee numeric(8, 2) default 0.25; update orders set amount = amount + 1 where id < 5; "
        "commit",
        "begin; update orders set name = 'c' where id = 7; alter table notes alter x type int using 1; "
        "insert into notes values (9, 9); insert into items values (2, 'incomplete'); commit",
        "alter table orders drop amount",
        "alter table orders rename name to title",
        "delete from orders where id between 10 and 20",
        "insert into items values (3, 'z')",
        "alter table items add more int",
    )
    report = capture_once(lake, source, spark, **WHAT)
    assert list(report.stopped) == ["public.notes"]
    capture = loaded(lake, source)
    stopped = capture.tables["public.notes"]
    assert "its column x was text and is integer" in (stopped.reason or "")
    # of the transactions from there on, what was done to that table is missing: as other tables tell
    items = lake.catalog.table("lake.items_changes").to_pyarrow_table().to_pylist()
    assert [row["_lsn"] for row in items if row["after"]["note"] == "incomplete"] == [stopped.stopped_lsn]
    following = {table.source: table for table in capture.tables.values() if table.stage == "streaming"}
    check_current(lake.catalog, source, replace(capture, tables=following))
    assert [column.name for column in following["public.items"].columns] == ["id", "note", "more"]

    request_resnapshot(lake.catalog, settings_of(source), ["public.notes"])
    source.run("insert into notes values (10, 10)", "insert into orders values (200, 'z', 'new', 1)")
    again = capture_once(lake, source, spark, **WHAT)
    assert (again.copied, again.stopped) == (("public.notes",), {})
    whole = captured(lake.catalog, settings_of(source))
    check_current(lake.catalog, source, whole)
    check_mirror(lake.catalog, whole)


def test_a_stream_follows_tables_that_are_altered_under_load_and_when_they_are_quiet(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    source.run(*TABLES)
    with Capturing(lake, source, spark, **WHAT) as capturing:
        wait_until(lambda: {"lake.orders", "lake.items", "lake.notes"} <= set(lake.catalog.tables()), capturing)
        source.run("alter table notes add quiet int default 3")
        for number in range(300, 312 if FULL else 304):
            source.run(f"insert into orders (id) values ({number})", f"insert into items values ({number}, 'n')")
            if number % 3 == 0:
                source.run(f"alter table orders add c{number} int default {number}")
            if number % 4 == 0:
                source.run(f"alter table items rename note to note{number}", "alter table items add note text")
        wait_until(lambda: loaded(lake, source).tables["public.notes"].column("quiet") is not None, capturing)
    capture_once(lake, source, spark, **WHAT)
    capture = captured(lake.catalog, settings_of(source))
    check_current(lake.catalog, source, capture)
    assert {row["quiet"] for row in lake.catalog.table("lake.notes").to_pyarrow_table().to_pylist()} == {3}
