"""Columns whose type, name or presence changes: what the lake follows, and what stops a table."""

from pathlib import Path
from typing import Any

import pytest

from deltalakedb.runtime import steps
from tests.cdc.conftest import Lake, Source
from tests.cdc.evolving import Evolving, evolving
from tests.cdc.judging import bring_level, check_mirror
from tests.fixtures.readers import Deltalake, DuckDB, Refused

ORDERS = "create table orders (id bigint primary key, name text, amount int)"
ITEMS = "create table items (id int primary key, note text)"
NUMBERS = (
    "create table orders (id int primary key, a smallint, b int, c bigint, d real, e numeric(10, 2), f int, g int[], "
    "h smallint)"
)


def test_widened_types_are_followed(lake: Lake, source: Source) -> None:
    with evolving(lake, source, NUMBERS) as capture:
        source.run("insert into orders values (1, 1, 2, 3, 0.1, 12345678.91, 6, '{7,null}', 8)")
        source.run("insert into orders values (2, -32768, -2147483648, -9e18::bigint, -1e30, -1, 0, null, 0)")
        capture.catch_up()
        source.run(
            "alter table orders alter id type bigint, alter a type int, alter b type bigint, "
            "alter c type numeric(24, 2), alter d type double precision, alter e type numeric(14, 4), "
            "alter f type double precision, alter g type bigint[], alter h type bigint",
            "insert into orders values (9e15::bigint, 2e9::int, 9e18::bigint, 1e20, 1e300, 1e9 + 0.1234, 0.5, "
            "'{9000000000}', 5e9::bigint)",
            "update orders set e = 0.0001 where id = 1",
        )
        capture.catch_up()
        capture.check_equal(source)
        types = {item.name: str(item.type) for item in capture.schema("lake.orders").fields}
        assert types == {
            "id": "long", "a": "integer", "b": "long", "c": "decimal(24,2)", "d": "double", "e": "decimal(14,4)",
            "f": "double", "g": "array<long>", "h": "long",
        }  # fmt: skip
        source.run("alter table orders alter a type bigint", "delete from orders where id = 2")
        capture.catch_up()
        capture.check_equal(source)
        assert [str(item) for item in capture.schema("lake.orders").fields[1].type_changes] == [
            "TypeChange(from_type='short', to_type='integer', field_path='')",
            "TypeChange(from_type='integer', to_type='long', field_path='')",
        ]
        changes = capture.rows("lake.orders_changes")
        assert [change["after"]["g"] for change in changes if change["after"]] == [
            [7, None],
            None,
            [9000000000],
            [7, None],
        ]
        assert any("had a USING" in note for note in capture.table().notes)


def test_of_other_readers_those_read_a_widened_table_that_know_the_feature(lake: Lake, source: Source) -> None:
    with evolving(lake, source, "create table orders (id int primary key, a int, d real)") as capture:
        source.run("insert into orders values (1, 1, 0.5)")
        capture.catch_up()
        source.run("alter table orders alter a type bigint, alter d type float8")
        source.run("insert into orders values (2, 9000000000, 0.1)")
        capture.catch_up()
        capture.check_equal(source)
        bring_level(lake.catalog)
        folder = Path(lake.catalog.table("lake.orders").table_uri.removeprefix("file://"))
        duck = DuckDB()
        rows = duck.latest(folder).rows.to_pylist()
        duck.close()
        assert {row["id"]: (row["a"], row["d"]) for row in rows} == {1: (1, 0.5), 2: (9000000000, 0.1)}
        with pytest.raises(Refused, match="TypeWidening"):
            Deltalake().latest(folder)


def test_texts_that_hold_more_need_nothing_of_the_lake(lake: Lake, source: Source) -> None:
    table = "create table orders (id int primary key, a varchar(3), b varchar(3), c uuid, d jsonb, e mood, f time(0))"
    with evolving(lake, source, "create type mood as enum ('sad', 'happy')", table) as capture:
        source.run(
            "insert into orders values (1, 'a', 'b', gen_random_uuid(), '{\"x\": [1,2]}', 'sad', '10:11:12')",
            "alter table orders alter a type varchar(9), alter b type text, alter c type text, alter d type text, "
            "alter e type text, alter f type time(3)",
        )
        source.run("insert into orders values (2, 'aaaaaaaaa', 'bbbb', 'c', 'd', 'e', '10:11:12.345')")
        capture.catch_up()
        capture.check_equal(source)
        version = lake.catalog.table("lake.orders").version()
        history = [one["operation"] for one in lake.catalog.table("lake.orders").history()]
        assert version == 2, history


