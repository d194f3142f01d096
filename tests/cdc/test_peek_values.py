"""Rows of all types are decoded as psycopg reads them from the table, and edge values as Postgres says they are."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import psycopg
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from deltalakedb.cdc.source.peek import ChangeRows
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from tests.cdc.conftest import Source
from tests.cdc.peeking import Peeked, rows_of

# Postgres' texts have no NUL.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
doubles = st.floats(allow_nan=True, allow_infinity=True)
decimals = st.decimals(-(10**14) + 1, 10**14 - 1, places=6, allow_nan=False)
GENERATED: Final[dict[str, st.SearchStrategy[Any]]] = {
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(width=32, allow_nan=True),
    "double precision": doubles,
    "boolean": st.booleans(),
    "numeric(20,6)": decimals,
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=20),
    "text": text,
    "varchar(12)": text,
    "char(12)": text,
    "bytea": st.binary(max_size=30),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": moments,
    "timestamptz": moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    "interval": st.timedeltas(timedelta(-(10**5)), timedelta(10**5)),
    "uuid": st.uuids(),
    "jsonb": st.dictionaries(text, st.integers(-(2**53), 2**53) | text).map(Jsonb),
    "integer[]": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
    "text[]": st.lists(st.none() | text, max_size=4),
    "bytea[]": st.lists(st.none() | st.binary(max_size=5), max_size=3),
    "boolean[]": st.lists(st.none() | st.booleans(), max_size=3),
    "double precision[]": st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
    "numeric(20,6)[]": st.lists(st.none() | decimals, max_size=3),
    "date[]": st.lists(st.none() | st.dates(), max_size=3),
    "timestamp[]": st.lists(st.none() | moments, max_size=3),
}
AS_TEXT: Final = ("time", "interval", "uuid", "jsonb")
NAMES: Final = [f"c{place}" for place in range(len(GENERATED))]


def read_table(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The table as psycopg has it; types without one of the lake's as their text."""
    names = sql.SQL(", ").join(map(sql.Identifier, NAMES))
    return connection.execute(sql.SQL("select {} from public.t order by id").format(names)).fetchall()


def comparable(value: Any, kind: str = "") -> Any:
    """NaN equals itself; psycopg reads the digits of a real as those of a double, and a numeric is a decimal to it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(np.float32(value)) if kind == "real" else value
    return format(value, "f") if kind == "numeric" and value is not None else value


def write_row(connection: psycopg.Connection[Any], number: int, row: tuple[Any, ...]) -> None:
    typed = [sql.SQL("%s::{}").format(sql.SQL(name)) for name in GENERATED]
    values = sql.SQL(", ").join([sql.Literal(number), *typed])
    connection.execute(sql.SQL("insert into public.t values ({})").format(values), row)


def test_random_rows_are_decoded_as_psycopg_reads_them(source: Source) -> None:
    listed = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, GENERATED, strict=True))
    source.run(f"create table t (id int primary key, {listed})", "alter table t replica identity full")
    peeked = Peeked.begin(source)
    (table,) = peeked.tables()
    rows = st.tuples(*(st.none() | strategy for strategy in GENERATED.values()))
    with connect(source.dsn) as connection:
        for name in AS_TEXT:
            connection.adapters.register_loader(connection.adapters.types[name].oid, TextLoader)

        @given(st.lists(rows, min_size=1, max_size=5))
        def check(written: list[tuple[Any, ...]]) -> None:
            connection.execute("delete from public.t")  # what is left of an example that failed
            start = flush_lsn(connection)
            for number, row in enumerate(written):
                write_row(connection, number, row)
            expected = read_table(connection)
            connection.execute("delete from public.t")
            found = rows_of(peeked.read([table], start=start, end=flush_lsn(connection)), "public.t")
            inserted = [row["after"] for row in found if row["after"]]
            deleted = sorted((row["before"] for row in found if row["before"]), key=lambda row: row["id"])
            assert len(inserted) == len(deleted) == len(written)
            for place, name in enumerate(NAMES):
                kind = [*GENERATED][place]
                values = [comparable(row[place], kind) for row in expected]
                assert [comparable(row[name]) for row in inserted] == values, kind
                assert [comparable(row[name]) for row in deleted] == values, kind

        check()


def physical(source: Source, kind: str, *literals: str) -> list[int]:
    """Days or microseconds of values that Python's dates do not have."""
    source.run(f"create table edges (id int primary key, v {kind})")
    peeked = Peeked.begin(source)
    with connect(source.dsn) as connection:
        for number, literal in enumerate(literals):
            connection.execute(f"insert into public.edges values ({number}, %s::text::{kind})".encode(), [literal])
    (event, _) = peeked.read()
    assert isinstance(event, ChangeRows)
    column = event.rows.column("after").field("v")
    numbers: list[int] = column.view("int32" if kind == "date" else "int64").to_pylist()
    return numbers


