"""SQLite's columns, concatenated by SQLite itself, are what its rows are."""

import random
import sqlite3

import pytest

from deltalakedb.store.dialects.sqlite_columns import fetch_pages

NAMES = ("path", "stats", "size", "data_change", "num_records", "tags")
PAGE = "select path, stats, size, data_change, num_records, tags from rows where number between :first and :last"
Row = tuple[object, ...]


@pytest.fixture
def rows() -> list[Row]:
    """Constants that hold for some pages and change within another, nulls, empty and non-ASCII texts, an empty page."""
    chance = random.Random(1)
    texts = [None, "", "a,b", "\u65e5\u672c", "x" * 300, "\U0001f600"]
    return [
        (
            f"part-{number}.parquet",
            chance.choice(texts),
            -(2**63) if number == 7 else number,
            number < 250,
            None if number < 150 else chance.randrange(10),
            None if number < 310 else "{}",
        )
        for number in range(400)
        if not 100 <= number < 200
    ]


def test_pages_give_the_rows_in_order(rows: list[Row]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"create table rows (number integer primary key, {', '.join(NAMES)})")
    for row in rows:
        number = int(str(row[0]).split("-")[1].removesuffix(".parquet"))
        connection.execute("insert into rows values (?, ?, ?, ?, ?, ?, ?)", (number, *row))
    pages = [{"first": first, "last": first + 99} for first in range(0, 400, 100)]
    table = fetch_pages(connection, PAGE, pages, NAMES)
    assert table is not None
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_no_rows_at_all_are_left_to_the_caller() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"create table rows (number integer primary key, {', '.join(NAMES)})")
    assert fetch_pages(connection, PAGE, [{"first": 0, "last": 9}], NAMES) is None
