"""The tables of a publication: which are captured, what names their rows, where they go, and which are refused."""

import shlex

import psycopg
import pytest

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.rule_parsing import parse_rules
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.publication import published_tables
from deltalakedb.cdc.source_names import parse_source, resnapshot_command
from deltalakedb.exceptions import CaptureSetupError, TableNameError
from tests.cdc.conftest import Source

ALL = "create publication shop for all tables"


def tables_of(source: Source, **given: object) -> dict[str, CapturedTable]:
    settings = CaptureSettings(source.dsn, "shop", **given)  # type: ignore[arg-type]  # settings by name
    with connect(source.dsn) as conn:
        return {table.source: table for table in published_tables(conn, settings)}


def names_of(table: CapturedTable) -> list[str]:
    return [column.name for column in table.columns]


def test_a_table_is_pending_and_goes_into_the_namespace_of_its_schema(source: Source) -> None:
    source.run("create schema sales", "create table sales.orders (id bigint primary key, note text)", ALL)
    (table,) = tables_of(source).values()
    assert (table.source, table.current, table.changes) == ("sales.orders", "sales.orders", "sales.orders_changes")
    assert (table.key, table.identity, table.stage, table.start_lsn) == (("id",), "d", "pending", None)
    assert names_of(table) == ["id", "note"]
    assert table.filenode is not None


def test_with_a_namespace_all_tables_go_there(source: Source) -> None:
    source.run(
        "create schema sales",
        "create table sales.orders (id int primary key)",
        "create table items (id int primary key)",
        ALL,
    )
    assert {table.current for table in tables_of(source, namespace="lake.shop").values()} == {
        "lake.shop.orders",
        "lake.shop.items",
    }


def test_rows_are_named_by_the_primary_key_by_the_identity_index_or_by_the_whole_row(source: Source) -> None:
    source.run(
        "create table two (b int, a int, primary key (b, a))",
        "create table indexed (id int primary key, code text not null, other int)",
        "create unique index code on indexed (code) include (other)",
        "alter table indexed replica identity using index code",
        "create table whole (a int, b text)",
        "alter table whole replica identity full",
        "create table keyed (id int primary key, b text)",
        "alter table keyed replica identity full",
        ALL,
    )
    found = {name: (table.key, table.identity) for name, table in tables_of(source).items()}
    assert found == {
        "public.indexed": (("code",), "i"),
        "public.keyed": (("id",), "f"),
        "public.two": (("b", "a"), "d"),
        "public.whole": ((), "f"),
    }


def test_tables_whose_rows_have_no_name_are_refused_all_in_one_message(source: Source) -> None:
    source.run(
        "create table one (a int)",
        "create table two (id int primary key deferrable)",
        "create table three (id int primary key)",
        "alter table three replica identity nothing",
        "create table fine (id int primary key)",
        ALL,
    )
    with pytest.raises(CaptureSetupError, match="replica identity full") as caught:
        tables_of(source)
    assert [name for name in ("one", "two", "three", "fine") if f"public.{name}: nothing" in str(caught.value)] == [
        "one",
        "two",
        "three",
    ]
    assert list(tables_of(source, tables=("fine",))) == ["public.fine"], "who names the tables is not bothered"


def test_what_a_person_is_to_run_has_names_as_sql_and_a_shell_take_them(source: Source) -> None:
    source.run('create table "a ""b"" `c`/d" (x int)', "create table plain (x int)", ALL)
    with pytest.raises(CaptureSetupError) as caught:
        tables_of(source)
    assert 'alter table public."a ""b"" `c`/d" replica identity full' in str(caught.value)
    assert "alter table public.plain replica identity full" in str(caught.value)
    command = shlex.split(resnapshot_command('public.`a "b" ``c``/d`'))
    assert command[:-1] == ["dl", "cdc", "resnapshot"]
    assert parse_source(command[-1]) == 'public.`a "b" ``c``/d`'


def test_a_list_of_columns_is_followed_and_must_have_the_key(source: Source) -> None:
    source.run(
        "create table t (id int primary key, shown text, hidden text)",
        "create publication shop for table t (id, shown)",
    )
    assert names_of(tables_of(source)["public.t"]) == ["id", "shown"]
    source.run("alter publication shop set table t (shown)")
    with pytest.raises(CaptureSetupError, match="public.t: id is part of its key"):
        tables_of(source)