def test_an_enum_that_another_one_has_replaced_is_followed(lake: Lake, source: Source) -> None:
    table = "create table orders (id int primary key, x mood)"
    with evolving(lake, source, "create type mood as enum ('sad', 'happy')", table) as capture:
        source.run(
            "insert into orders values (1, 'sad')",
            "alter type mood rename to old_mood",
            "create type mood as enum ('happy', 'sad', 'calm')",
            "alter table orders alter x type mood using x::text::mood",
            "drop type old_mood",
            "insert into orders values (2, 'calm')",
        )
        capture.catch_up()
        capture.check_equal(source)
        assert "had a USING" in capture.table().notes[0]


OTHER_TYPES = (
    ("text", "type int using length(x)"),
    ("int", "type text"),
    ("bigint", "type int"),
    ("bigint", "type double precision"),
    ("numeric(10, 2)", "type numeric(10, 4)"),
    ("numeric(10, 2)", "type numeric"),
    ("varchar(10)", "type varchar(5)"),
    ("text", "type varchar(100)"),
    ("char(3)", "type char(5)"),
    ("char(3)", "type text"),
    ("timestamp(6)", "type timestamp(0)"),
    ("timestamp", "type timestamptz"),
    ("date", "type timestamp"),
    ("json", "type jsonb"),
    ("int", "type int[] using array[x]"),
    ("time", "type interval"),
)


def test_a_type_that_is_no_wider_one_stops_that_table_alone(lake: Lake, source: Source) -> None:
    names = [f"t{number}" for number in range(len(OTHER_TYPES))]
    tables = [
        f"create table {name} (id int primary key, x {before})"
        for name, (before, _) in zip(names, OTHER_TYPES, strict=True)
    ]
    with evolving(lake, source, *tables, ITEMS) as capture:
        for name, (_, change) in zip(names, OTHER_TYPES, strict=True):
            source.run(f"insert into {name} values (1, null)", f"alter table {name} alter x {change}")
        source.run(*(f"insert into {name} values (2, null)" for name in names), "insert into items values (1, 'x')")
        capture.catch_up()
        for name in names:
            table = capture.table(f"public.{name}")
            assert table.stage == "stopped", name
            assert "its column x was " in (table.reason or "")
            assert (table.reason or "").endswith(f"dl cdc resnapshot public.{name} copies it anew")
            assert [row["id"] for row in capture.rows(f"lake.{name}")] == [1]
        capture.check_equal(source, "public.items")


