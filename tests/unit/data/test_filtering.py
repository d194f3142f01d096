"""A predicate keeps the rows for which it is true, and no other."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltalakedb.data.arrow_types import arrow_to_schema
from deltalakedb.data.filtering import RowFilter
from deltalakedb.exceptions import PredicateError

ROWS = pa.record_batch(
    {
        "id": [1, 2, 3, 4],
        "name": ["a", None, "c", "it's"],
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 4)]),
        "at": pa.array([datetime(2026, 1, n, tzinfo=UTC) for n in range(1, 5)], pa.timestamp("us", "UTC")),
        "f": [1.0, float("nan"), None, -0.0],
        "s": [{"x": 1}, {"x": 2}, None, {"x": None}],
        "path": ["a_b", "a%b", "a\\b", None],
        "price": pa.array([Decimal("0.10"), Decimal("1.10"), None, Decimal("7.00")], pa.decimal128(10, 2)),
        "local": pa.array([datetime(2026, 1, n) for n in range(1, 5)], pa.timestamp("us")),
    }
)
SCHEMA = arrow_to_schema(ROWS.schema)


@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        ("id > 2", [3, 4]),
        ("name is null", [2]),
        ("name = 'it''s' or `id` = 1", [1, 4]),
        ("NAME >= 'b' and not id = 4", [3]),
        ("day < '2026-01-03'", [1, 2]),
        ("at >= timestamp '2026-01-03 00:00:00'", [3, 4]),
        ("at >= '2026-01-02T23:00:00-01:00'", [3, 4]),
        ("f > 5", [2]),
        ("f = 0", [4]),
        ("s.x = 2", [2]),
        ("true", [1, 2, 3, 4]),
        ("null", []),
        ("length(name) > 1", [4]),
        ("at = timestamp '2026-01-03 05:00:00+05:00'", [3]),
        ("at = cast('2026-01-02T22:00:00-02:00' as timestamp)", [3]),
        ("at = to_timestamp('2026-01-03T05:00:00+05:00')", [3]),
        ("local = '2026-01-03T05:00:00+05:00'", [3]),
        (r"path like 'a\_b'", [1]),
        (r"path not like 'a\_b'", [2, 3]),
        (r"path ilike 'A\%%'", [2]),
        (r"path like 'a\\b'", [3]),
        (r"path like 'a\b'", []),
        ("id * 0.1 > 0.3", [3, 4]),
        ("0.1 + 0.2 = 0.3", []),
        ("price = 1.1", [2]),
        ("price * 1.0 = 1.1", [2]),
        ("price + 0.1 = 1.2", []),
        ("regexp_replace(name, '(.)', '<$1>') = '<a>'", [1]),
        ("cast(at as varchar) = '2026-01-02T00:00:00Z'", [2]),
        ([("id", ">", 2)], [3, 4]),
        ([("id", ">", 2), ("name", "=", "c")], [3]),
        ([[("id", "=", 1)], [("name", "in", ["c", "it's"])]], [1, 3, 4]),
        ([("name", "not in", ["a"])], [2, 3, 4]),
        ([("day", "<=", "2026-01-02")], [1, 2]),
        ([("name", "=", None)], [2]),
        ([("name", "!=", None)], [1, 3, 4]),
        ([("id", "in", ["1", "3"])], [1, 3]),
        (pc.field("id") < 3, [1, 2]),
    ],
)
def test_rows_are_kept(predicate: Any, ids: list[int]) -> None:
    kept = RowFilter(predicate, SCHEMA)(ROWS)
    assert kept.column("id").to_pylist() == ids
    assert kept.schema == ROWS.schema


def test_only_the_columns_of_the_predicate_are_needed() -> None:
    assert RowFilter("Name = 'a' and s.x > 1", SCHEMA).columns == ["name", "s"]
    assert RowFilter([("id", "=", 1)], SCHEMA).columns == ["id"]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("nothing = 1", "cannot judge the rows.*nothing"),
        ("id = ", "Expected: an expression, found: EOF"),
        ("id in (select 1)", "cannot hold a query"),
        ("id = 1; drop table x", "one condition"),
        ("name > 5", "cannot judge the rows"),
        ("id > '1.5'", "Cannot cast string '1.5' to value of Int64 type"),
        ("id = cast('7.6' as bigint)", "Cannot cast string '7.6'"),
        ("name + 1 = 2", "is a text; cast it to a number"),
        ("id / 0 = 1", "Divide by zero"),
        ([("nothing", "=", 1)], "No field named nothing"),
        ([("id", "~", 1)], "unknown operator"),
        ([("id", "=", "x")], "a filter's value is no int64"),
    ],
)
def test_a_predicate_that_cannot_be_judged_is_refused(predicate: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        RowFilter(predicate, SCHEMA)(ROWS)
