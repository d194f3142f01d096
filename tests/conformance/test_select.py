"""Users' own SQL: one SELECT, on a connection that cannot write, whatever the statement tries."""

import pytest

from deltalakedb.exceptions import StoreError
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from tests.conformance.shapes import shape_of


@pytest.fixture
def filled(store: Store) -> Store:
    with store.write() as conn:
        for name in ("a", "b"):
            reg.register_table(conn, namespace="s", name=name, location=f"/{name}", mode="follower", at_ms=1)
    return store


def test_a_select_gives_arrow_with_bare_names_and_parameters(filled: Store) -> None:
    table = filled.select("select name, table_id from dl_tables where name like '%b' -- 100%")
    assert table.to_pylist() == [{"name": "b", "table_id": 2}]
    table = filled.select(
        "select name, ':x' as text from dl_tables where table_id >= :low and name <> :name;", {"low": 1, "name": "a"}
    )
    assert table.to_pylist() == [{"name": "b", "text": ":x"}]
    table = filled.select("with t as (select name from dl_tables) select count(*) as n from t")
    assert table["n"].to_pylist() == [2]
    assert filled.select("select * from vw_mirror_lag").num_rows == 0


def test_values_of_unknown_types_still_become_arrow(filled: Store) -> None:
    table = filled.select(
        "select 1.5 as size, 'x' as table_id, null as void_value, 2 as data_change from dl_tables limit 1"
    )
    row = table.to_pylist()[0]
    assert float(row["size"]) == 1.5
    assert (row["table_id"], row["void_value"], int(row["data_change"])) == ("x", None, 2)


WRITES = [
    "insert into dl_namespaces values ('x', 'x', '{}', 1, 1, 2)",
    "update dl_tables set name = 'x'",
    "delete from dl_tables",
    "drop table dl_tables",
    "create table mine (a int)",
    "create temp table mine (a int)",
    "alter table dl_tables add column x int",
    "select 1; drop table dl_tables",
    "select 1; commit; drop table dl_tables",
    "commit; drop table dl_tables; select 1",
    "begin",
    "with gone as (delete from dl_tables returning name) select * from gone",
    "select name into mine from dl_tables",
    "vacuum",
    "",
    ";",
    "-- nothing",
]


@pytest.mark.in_turn
@pytest.mark.parametrize("statement", WRITES)
def test_everything_else_is_refused_and_changes_nothing(filled: Store, statement: str) -> None:
    before = shape_of(filled)
    with pytest.raises(StoreError):
        filled.select(statement)
    assert shape_of(filled) == before
    with filled.read() as conn:
        assert [table.name for table in reg.list_tables(conn)] == ["a", "b"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "attach '/tmp/x.db' as x",
        "pragma journal_mode = delete",
        "vacuum into '/tmp/x.db'",
        "select load_extension('x')",
    ],
)
def test_sqlite_cannot_reach_beyond_its_file(filled: Store, statement: str) -> None:
    with pytest.raises(StoreError):
        filled.select(statement)


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "attach '/tmp/x.duckdb' as x",
        "copy dl_tables to '/tmp/x.csv'",
        "set enable_external_access = true",
        "install httpfs",
        "select * from some_python_variable",
    ],
)
def test_duckdb_cannot_reach_beyond_its_file(filled: Store, statement: str) -> None:
    some_python_variable = filled.select("select 1 as x")
    with pytest.raises(StoreError):
        filled.select(statement)
    assert some_python_variable.num_rows == 1


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "select set_config('transaction_read_only', 'off', false)",
        "select lo_create(0)",
        "copy deltalakedb.dl_tables to '/tmp/x.csv'",
        "explain analyze delete from dl_tables",
        "do $$ begin delete from deltalakedb.dl_tables; end $$",
    ],
)
def test_postgres_cannot_leave_the_read_only_transaction(filled: Store, statement: str) -> None:
    with pytest.raises(StoreError):
        filled.select(statement)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_users_query_leaves_no_lock_or_setting_behind(filled: Store) -> None:
    filled.select("select pg_advisory_lock(42), set_config('search_path', 'nowhere', false)")
    left = filled.select("select count(*) as n from pg_locks where locktype = 'advisory'")
    assert left["n"].to_pylist() == [0]
    assert filled.select("select count(*) as n from dl_tables")["n"].to_pylist() == [2]


def test_an_error_in_the_query_says_what_is_wrong(filled: Store) -> None:
    with pytest.raises(StoreError, match="no_such_column") as caught:
        filled.select("select no_such_column from dl_tables")
    assert caught.value.__cause__ is not None
    with pytest.raises(StoreError, match="no_such_table"):
        filled.select("select 1 from no_such_table")