def test_a_dropped_column_stays_in_the_lake(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a', 10), (2, 'b', 20)")
        capture.catch_up()
        source.run("alter table orders drop amount", "insert into orders values (3, 'c')")
        source.run("update orders set name = 'A' where id = 1")
        capture.catch_up()
        capture.check_equal(source)
        assert {row["id"]: row["amount"] for row in capture.rows("lake.orders")} == {1: None, 2: 20, 3: None}
        assert capture.table().notes == ("the source has dropped the column amount",)
        # a new column of that name has nothing to do with it
        source.run("alter table orders add amount int", "insert into orders values (4, 'd', 40)")
        capture.catch_up()
        capture.check_equal(source)
        source.run("alter table orders drop amount", "insert into orders values (5, 'e')")
        capture.catch_up()
        source.run("alter table orders add amount text", "insert into orders values (6, 'f', 'x')")
        capture.catch_up()
        assert "the lake still has a column amount of type integer" in (capture.table().reason or "")


def test_with_column_mapping_a_column_is_dropped_and_renamed(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, column_mapping=True) as capture:
        source.run("insert into orders values (1, 'a', 10), (2, 'b', 20)")
        capture.catch_up()
        source.run("alter table orders drop amount", "alter table orders rename name to title")
        source.run("alter table orders rename id to number", "insert into orders values (3, 'c')")
        source.run("update orders set title = 'A' where number = 1", "delete from orders where number = 2")
        capture.catch_up()
        capture.check_equal(source)
        assert capture.table().key == ("number",)
        assert capture.schema("lake.orders").names == ("number", "title")
        befores = [change["before"] for change in capture.rows("lake.orders_changes") if change["_op"] == "delete"]
        assert befores == [{"number": 2, "title": None}]
        # names change places, and an old name comes back for another column
        source.run("alter table orders rename title to x", "alter table orders rename number to title")
        source.run("alter table orders rename x to number", "alter table orders add amount text default 'n'")
        source.run("insert into orders values (9, 'nine', 'm')")
        capture.catch_up()
        capture.check_equal(source)
        assert min(capture.rows("lake.orders"), key=lambda row: row["title"]) == {
            "title": 1,
            "number": "A",
            "amount": "n",
        }
        check_mirror(lake.catalog, capture.capture)


def test_without_column_mapping_a_renamed_column_stops_the_table(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("alter table orders rename name to title", "insert into orders values (1, 'a', 1)")
        source.run("insert into items values (1, 'x')")
        capture.catch_up()
        assert "its column name is called title now, and without column mapping" in (capture.table().reason or "")
        capture.check_equal(source, "public.items")


def test_a_renamed_column_of_a_quiet_table(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, column_mapping=True) as capture:
        source.run("insert into orders values (1, 'a', 1)", "alter table orders rename name to title")
        capture.settle()
        capture.check_equal(source)
        source.run("alter table orders drop title")
        capture.settle()
        capture.check_equal(source)


def test_what_happened_unseen_may_be_ambiguous(lake: Lake, source: Source) -> None:
    """Two columns were dropped since: which of them the message means, nobody can tell."""
    table = "create table orders (id int primary key, a int, b int)"
    with evolving(lake, source, table, ITEMS, column_mapping=True) as capture:
        source.run(
            "alter table orders rename a to x",
            "alter table orders drop b",
            "alter table orders add y int",
            "alter table orders rename x to z",
            "insert into orders values (1, 2, 3)",
            "alter table orders drop z",
            "alter table orders add a int",
            "alter table orders drop y",
        )
        source.run("insert into items values (1, 'x')")
        capture.catch_up()
        assert "nobody can tell which of them is which" in (capture.table().reason or "")
        capture.check_equal(source, "public.items")


def test_a_column_that_was_made_anew_is_not_taken_for_the_old_one(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a', 1)")
        source.run("alter table orders drop amount", "alter table orders add amount int")
        source.run("insert into orders values (2, 'b', 2)")
        capture.settle()
        assert capture.table().reason == (
            "its column amount was dropped and made anew: dl cdc resnapshot public.orders copies it anew"
        )


def test_only_what_is_committed_together_is_seen(lake: Lake, source: Source) -> None:
    """Both tables of the lake and the capture's own state change in one transaction."""
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a', 1)")
        capture.catch_up()
        source.run("alter table orders add price int default 3")
        capture.settle()
        ids = {name: lake.catalog.table(name).history(1)[0]["txnId"] for name in _tables(capture)}
        assert len(set(ids.values())) == 1, ids


def test_columns_are_changed_on_top_of_what_others_did_to_the_table_meanwhile(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        for number in range(3):
            source.run(f"insert into orders values ({number}, 'a', 1)")
            capture.catch_up()
        compacted: list[dict[str, Any]] = []

        def compact(step: str) -> None:
            if step == "cdc.followed" and not compacted:
                compacted.append(lake.catalog.table("lake.orders").optimize.compact())

        steps.observe(compact)
        source.run("alter table orders add price int default 3", "insert into orders values (9, 'b', 2, 4)")
        capture.catch_up()
        assert compacted[0]["numFilesRemoved"] == 3
        capture.check_equal(source)


def _tables(capture: Evolving) -> list[str]:
    return [capture.capture.control, "lake.orders", "lake.orders_changes"]
