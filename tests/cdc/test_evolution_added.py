"""Columns that are added to a source table, and what the rows that were there have in them."""

from decimal import Decimal

import pyarrow as pa

from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.run.status import capture_status
from deltalakedb.log.schema.types import StructType
from deltalakedb.store.names import quote_part
from tests.cdc.conftest import Lake, Source
from tests.cdc.evolving import evolving
from tests.cdc.judging import check_mirror

ORDERS = "create table orders (id bigint primary key, name text)"
ITEMS = "create table items (id int primary key, note text)"


def test_an_added_column_is_null_in_rows_from_before(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a'), (2, 'b')")
        capture.catch_up()
        source.run("alter table orders add price numeric(10, 2)", "insert into orders values (3, 'c', 1.50)")
        source.run("update orders set price = 2 where id = 1")
        capture.catch_up()
        capture.check_equal(source)
        rows = {row["id"]: row["price"] for row in capture.rows("lake.orders")}
        assert rows == {1: Decimal("2.00"), 2: None, 3: Decimal("1.50")}
        assert capture.table().notes == ("the column price was added; rows from before have null in it",)
        changes = capture.rows("lake.orders_changes")
        assert [change["after"]["price"] for change in changes] == [None, None, Decimal("1.50"), Decimal("2.00")]
        check_mirror(lake.catalog, capture.capture)


def test_rows_from_before_have_the_default_that_a_column_was_added_with(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, change_data_feed=True) as capture:
        source.run("insert into orders values (1, 'a'), (2, 'b')")
        capture.catch_up()
        source.run(
            "alter table orders add state text not null default 'it''s new', add day date default '2026-02-03', "
            "add tags int[] default '{1,null,3}', add raw bytea default '\\x00ff', add fee numeric(6,2) default 0.5, "
            "add at timestamptz default '2026-02-03 04:05:06+00', add done boolean default false, add empty text",
            "insert into orders (id, name, state) values (3, 'c', 'old')",
        )
        capture.catch_up()
        capture.check_equal(source)
        assert capture.rows("lake.orders")[0]["tags"] is not None
        assert "rows from before have its default, it's new" in capture.table().notes[0]
        # the change data feed of the table of current rows tells of it too
        feed = pa.table(lake.catalog.table("lake.orders").load_cdf(starting_version=1)).to_pylist()
        kinds = [row["_change_type"] for row in feed if row["state"] == "it's new" or row["_change_type"] == "insert"]
        assert kinds.count("update_postimage") == 2


def test_rows_of_the_same_transaction_have_the_default_too(lake: Lake, source: Source) -> None:
    full = "alter table orders replica identity full"
    with evolving(lake, source, "create table orders (id bigint, name text)", full) as capture:
        source.run("insert into orders values (1, 'a'), (1, 'a')")
        capture.catch_up()
        source.run(
            "begin; insert into orders values (2, 'b'), (3, 'c'); update orders set name = 'a2' where id = 1; "
            "alter table orders add state text default 'new'; update orders set name = 'b2' where id = 2; "
            "alter table orders add fee int default 7; insert into orders values (4, 'd', 'x', 1); "
            "delete from orders where id = 3; commit"
        )
        capture.catch_up()
        capture.check_equal(source)
        assert [column.missing for column in capture.table().columns] == [None, None, "new", "7"]


def test_a_computed_default_stops_that_table_alone(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into orders values (1, 'a')", "insert into items values (1, 'x')")
        capture.catch_up()
        before = lake.catalog.table("lake.orders").version()
        source.run(
            "alter table orders add code uuid default gen_random_uuid()",
            "begin; insert into orders values (2, 'b'); insert into items values (2, 'y'); commit",
            "insert into items values (3, 'z')",
        )
        capture.catch_up()
        stopped = capture.table()
        assert stopped.stage == "stopped"
        assert "its column code was added with a value that is computed for each row" in (stopped.reason or "")
        assert "dl cdc resnapshot public.orders" in (stopped.reason or "")
        capture.check_equal(source, "public.items")
        assert lake.catalog.table("lake.orders").version() == before
        # the transaction that is incomplete for it: what it did to the other table has this LSN
        incomplete = [row["_lsn"] for row in capture.rows("lake.items_changes") if row["after"]["id"] == 2]
        assert incomplete == [stopped.stopped_lsn]


def test_a_default_that_was_set_later_says_nothing_of_rows_from_before(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a')")
        capture.catch_up()
        source.run(
            "alter table orders add code uuid",
            "alter table orders alter code set default gen_random_uuid()",
            "insert into orders (id, name) values (2, 'b')",
        )
        capture.catch_up()
        capture.check_equal(source)


def test_a_quiet_table_gets_its_columns_too(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into orders values (1, 'a')")
        capture.catch_up()
        source.run("alter table orders add price int default 3", "insert into items values (1, 'x')")
        capture.catch_up()
        assert capture.table().column("price") is None, "no row has told of it"
        capture.settle()
        capture.check_equal(source)
        assert capture.rows("lake.orders") == [{"id": 1, "name": "a", "price": 3}]
        nested = capture.schema("lake.orders_changes").field("after")
        assert nested is not None
        assert isinstance(nested.type, StructType)
        assert nested.type.names == ("id", "name", "price")
        source.run("insert into orders values (2, 'b', 4)")
        capture.catch_up()
        capture.check_equal(source)


def test_a_column_that_was_dropped_again_before_anybody_read_of_it(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run(
            "insert into orders values (1, 'a')",
            "alter table orders add brief int default 5",
            "insert into orders values (2, 'b', 6)",
            "alter table orders drop brief",
            "insert into orders values (3, 'c')",
        )
        capture.catch_up()
        capture.check_equal(source)
        rows = capture.rows("lake.orders")
        assert sorted((row["id"], row["brief"]) for row in rows) == [(1, None), (2, 6), (3, None)]
        assert any("dropped again" in note for note in capture.table().notes)


def test_tables_with_names_that_are_hard(lake: Lake, source: Source) -> None:
    names = ["a.b", "x/y", "my-table", "it's", "`", "ß", "Name With Spaces"]
    tables = [f'create table "{name}" (id int primary key, note text)' for name in names]
    with evolving(lake, source, *tables) as capture:
        for name in names:
            source.run(f"""insert into "{name}" values (1, 'a')""", f'alter table "{name}" add more int')
            source.run(f"""insert into "{name}" values (2, 'b', 3)""", f'delete from "{name}" where id = 1')
        capture.settle()
        for name in names:
            capture.check_equal(source, f"public.{quote_part(name)}")
            assert capture.table(f"public.{quote_part(name)}").current == f"lake.{quote_part(name)}"
        status = capture_status(lake.catalog, capture.settings)
        assert status.problems == ()
        assert {table.rows for table in status.tables} == {1}
        again = request_resnapshot(lake.catalog, capture.settings, ["`a.b`", "public.my-table"])
        pending = {source for source, table in again.tables.items() if table.stage == "pending"}
        assert pending == {"public.`a.b`", "public.`my-table`"}


def test_names_that_are_hard(lake: Lake, source: Source) -> None:
    names = {"t1": "Name", "t2": "näme", "t3": "a.b", "t4": "with space", "t5": "_op", "t6": "after"}
    with evolving(lake, source, *(ORDERS.replace("orders", table) for table in names)) as capture:
        for table, name in names.items():
            source.run(f'alter table {table} add "{name}" int', f"insert into {table} values (1, 'a', 2)")
        capture.catch_up()
        # case does not tell names apart in a Delta table
        assert "Duplicate field name (case-insensitive)" in (capture.table("public.t1").reason or "")
        for table in list(names)[1:]:
            capture.check_equal(source, f"public.{table}")
