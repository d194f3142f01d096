"""The types of captured columns, asked of a real Postgres."""

from typing import Any

import pytest

from deltalakedb.cdc.captured_table import SourceColumn
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.source_catalog import Shapes, delta_type, source_columns
from deltalakedb.log.schema.types import DecimalType, PrimitiveType
from tests.cdc.conftest import Source, both_versions

TYPES = {
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "oid": "long",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp(0)": "timestamp_ntz",
    "timestamptz": "timestamp",
    "numeric(10,2)": "decimal(10,2)",
    "numeric(38,38)": "decimal(38,38)",
    "numeric(38)": "decimal(38,0)",
    "numeric(39,2)": "string",
    "numeric(2,-3)": "string",
    "numeric(3,5)": "string",
    "numeric": "string",
    "text": "string",
    "varchar(10)": "string",
    "char(5)": "string",
    "name": "string",
    '"char"': "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "xml": "string",
    "time": "string",
    "timetz": "string",
    "interval": "string",
    "inet": "string",
    "money": "string",
    "bit(3)": "string",
    "point": "string",
    "tsvector": "string",
    "int4range": "string",
    "int8multirange": "string",
    "int2vector": "string",
    "pg_lsn": "string",
    "mood": "string",
    "pair": "string",
    "integer[]": "array<integer>",
    "text[][]": "array<string>",
    "numeric(6,3)[]": "array<decimal(6,3)>",
    "numeric[]": "array<string>",
    "timestamptz[]": "array<timestamp>",
    "bytea[]": "array<binary>",
    "mood[]": "array<string>",
    "int4range[]": "array<string>",
    "box[]": "string",
    "price": "decimal(8,2)",
    "net_price": "decimal(8,2)",
    "names": "array<string>",
    "price[]": "array<decimal(8,2)>",
    "net_price[]": "array<decimal(8,2)>",
    "price_list": "array<decimal(8,2)>",
}
DEFINITIONS = (
    "create type mood as enum ('sad', 'ok')",
    "create type pair as (a int, b text)",
    "create domain price as numeric(8,2) check (value >= 0)",
    "create domain net_price as price",
    "create domain names as text[]",
    "create domain price_list as net_price[]",
)


def columns_of(source: Source, table: str, publication: str | None = None, **shapes: Any) -> tuple[SourceColumn, ...]:
    with connect(source.dsn) as connection:
        row = connection.execute("select oid from pg_class where relname = %s", [table]).fetchone()
        assert row is not None
        return source_columns(connection, {row[0]: Shapes(**shapes)}, publication=publication)[row[0]]


def test_every_type_has_its_delta_type(source: Source) -> None:
    listed = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    source.run(*DEFINITIONS, f"create table kinds ({listed})")
    columns = columns_of(source, "kinds")
    assert {name: str(column.type) for name, column in zip(TYPES, columns, strict=True)} == TYPES
    assert [column.number for column in columns] == list(range(1, len(TYPES) + 1))
    assert columns[12].type_name == "numeric(10,2)"


def test_columns_can_be_kept_as_text(source: Source) -> None:
    source.run("create table t (id int, amount numeric(5,2), tags int[])")
    found = [str(column.type) for column in columns_of(source, "t", as_text=["amount", "tags"].__contains__)]
    assert found == ["integer", "string", "string"]


def test_dropped_columns_leave_a_gap_in_the_numbers(source: Source) -> None:
    source.run("create table t (a int, b int, c int)", "alter table t drop column b", "alter table t add d text")
    assert [(column.name, column.number) for column in columns_of(source, "t")] == [("a", 1), ("c", 3), ("d", 4)]


@both_versions
def test_a_publication_says_which_columns_are_sent(source: Source, postgres_version: int) -> None:
    source.run(
        "create table t (id int primary key, a text, b text, g int generated always as (id * 2) stored)",
        "create publication every for table t",
        "create publication few for table t (b, id)",
    )
    expected: dict[str | None, list[str]] = {None: ["id", "a", "b"], "every": ["id", "a", "b"], "few": ["id", "b"]}
    if postgres_version >= 18:
        source.run('create publication "With g" for table t (id, g)')
        expected["With g"] = ["id", "g"]
    names = {
        publication: [column.name for column in columns_of(source, "t", publication=publication)]
        for publication in expected
    }
    assert names == expected


@pytest.mark.parametrize(
    ("modifier", "expected"),
    [
        (-1, PrimitiveType("string")),
        ((10 << 16 | 2) + 4, DecimalType(10, 2)),
        ((38 << 16 | 0) + 4, DecimalType(38, 0)),
        ((5 << 16 | 0x7FF) + 4, PrimitiveType("string")),  # numeric(5, -1)
    ],
)
def test_the_modifier_of_a_numeric_has_precision_and_scale(modifier: int, expected: object) -> None:
    assert delta_type(1700, modifier) == expected
