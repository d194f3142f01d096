"""Catalog URIs: every form that exists, every form that does not, and no secret shown."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from deltalakedb.catalog.catalog import locate_catalog
from deltalakedb.catalog.uri import is_catalog_uri, parse_catalog_uri
from deltalakedb.exceptions import CatalogUriError, TableNameError
from deltalakedb.store.names import TableName

PASSWORD = "s3cr3t-Pa55"


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_file_engine_takes_an_absolute_path_after_two_slashes(engine: str) -> None:
    uri = parse_catalog_uri(f"deltasql://{engine}//data/catalog.db?table=sales.orders")
    assert (uri.engine, uri.target, uri.table) == (engine, "/data/catalog.db", TableName("sales", "orders"))


def test_one_slash_is_relative_to_the_working_directory() -> None:
    uri = parse_catalog_uri("deltasql://sqlite/lake/catalog.db")
    assert uri.target == os.path.join(os.getcwd(), "lake/catalog.db")
    assert uri.table is None


def test_a_path_may_be_percent_encoded() -> None:
    assert parse_catalog_uri("deltasql://sqlite//data/a%20b%3F%23.db").target == "/data/a b?#.db"


@pytest.mark.parametrize("engine", ["postgres", "pg", "Postgres"])
def test_postgres_takes_database_namespace_and_table_from_the_path(engine: str) -> None:
    uri = parse_catalog_uri(
        f"deltasql://{engine}/lake/eu.sales/orders?host=db.example&port=5433&user=ann&sslmode=require"
    )
    assert uri.engine == "postgres"
    assert uri.target == {"dbname": "lake", "host": "db.example", "port": "5433", "user": "ann", "sslmode": "require"}
    assert uri.table == TableName("eu.sales", "orders")


def test_postgres_without_a_table_is_a_catalog() -> None:
    uri = parse_catalog_uri("deltasql://postgres/lake")
    assert (uri.target, uri.table) == ({"dbname": "lake"}, None)


def test_a_postgres_service_needs_no_database() -> None:
    assert parse_catalog_uri("deltasql://postgres?service=lake").target == {"service": "lake"}
    assert parse_catalog_uri("deltasql://postgres/?service=lake&table=a.b").table == TableName("a", "b")


def test_a_plus_sign_in_a_value_stays_a_plus_sign() -> None:
    uri = parse_catalog_uri("deltasql://postgres/lake?user=a+b&options=-c%20x%3D1")
    assert uri.target == {"dbname": "lake", "user": "a+b", "options": "-c x=1"}


def test_a_dsn_goes_to_libpq_without_our_table_option() -> None:
    uri = parse_catalog_uri("postgresql://ann@h1:5432,h2/lake?sslmode=require&table=sales.orders")
    assert uri.engine == "postgres"
    assert uri.target == "postgresql://ann@h1:5432,h2/lake?sslmode=require"
    assert uri.table == TableName("sales", "orders")
    assert parse_catalog_uri("postgres://h/lake?table=t").target == "postgres://h/lake"


def test_libpqs_keyword_form_is_a_dsn_and_not_a_file_name() -> None:
    uri = parse_catalog_uri("host=/run/postgresql dbname=lake")
    assert (uri.engine, uri.target) == ("postgres", "host=/run/postgresql dbname=lake")
    assert parse_catalog_uri("./host=x").engine == "sqlite"


@pytest.mark.parametrize(
    ("path", "engine"),
    [("/data/catalog.db", "sqlite"), ("/data/catalog", "sqlite"), ("/data/Catalog.DuckDB", "duckdb")],
)
def test_a_plain_path_is_sqlite_unless_its_suffix_says_duckdb(path: str, engine: str) -> None:
    assert parse_catalog_uri(path).engine == engine
    assert parse_catalog_uri(Path(path)).target == path


@pytest.mark.parametrize("uri", ["mysql://h/db", "s3://bucket/catalog.db", "sqlite:///x.db", "https://example.com"])
def test_an_unknown_scheme_is_refused_and_the_known_ones_are_listed(uri: str) -> None:
    with pytest.raises(CatalogUriError, match=r"unknown catalog URI scheme.*deltasql://sqlite.*duckdb.*postgres"):
        parse_catalog_uri(uri)


@pytest.mark.parametrize("engine", ["oracle", "sqlite3", ""])
def test_an_unknown_engine_is_refused_and_the_known_ones_are_listed(engine: str) -> None:
    with pytest.raises(CatalogUriError, match="these exist: sqlite, duckdb, postgres, pg"):
        parse_catalog_uri(f"deltasql://{engine}//x.db")


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("a\0b", "NUL"),
        (":memory:", "lives in a file"),
        ("deltasql://sqlite/:memory:", "lives in a file"),
        ("deltasql://sqlite", "names no file"),
        ("deltasql://duckdb/", "names no file"),
        ("deltasql://sqlite//x.db?tabel=a", "did you mean table"),
        ("deltasql://sqlite//x.db?table=a&table=b", "table twice"),
        ("deltasql://postgres", "names no database"),
        ("deltasql://postgres/lake/sales", "<namespace>/<table>"),
        ("deltasql://postgres/lake/a/b/c", "<namespace>/<table>"),
        ("deltasql://postgres/lake/a/b?table=a.b", "twice"),
        ("deltasql://postgres/lake?hots=x", "did you mean host"),
        ("postgresql://h/lake?table=a&table=b", "twice"),
    ],
)
def test_a_bad_uri_is_refused_and_the_error_says_why(uri: str, reason: str) -> None:
    with pytest.raises(CatalogUriError, match=reason):
        parse_catalog_uri(uri)


def test_a_bad_table_in_a_uri_is_a_bad_name() -> None:
    with pytest.raises(TableNameError, match="quote"):
        parse_catalog_uri("deltasql://sqlite//x.db?table=a'b")


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://ann:{PASSWORD}@db.example/lake?sslmode=require",
        f"postgresql://db.example/lake?user=ann&password={PASSWORD}",
        f"deltasql://postgres/lake?user=ann&password={PASSWORD}&host=db.example",
        f"deltasql://pg/lake/sales/orders?sslpassword={PASSWORD}",
        f"host=db.example dbname=lake user=ann password={PASSWORD}",
        f"password='{PASSWORD}' dbname=lake",
    ],
)
def test_a_password_is_kept_for_the_driver_and_never_shown(uri: str) -> None:
    parsed = parse_catalog_uri(uri)
    assert PASSWORD in (parsed.target if isinstance(parsed.target, str) else "".join(parsed.target.values()))
    for shown in (repr(parsed), str(parsed), f"{parsed}", repr([parsed])):
        assert PASSWORD not in shown
        assert "lake" in shown


@pytest.mark.parametrize(
    "uri",
    [
        f"deltasql://ann:{PASSWORD}@postgres/lake",
        f"mysql://ann:{PASSWORD}@h/db",
        f"deltasql://postgres/lake/sales?password={PASSWORD}",
        f"deltasql://postgres/lake?password={PASSWORD}&hots=x",
        f"postgresql://ann:{PASSWORD}@h/lake?table=a&table=b",
    ],
)
def test_an_error_about_a_uri_never_shows_its_password(uri: str) -> None:
    with pytest.raises(CatalogUriError) as caught:
        parse_catalog_uri(uri)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["deltasql://sqlite//data/catalog.db?table=sales.orders", "deltasql://postgres/lake/sales/orders?host=h"]
)
def test_a_uri_without_secrets_reads_back_as_itself(uri: str) -> None:
    assert str(parse_catalog_uri(uri)) == uri
    assert parse_catalog_uri(str(parse_catalog_uri(uri))) == parse_catalog_uri(uri)


def test_a_path_or_a_table_name_is_not_a_catalog_uri() -> None:
    assert is_catalog_uri("deltasql://sqlite//x.db")
    assert is_catalog_uri("postgresql://h/db")
    assert not is_catalog_uri("s3://bucket/table")
    assert not is_catalog_uri("sales.orders")


@pytest.mark.parametrize(
    "text",
    [
        "deltasql://sqlite//data/catalog.db?warehouse=s3://bucket/lake&table=sales.orders",
        "deltasql://postgres/lake/sales/orders?host=db&warehouse=s3://bucket/lake",
        "postgresql://db/lake?table=sales.orders&sslmode=require&warehouse=s3://bucket/lake",
    ],
)
def test_an_address_may_say_where_new_tables_go(text: str) -> None:
    address = parse_catalog_uri(text)
    assert (address.warehouse, str(address.table)) == ("s3://bucket/lake", "sales.orders")
    assert "warehouse" not in str(address.target)


def test_a_warehouse_given_to_connect_goes_before_that_of_the_address() -> None:
    address = "deltasql://sqlite//data/catalog.db?warehouse=/theirs"
    assert locate_catalog(address)[1].warehouse == "/theirs"
    assert locate_catalog(address, warehouse="/mine")[1].warehouse == "/mine"


@pytest.mark.parametrize(
    "table",
    [
        TableName("s", "x/y"),
        TableName("`a.b`", "c.d"),
        TableName("eu.sales", "my-table"),
        TableName("`x/y`.z", "100%&#?"),
        TableName("s", "`"),
        TableName("s", "`a.b`"),
        TableName("s", "größe 😀"),
    ],
)
@pytest.mark.parametrize("engine", ["sqlite//data/catalog.db", "postgres/lake"])
def test_a_uri_names_any_table_and_tells_it_back(engine: str, table: TableName) -> None:
    uri = parse_catalog_uri(f"deltasql://{engine}?table={quote(str(table))}")
    assert uri.table == table
    assert parse_catalog_uri(str(uri)) == uri


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("sales/my-table", TableName("sales", "my-table")),
        ("sales/a.b", TableName("sales", "a.b")),
        ("sales/x%2Fy", TableName("sales", "x/y")),
        ("sales/%60a.b%60", TableName("sales", "a.b")),
        ("eu.%60a.b%60/t", TableName("eu.`a.b`", "t")),
    ],
)
def test_a_part_of_a_postgres_path_is_a_name_without_backticks(path: str, table: TableName) -> None:
    assert parse_catalog_uri(f"deltasql://postgres/lake/{path}").table == table


@pytest.mark.parametrize("path", ["a%2Fb/t", "s/%60a", "s/a%0Ab"])
def test_a_bad_name_in_a_postgres_path_is_refused(path: str) -> None:
    with pytest.raises(TableNameError):
        parse_catalog_uri(f"deltasql://postgres/lake/{path}")