def test_a_column_that_is_to_be_text_is_text(source: Source) -> None:
    source.run("create table t (id int primary key, price numeric(10, 2), tags int[])", ALL)
    table = tables_of(source, text_columns=("t.price", "public.t.tags", "public.other.id"))["public.t"]
    assert [str(column.type) for column in table.columns] == ["integer", "string", "string"]


def test_a_column_that_is_to_be_text_and_is_not_there_is_a_slip(source: Source) -> None:
    source.run("create table t (id int primary key, price numeric)", ALL)
    with pytest.raises(CaptureSetupError, match="public.t has no column prize, which text_columns names"):
        tables_of(source, text_columns=("t.prize",))


def test_both_layers_of_a_table_need_names_of_their_own(source: Source) -> None:
    source.run("create table t (id int primary key)", ALL)
    rules = parse_rules([{"changes_name": "{table}"}])
    with pytest.raises(CaptureSetupError, match="its current rows and its changes would both be public.t in the lake"):
        tables_of(source, rules=rules)
    assert tables_of(source, rules=parse_rules([{"changes_name": "{table}", "layers": "changes"}]))


def test_names_that_would_be_one_in_the_lake_are_refused(source: Source) -> None:
    source.run(
        "create schema a",
        "create schema b",
        "create table a.orders (id int primary key)",
        'create table b."Orders" (id int primary key)',
        "create table a.items (id int primary key)",
        "create table b.items_changes (id int primary key)",
        f"create table a.cdc_dl_{source.database}_shop (id int primary key)",
        ALL,
    )
    assert len(tables_of(source)) == 5, "each schema is a namespace of its own"
    with pytest.raises(CaptureSetupError) as caught:
        tables_of(source, namespace="shop")
    message = str(caught.value)
    assert "b.Orders: it and a.orders would both be shop.Orders" in message
    assert "b.items_changes: it and a.items would both be shop.items_changes" in message
    control = f"cdc_dl_{source.database}_shop"
    assert f"a.{control}: it and the capture's control table would both be shop.{control}" in message


def test_names_that_need_it_are_in_backticks_in_the_lake(source: Source) -> None:
    source.run(
        'create schema "my.schema"',
        'create table "my.schema"."a/b" (id int primary key, "x.y" int)',
        'create table "a.b" (id int primary key)',
        """create table "it's" (id int primary key)""",
        'create table "`" (id int primary key)',
        ALL,
    )
    found = {table.source: (table.current, table.changes) for table in tables_of(source).values()}
    assert found == {
        "`my.schema`.`a/b`": ("`my.schema`.`a/b`", "`my.schema`.`a/b_changes`"),
        "public.`a.b`": ("public.`a.b`", "public.`a.b_changes`"),
        "public.`it's`": ("public.`it's`", "public.`it's_changes`"),
        "public.````": ("public.````", "public.```_changes`"),
    }
    (one,) = tables_of(source, namespace="my-lake", tables=("`my.schema`.`a/b`",)).values()
    assert one.current == "`my-lake`.`a/b`"
    (text,) = tables_of(source, tables=("`my.schema`.`a/b`",), text_columns=("`my.schema`.`a/b`.`x.y`",)).values()
    assert [column.type for column in text.columns] != [column.type for column in one.columns]
    with pytest.raises(TableNameError, match=r"written in backticks, for example public\.`a\.b`"):
        tables_of(source, tables=("public.a.b",))


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ("orders", "public.orders"),
        ("sales.orders", "sales.orders"),
        ("a/b", "public.`a/b`"),
        ("public.it's", "public.`it's`"),
        ('x"y', 'public.`x"y`'),
        ('"a.b"', "public.`a.b`"),
        ('"my ""schema"""."a/b"', '`my "schema"`.`a/b`'),
        ("`a.b`.`c``d`", "`a.b`.`c``d`"),
    ],
)
def test_source_tables_are_named_as_they_are_in_backticks_or_as_in_sql(given: str, source: str) -> None:
    assert parse_source(given) == source


@pytest.mark.parametrize("given", ["", "a.", ".a", "a..b", "`a", '"a', '""', "a.b.c", '"a"b'])
def test_what_names_no_source_table_is_refused(given: str) -> None:
    with pytest.raises(TableNameError):
        parse_source(given)