def test_dates_beyond_those_of_python(source: Source) -> None:
    literals = ["infinity", "-infinity", "4714-11-24 BC", "0001-01-01 BC", "5874897-12-31", "0001-01-01"]
    found = physical(source, "date", *literals)
    assert found[:2] == [2**31 - 1, -(2**31) + 1]
    days = [source.run(f"select '{literal}'::date - '1970-01-01'::date")[0][0] for literal in literals[2:]]
    assert found[2:] == days


def test_moments_beyond_those_of_python(source: Source) -> None:
    literals = ["infinity", "-infinity", "4714-11-24 00:00:00.000001 BC", "294247-01-10 04:00:54.7758", "10000-01-01"]
    found = physical(source, "timestamp", *literals)
    assert found[:2] == [2**63 - 1, -(2**63) + 1]
    micros = [
        source.run(f"select (extract(epoch from '{literal}'::timestamp) * 1000000)::bigint")[0][0]
        for literal in literals[2:]
    ]
    assert found[2:] == micros


def test_instants_of_odd_zones_are_the_same_instants(source: Source) -> None:
    literals = ["2026-01-01 00:00:00.5+05:45", "1890-01-01 00:00:00-00:01:15", "0044-03-15 12:00:00+14 BC", "infinity"]
    found = physical(source, "timestamptz", *literals)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = datetime(2025, 12, 31, 18, 15, 0, 500000, tzinfo=UTC)
    assert found[0] == (expected - epoch) // timedelta(microseconds=1)
    assert found[1] == (datetime(1890, 1, 1, 0, 1, 15, tzinfo=UTC) - epoch) // timedelta(microseconds=1)
    ((before_christ,),) = source.run(f"select (extract(epoch from '{literals[2]}'::timestamptz) * 1000000)::bigint")
    assert found[2:] == [before_christ, 2**63 - 1]


def test_edge_values_of_the_other_types(source: Source) -> None:
    huge = "9" * 1000 + "." + "1" * 1000
    source.run(
        "create type mood as enum ('sad', 'it''s ok')",
        "create type pair as (a int, b text)",
        "create domain tags as text[]",
        "create table edges (id int primary key, big numeric, wide numeric(38,10), t time, tz timetz, padded char(5), "
        "m mood, r int4range, p pair, moods mood[], tagged tags, ranges int4range[], iv interval, x text, f float4)",
    )
    peeked = Peeked.begin(source)
    large = "ä" * 524_288
    with connect(source.dsn) as connection:
        connection.execute(
            b"insert into public.edges values (1, %s, %s, '24:00:00', '12:00+05:30', 'ab', 'it''s ok', '[1,5)', "
            b"""row(1, 'x "y"'), '{sad,NULL}', '{"a b",NULL,"{}"}', '{"[1,2]",empty}', '-1 mon 2 days 03:04:05.6', """
            b"%s, 'NaN')",
            [huge, "-" + "9" * 28 + "." + "9" * 10, large],
        )
        connection.execute("insert into public.edges (id, big, x) values (2, 'Infinity', '')")
        connection.execute("set datestyle = 'SQL, DMY'")  # another session's settings are its own
        connection.execute("insert into public.edges (id, big) values (3, 'NaN')")
    first, second, third = (row["after"] for row in rows_of(peeked.read(), "public.edges"))
    assert math.isnan(first.pop("f"))
    assert first == {
        "id": 1,
        "big": huge,
        "wide": Decimal("-" + "9" * 28 + "." + "9" * 10),
        "t": "24:00:00",
        "tz": "12:00:00+05:30",
        "padded": "ab   ",
        "m": "it's ok",
        "r": "[1,5)",
        "p": '(1,"x ""y""")',
        "moods": ["sad", None],
        "tagged": ["a b", None, "{}"],
        "ranges": ["[1,3)", "empty"],
        "iv": "-1 mons +2 days 03:04:05.6",
        "x": large,
    }
    assert (second["big"], second["x"], second["m"]) == ("Infinity", "", None)
    assert third["big"] == "NaN"


def test_the_zone_and_style_of_the_database_do_not_matter(source: Source) -> None:
    source.run(
        f"alter database {source.database} set timezone = 'Asia/Kathmandu'",
        f"alter database {source.database} set datestyle = 'German'",
        f"alter database {source.database} set bytea_output = 'escape'",
        f"alter database {source.database} set extra_float_digits = -10",
        f"alter database {source.database} set intervalstyle = 'iso_8601'",
        "create table t (id int primary key, d date, m timestamptz, b bytea, f float8, i interval)",
    )
    peeked = Peeked.begin(source)
    source.run("insert into t values (1, '2026-02-01', '2026-02-01 12:00+00', '\\x00ff', 0.1, '1 day 2 hours')")
    (row,) = peeked.rows("public.t")
    assert row["after"] == {
        "id": 1,
        "d": date(2026, 2, 1),
        "m": datetime(2026, 2, 1, 12, tzinfo=UTC),
        "b": b"\x00\xff",
        "f": 0.1,
        "i": "1 day 02:00:00",
    }
