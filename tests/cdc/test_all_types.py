"""A column of every type, with the values at its edges, is equal on both sides: copied, and then streamed."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from deltalakedb.cdc import layers
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc import judging
from tests.cdc.capturing import capture_once
from tests.cdc.conftest import Lake, Source
from tests.cdc.exact_values import in_lake, in_source, kind_of

LARGE = "repeat('0123456789abcdeé', 65536)"
COLUMNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # name: type in Postgres, type in Delta, values
    "small": ("int2", "short", ("-32768", "32767", "0")),
    "number": ("int4", "integer", ("-2147483648", "2147483647")),
    "large": ("int8", "long", ("-9223372036854775808", "9223372036854775807")),
    "object": ("oid", "long", ("4294967295", "0")),
    "single": ("float4", "float", ("'NaN'", "'-Infinity'", "'-0'", "1e-45", "3.4028235e38", "0.1")),
    "double": ("float8", "double", ("'NaN'", "'Infinity'", "'-0'", "5e-324", "1.7976931348623157e308", "0.1")),
    "truth": ("bool", "boolean", ("true", "false")),
    "words": ("text", "string", ("''", "'null'", r"'\N'", "E'a\tb\nc\\r\\\\\"\\'x,{}'", "'ünï 🎈'", LARGE)),
    "short_words": ("varchar(10)", "string", ("''", "'ten chars!'")),
    "padded": ("char(5)", "string", ("'a'", "''")),
    "named": ("name", "string", ("'pg_class'",)),
    "unique_id": ("uuid", "string", ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",)),
    "loose_json": ("json", "string", ("""'{"b" : 1,  "a": [null, "x"]}'""", "'null'")),
    "tight_json": ("jsonb", "string", ("""'{"b" : 1,  "a": [null, "x\\u00e9"]}'""", "'[]'", "'1e5'")),
    "clock": ("time", "string", ("'00:00'", "'24:00'", "'23:59:59.999999'")),
    "zoned_clock": ("timetz", "string", ("'12:00+14'", "'00:00-15:59'")),
    "span": ("interval", "string", ("'-1 year 2 mons -3 days 04:05:06.7'", "'0'", "'178000000 years'")),
    "mood": ("mood", "string", ("'so-so'", "'very, \"good\"'")),
    "whole_range": ("int4range", "string", ("'empty'", "'[1,5]'", "'(,)'")),
    "time_range": ("tstzrange", "string", ("'[2026-01-01 00:00+02,infinity)'",)),
    "ranges": ("nummultirange", "string", ("'{[1.5,2),[3,)}'", "'{}'")),
    "raw": ("bytea", "binary", ("''", r"'\x00ff5c'", "decode(repeat('5c00', 2000), 'hex')")),
    "day": (
        "date", "date",
        ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'0001-01-01'", "'5874897-12-31'", "'1969-12-31'"),
    ),
    "moment": (
        "timestamp", "timestamp_ntz",
        ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'0001-01-01 00:00'", "'290000-01-01 00:00:00.000001'",
         "'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'", "'2026-03-29 02:30:00'"),
    ),
    "instant": (
        "timestamptz", "timestamp",
        ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'0044-03-15 12:00:00+01 BC'", "'290000-01-01'",
         "'2026-03-29 02:30:00.5+05:30'", "'1883-11-18 12:00:00 America/New_York'"),
    ),
    "money_amount": ("numeric(12, 2)", "decimal(12,2)", ("-9999999999.99", "0", "0.01")),
    "wide_decimal": ("numeric(38, 10)", "decimal(38,10)", ("9999999999999999999999999999.9999999999", "-0.0000000001")),
    "round_decimal": ("numeric(5, 0)", "decimal(5,0)", ("99999", "-1")),
    "any_decimal": ("numeric", "string", ("'NaN'", "'Infinity'", "'-Infinity'", "1e100", "1.50", "-0.000")),
    "huge_decimal": ("numeric(50, 2)", "string", ("1e47", "'NaN'")),
    "tens": ("numeric(3, -2)", "string", ("12300",)),
    "price": ("money", "string", ("'-12.34'",)),
    "address": ("inet", "string", ("'10.0.0.1/8'", "'::1'")),
    "flags": ("bit(4)", "string", ("B'0101'",)),
    "spot": ("point", "string", ("'(1.5,-2)'",)),
    "place": ("pg_lsn", "string", ("'16/B374D848'",)),
    "pair": ("pair", "string", ("row(1, 'a,\"b')", "row(null, '')")),
    "positive": ("positive", "integer", ("1", "2147483647")),
    "labels": ("labels", "array<string>", ("'{}'", "'{a,null,\"null\"}'")),
    "numbers": ("int4[]", "array<integer>", ("'{}'", "'{1,null,-2}'")),
    "texts": (
        "text[]", "array<string>",
        ("'{}'", "array['', null, 'null', 'a,b', '\"q\"', E'\\\\\\n{}']", "array_fill('x'::text, array[3000])"),
    ),
    "truths": ("bool[]", "array<boolean>", ("'{t,f,null}'",)),
    "doubles": ("float8[]", "array<double>", ("'{NaN,-Infinity,0.1}'",)),
    "amounts": ("numeric(10,2)[]", "array<decimal(10,2)>", ("'{1.50,-0.01}'",)),
    "days": ("date[]", "array<date>", ("'{2026-02-28,null,0001-01-01}'",)),
    "instants": ("timestamptz[]", "array<timestamp>", ("'{2026-02-28 12:00+02,null}'",)),
    "moods": ("mood[]", "array<string>", ("array['very, \"good\"', null]::mood[]",)),
    "raws": ("bytea[]", "array<binary>", (r"""'{"\\x00ff",null,"\\x"}'""",)),
}  # fmt: skip
MADE = (
    "create type mood as enum ('so-so', 'very, \"good\"')",
    "create type pair as (first int, second text)",
    "create domain positive as int check (value > 0)",
    "create domain labels as text[]",
)
ROWS = max(len(values) for _, _, values in COLUMNS.values())


def insert_all(source: Source, first: int) -> None:
    """Each value of each column is in a row; one row is null but for its key."""
    with source.connect() as connection:
        connection.execute(f"insert into types (id) values ({first})".encode())
        for place in range(ROWS):
            values = ", ".join(values[place % len(values)] for _, _, values in COLUMNS.values())
            connection.execute(f"insert into types values ({first + 1 + place}, {values})".encode())


@pytest.fixture
def types(source: Source) -> Source:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    source.run(*MADE, f"create table types (id int primary key, {columns})", "create publication p for table types")
    return source


def test_every_type_is_equal_on_both_sides_copied_and_streamed(spark: SparkSession, types: Source, lake: Lake) -> None:
    settings = CaptureSettings(types.dsn, "p", slot="types", namespace="all")
    what = {"publication": "p", "slot": "types", "namespace": "all"}
    insert_all(types, 0)
    capture_once(lake, types, spark, **what)
    table = judging.captured(lake.catalog, settings).tables["public.types"]
    assert {column.name: kind_of(column) for column in table.columns[1:]} == {
        name: kind for name, (_, kind, _) in COLUMNS.items()
    }
    _check(lake, types, table)
    insert_all(types, 100)
    # Values wander from row to row; the large ones of the first row stay where they are and are not sent.
    others = ", ".join(f"{name} = (select {name} from types where id = 103)" for name in COLUMNS if name != "words")
    types.run(f"update types set {others} where id between 4 and 8", "update types set id = 1000 where id = 6")
    types.run("update types set small = 7 where id = 106", "delete from types where id = 2")
    capture_once(lake, types, spark, **what)
    _check(lake, types, table)
    ops = lake.catalog.table(table.changes).to_pyarrow_table(columns=[layers.OP])[layers.OP]
    assert Counter(ops.to_pylist()) == {"insert": ROWS + 1, "update": 7, "delete": 1}


def _check(lake: Lake, source: Source, table: CapturedTable) -> None:
    names = [column.name for column in table.columns]
    rows = {row[0]: row for row in in_lake(lake.catalog.table(table.current).to_pyarrow_table(), table)}
    with source.connect() as connection:
        expected = {row[0]: row for row in in_source(connection, table)}
    assert rows.keys() == expected.keys()
    for key, row in rows.items():
        for name, found, wanted in zip(names, row, expected[key], strict=True):
            assert found == wanted, f"{name} of the row {key}"