def test_names_that_the_lake_cannot_have_are_refused(source: Source) -> None:
    source.run('create table "a\nb" (id int primary key)', ALL)
    with pytest.raises(CaptureSetupError, match=r"control character U\+000A"):
        tables_of(source)


def test_what_older_captures_noted_of_a_table_gets_its_backticks(source: Source) -> None:
    source.run("create table t (id int primary key)", ALL)
    value = tables_of(source)["public.t"].to_value()
    for old, new, lake in [
        ("public.t", "public.t", "shop.t"),
        ("public.my-table", "public.`my-table`", "shop.my-table"),
        ("public.it's", "public.`it's`", "shop.it's"),
        ("public.a.b", "public.`a.b`", "shop.a.b"),
    ]:
        kept = CapturedTable.from_value({**value, "source": old, "current": lake, "changes": f"{lake}_changes"})
        assert kept.source == new
        assert CapturedTable.from_value(kept.to_value()) == kept


def test_columns_that_differ_by_case_only_and_tables_without_columns_are_refused(source: Source) -> None:
    source.run('create table t (id int primary key, "ID" int)', "create table empty ()", ALL)
    source.run("alter table empty replica identity full")
    with pytest.raises(CaptureSetupError, match="public.empty: it has no columns; public.t: the columns id and ID"):
        tables_of(source)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("create table wanted (id int primary key)", "alter publication shop add table public.wanted"),
        ("create view wanted as select 1 as id", "is a view"),
        ("create materialized view wanted as select 1 as id", "is a materialized view"),
        ("create unlogged table wanted (id int primary key)", "alter table public.wanted set logged"),
        ("create sequence wanted", "is a sequence"),
        ("create table wanted (id int) partition by range (id)", "publish_via_partition_root = true"),
        ("select 1", "there is no table public.wanted"),
    ],
)
def test_a_table_that_is_asked_for_and_not_published_is_told_why(source: Source, made: str, said: str) -> None:
    source.run("create table t (id int primary key)", "create publication shop for table t", made)
    with pytest.raises(CaptureSetupError, match=said):
        tables_of(source, tables=("t", "wanted"))


def test_a_foreign_table_is_told_to_be_one(source: Source) -> None:
    source.run(
        "create foreign data wrapper elsewhere",
        "create server other foreign data wrapper elsewhere",
        "create foreign table wanted (id int) server other",
        ALL,
    )
    with pytest.raises(CaptureSetupError, match="is a foreign table"):
        tables_of(source, tables=("wanted",))
    assert tables_of(source) == {}


def test_partitions_are_tables_of_their_own_unless_published_by_their_root(source: Source) -> None:
    source.run(
        "create table events (id int, day date, primary key (id, day)) partition by range (day)",
        "create table events_2026 partition of events for values from ('2026-01-01') to ('2027-01-01')",
        "create publication shop for table events",
    )
    assert list(tables_of(source)) == ["public.events_2026"]
    source.run("alter publication shop set (publish_via_partition_root = true)")
    (table,) = tables_of(source).values()
    assert (table.source, table.key) == ("public.events", ("id", "day"))
    with pytest.raises(CaptureSetupError, match="partition of public.events, which the publication shop has as a"):
        tables_of(source, tables=("events_2026",))


def test_a_catalog_of_ours_in_the_same_database_is_left_out(source: Source) -> None:
    source.run("create schema deltalakedb", "create table deltalakedb.dl_tables (id int primary key)", ALL)
    source.run("create table t (id int primary key)")
    assert list(tables_of(source)) == ["public.t"]


def test_many_tables_are_looked_at_in_as_few_queries_as_one(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.run("create table t0 (id int primary key, v text)", ALL)
    queries: list[object] = []
    execute = psycopg.Connection.execute

    def counted(self: psycopg.Connection, query: object, *rest: object, **options: object) -> object:
        queries.append(query)
        return execute(self, query, *rest, **options)  # type: ignore[call-overload]  # as they came

    def look() -> int:
        settings = CaptureSettings(source.dsn, "shop")
        with connect(source.dsn) as conn, monkeypatch.context() as counting:
            counting.setattr(psycopg.Connection, "execute", counted)
            queries.clear()
            return len(published_tables(conn, settings))

    assert look() == 1
    for_one = len(queries)
    source.run(*(f"create table t{number} (id int primary key, v text)" for number in range(1, 20)))
    assert look() == 20
    assert len(queries) == for_one
