"""Clients that prune files by manifests lose no row: by partition values of all types, and by bounds of columns."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import expressions
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb import DeltaTable, write_deltalake
from deltalakedb.serve.server import Endpoint
from tests.iceberg.served import address_of

pytestmark = pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)
"""What clients read does not depend on the database; manifests are tested on all of them."""

UTC = dt.UTC
MOMENTS = [
    dt.datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    None,
    dt.datetime(2024, 1, 1, 0, 0, 0, 123999, UTC),
    dt.datetime(1900, 6, 1, 1, 2, 3, 4, UTC),
]
LONG = "x" * 40


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int32(), [1, -(2**31), 2**31 - 1, None, 0, 7]),
    "big": (pa.int64(), [1, -(2**63), 2**63 - 1, None, 2**53 + 1, 2**53]),
    "yes": (pa.bool_(), [True, False, None, True, False, None]),
    "text": (pa.string(), ["a", "", None, "Zürich", "𝄞", "b/c=d %"]),
    "long_text": (pa.string(), [LONG, LONG + "a", LONG + "\U0010ffff", None, "\U0010ffff" * 40, "é" * 33]),
    "price": (pa.decimal128(10, 2), decimals("1.25", "-99999999.99", None, "0.10", "0.30", "99999999.99")),
    "exact": (
        pa.decimal128(38, 10),
        decimals("12345678901234567890.0123456789", "-1.0000000001", None, "0E-10", "0.1000000000", "3.3000000000"),
    ),
    "day": (
        pa.date32(),
        [dt.date(2024, 1, 1), dt.date(1969, 12, 31), dt.date.min, None, dt.date.max, dt.date(1970, 1, 1)],
    ),
    "at": (pa.timestamp("us", "UTC"), MOMENTS),
    "local": (pa.timestamp("us"), [None if item is None else item.replace(tzinfo=None) for item in MOMENTS]),
    "real": (pa.float64(), [0.0, -0.0, None, float("inf"), -1.5, 1e300]),
    "single": (pa.float32(), [0.1, -0.0, None, 3.4e38, -1.5, 1e-40]),
}  # fmt: skip
"""Values of each type. Each of them gets a file of its own, and pairs of neighbours one more."""
NANS = {"real", "single"}
FILTERS = [
    ("EqualTo", pc.equal, "="),
    ("NotEqualTo", pc.not_equal, "!="),
    ("LessThan", pc.less, "<"),
    ("LessThanOrEqual", pc.less_equal, "<="),
    ("GreaterThan", pc.greater, ">"),
    ("GreaterThanOrEqual", pc.greater_equal, ">="),
]


def expression(name: str, *values: Any) -> Any:
    """An expression of PyIceberg, whose classes take other arguments than they declare."""
    return getattr(expressions, name)(*values)


def table_of(column: str, kind: pa.DataType, groups: list[list[Any]]) -> list[pa.Table]:
    ids = itertools.count()
    return [pa.table({"id": [next(ids) for _ in group], column: pa.array(group, kind)}) for group in groups]


def ids_of(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


@pytest.fixture
def write(endpoint: Endpoint, tmp_path: Path) -> Callable[..., str]:
    def write(*tables: pa.Table, **options: Any) -> str:
        address = address_of(endpoint, "shop.t", tmp_path / "lake")
        for table in tables:
            write_deltalake(address, table, mode="append", **options)
        return address

    return write


def check_filters(column: str, values: list[Any], rows: pa.Table, uri: str, duck: duckdb.DuckDBPyConnection) -> None:
    table = RestCatalog("lake", uri=uri, **{"scan-planning-mode": "client"}).load_table("shop.t")
    kind = rows.schema.field(column).type
    cast = duck.sql(f'select typeof("{column}") from lake.shop.t').fetchall()[0][0]
    wrong = []

    def check(client: str, text: str, found: list[int], expected: pa.Array, *, exact: bool = True) -> None:
        ids = sorted(rows.filter(expected).column("id").to_pylist())
        if found != ids if exact else not set(found) >= set(ids):
            wrong.append(f"{client}: {column} {text}: {found}, not {ids}")

    for value in dict.fromkeys(item for item in values if item is not None and item == item):
        for name, compute, sign in FILTERS:
            expected = compute(rows.column(column), pa.scalar(value, kind))
            found = ids_of(table.scan(row_filter=expression(name, column, _literal(value))).to_arrow())
            # PyIceberg counts null as different if the column partitions the table, and tells -0.0 from 0.0.
            check("PyIceberg", f"{sign} {value!r}", found, expected, exact=sign != "!=")
            query = f'select id from lake.shop.t where "{column}" {sign} ?::{cast} order by id'
            found = [row[0] for row in duck.execute(query, [value]).fetchall()]
            # NaN is above all numbers in DuckDB, but not where it prunes row groups by Parquet's statistics.
            check("DuckDB", f"{sign} {value!r}", found, expected, exact=column not in NANS)
    check(
        "PyIceberg",
        "is null",
        ids_of(table.scan(row_filter=expression("IsNull", column)).to_arrow()),
        pc.is_null(rows[column]),
    )
    check(
        "PyIceberg",
        "is not null",
        ids_of(table.scan(row_filter=expression("NotNull", column)).to_arrow()),
        pc.is_valid(rows[column]),
    )
    for test in ("is null", "is not null"):
        query = f'select id from lake.shop.t where "{column}" {test} order by id'
        found = [row[0] for row in duck.execute(query).fetchall()]
        check("DuckDB", test, found, pc.is_null(rows[column]) if test == "is null" else pc.is_valid(rows[column]))
    some = [_literal(value) for value in values[:3] if value is not None]
    expected = pc.is_in(rows[column], pa.array([value for value in values[:3] if value is not None], kind))
    check("PyIceberg", "in", ids_of(table.scan(row_filter=expression("In", column, some)).to_arrow()), expected)
    assert wrong == [], "\n".join(wrong)


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime) else value


@pytest.mark.parametrize("column", VALUES)
def test_bounds_of_columns_lose_no_row(
    column: str, write: Callable[..., str], uri: str, duck: duckdb.DuckDBPyConnection
) -> None:
    kind, values = VALUES[column]
    groups = [[value] for value in values] + [[one, other] for one, other in itertools.pairwise(values)]
    if column in NANS:
        groups += [[float("nan")], [float("nan"), 1.0], [None, float("nan")]]
    tables = table_of(column, kind, groups)
    address = write(*tables)
    rows = DeltaTable(address).to_pyarrow_table()
    assert rows.num_rows == sum(table.num_rows for table in tables)
    check_filters(column, values, rows, uri, duck)


@pytest.mark.parametrize("column", [name for name in VALUES if name not in ("long_text", "single")])
def test_partition_values_lose_no_row(
    column: str, write: Callable[..., str], uri: str, duck: duckdb.DuckDBPyConnection
) -> None:
    kind, values = VALUES[column]
    if column == "text":  # an empty text is null in Delta
        values = [value for value in values if value != ""]
    if column == "real":  # PyIceberg reads doubles of manifests as floats
        values = [value if value != 1e300 else 1.5 for value in values]
    address = write(*table_of(column, kind, [values, values[:2]]), partition_by=[column])
    rows = DeltaTable(address).to_pyarrow_table()
    check_filters(column, values, rows, uri, duck)


def test_pruning_happens_at_all(write: Callable[..., str], uri: str) -> None:
    write(
        *[pa.table({"id": [number, number + 5], "p": [str(number)] * 2}) for number in range(0, 100, 10)],
        partition_by=["p"],
    )
    table = RestCatalog("lake", uri=uri, **{"scan-planning-mode": "client"}).load_table("shop.t")

    def count(row_filter: str) -> int:
        return len(list(table.scan(row_filter=row_filter).plan_files()))

    assert count("id = 55") == 1
    assert count("p = '40'") == 1
    assert count("id > 20 and id < 42") == 3
    assert count("id < 0") == 0


def test_polars_filters_by_dates_and_numbers(write: Callable[..., str], uri: str) -> None:
    days = [dt.date(2024, 1, 1 + number) for number in range(5)]
    write(*[pa.table({"id": [number], "day": [day]}) for number, day in enumerate(days)], partition_by=["day"])
    table = RestCatalog("lake", uri=uri, **{"scan-planning-mode": "client"}).load_table("shop.t")
    frame = pl.scan_iceberg(table)
    assert frame.filter(pl.col("day") >= days[3]).collect()["id"].sort().to_list() == [3, 4]
    assert frame.filter(pl.col("id") < 2).collect()["day"].sort().to_list() == days[:2]


def test_the_ends_of_a_column_are_those_of_its_rows(write: Callable[..., str], duck: duckdb.DuckDBPyConnection) -> None:
    at = [dt.datetime(2024, 1, 1, 0, 0, 0, 123456 + number, UTC) for number in range(3)]
    rows = pa.table(
        {"id": [1, 2, 3], "at": pa.array(at, pa.timestamp("us", "UTC")), "x": pa.array([0.1, 0.2, 0.3], pa.float32())}
    )
    write(rows)
    assert duck.sql(
        'select epoch_us(min("at")) % 1000000, epoch_us(max("at")) % 1000000, max(id) from lake.shop.t'
    ).fetchone() == (123456, 123458, 3)
    assert duck.sql("select min(x) = 0.1::float, max(x) = 0.3::float, count(*) from lake.shop.t").fetchone() == (
        True,
        True,
        3,
    )
