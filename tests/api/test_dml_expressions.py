"""Expressions mean what they mean to `deltalake`: the same rows match."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import deltalake
import pyarrow as pa
import pytest

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.expressions import Expression
from tests.api.both import Both

ROWS = pa.table(
    {
        "i": pa.array([-7, -1, 0, 1, 7, None], pa.int64()),
        "f": pa.array([math.nan, -0.0, 0.0, 1.5, math.inf, None]),
        "s": ["1", "05", "a", "B", None, ""],
        "b": [True, False, None, True, False, None],
        "d": pa.array([date(2020, 1, day) for day in range(1, 7)]),
        "ts": pa.array([datetime(2020, 1, day, 12, tzinfo=UTC) for day in range(1, 7)], pa.timestamp("us", "UTC")),
        "dec": pa.array([None if x is None else Decimal(x) for x in ("1.10", "-2.25", None, "0", "9.99", "1.11")]),
        "k": pa.array(range(6), pa.int32()),
    }
)
NUMBERS = [
    "f > 1", "f = 0", "isnan(f)", "f < 0", "f between 0 and 2", "floor(f) = 1", "exp(f) > 1", "f is null",
    "i / 2 = -3", "i % 4 = -3", "i > 0.5", "-i = 7", "i & 1 = 1", "abs(i) = 7", "power(i, 2) = 49", "signum(i) = -1",
    "i in (1, null)", "i not in (1, null)", "i is distinct from 1", "i <=> null", "i between null and 3",
    "coalesce(i, 0) = 0", "nullif(i, 0) is null", "greatest(i, 0) = 7", "i = 7 or 1 = 1", "k = 1 and k = 2",
    "i::string = '7'", "array_has(make_array(1, 7), i)", "dec = 1.10", "dec > 1", "dec in (1.10, 9.99)",
]  # fmt: skip
TEXTS = [
    "s < 5", "s in (1, 2)", "s not in (1, 2)", "s between 0 and 5", "s = 1.0", "s = ''", "s > 'a'",
    "s like '%5'", "s ilike 'b'", "s ~ '^[0-9]+$'", "regexp_like(s, '5')", "starts_with(s, '0')",
    "concat(s, 'x') = 'x'",
    "substr(s, 1, 1) = '0'", "left(s, 1) = '0'", "lpad(s, 3, '0') = '001'", "trim(s) = '1'", "btrim(s) = '1'",
    "replace(s, '0', '') = '5'", "strpos(s, '5') = 2", "reverse(s) = '50'", "split_part(s, '5', 1) = '0'",
    "ascii(s) = 97", "repeat(s, 2) = 'aa'", "nvl(s, 'z') = 'z'", "octet_length(s) = 2", "md5(s) is null",
]  # fmt: skip
OTHERS = [
    "b", "not b", "b = true", "b is not true", "b is null", "case b when true then 1 else 0 end = 1",
    "d > '2020-01-03'", "d = date '2020-01-02'", "cast('2020-01-03' as date) = d", "to_date('2020-01-02') = d",
    "date_part('day', d) = 3", "extract(day from d) = 4", "to_char(d, '%Y') = '2020'", "current_date > d",
    "ts >= '2020-01-03'", "ts > '2020-01-03T12:00:00'", "ts = '2020-01-03T12:00:00Z'",
    "date_trunc('month', ts) = '2020-01-01'",
]  # fmt: skip


@pytest.mark.parametrize("predicates", [NUMBERS, TEXTS, OTHERS], ids=["numbers", "texts", "others"])
def test_the_same_rows_match(both: Both, predicates: list[str]) -> None:
    both.seed(ROWS)
    name = both.ours.uri.partition("table=")[2]
    wrong = []
    for predicate in predicates:
        expected = _deleted_by_theirs(both.theirs.uri, predicate)
        tx = both.ours.catalog.begin()
        tx.delete(name, predicate)
        left = set(tx.table(name).to_pyarrow_table()["k"].to_pylist())
        tx.rollback()
        if left != set(range(6)) - expected:
            wrong.append((predicate, set(range(6)) - left, expected))
    assert wrong == []


def _deleted_by_theirs(uri: str, predicate: str) -> set[int]:
    """The rows that go; they are there again afterwards."""
    table = deltalake.DeltaTable(uri)
    version = table.version()
    table.delete(predicate)
    left = set(pa.table(table.scan().read_all())["k"].to_pylist())
    if table.version() != version:
        table.restore(version)
    return set(range(6)) - left


def test_an_expression_knows_its_columns_and_whether_it_is_stable() -> None:
    schema = StructType((StructField("Id", PrimitiveType("long")), StructField("we ird", PrimitiveType("string"))))
    read = Expression.parse("Id > 3 and `we ird` = 5", schema)
    assert read.columns == {"Id", "we ird"}
    assert read.sql == """("Id" > 3 AND "we ird" = '5')"""
    assert read.is_stable
    assert not Expression.parse("random() < 0.5", schema).is_stable
    assert not Expression.parse("gen_random_uuid() = 'x'", schema).is_stable


def test_with_aliases_a_column_belongs_to_one_of_them() -> None:
    left = StructType((StructField("id", PrimitiveType("long")), StructField("a", PrimitiveType("string"))))
    right = StructType((StructField("id", PrimitiveType("long")), StructField("b", PrimitiveType("string"))))
    read = Expression.parse("t.id = s.id and a = b", aliases={"t": left, "s": right})
    assert read.sql == '("t"."id" = "s"."id" AND "t"."a" = "s"."b")'
    assert read.by_alias == {"t": {"id", "a"}, "s": {"id", "b"}}
    with pytest.raises(PredicateError, match="Ambiguous"):
        Expression.parse("id = 3", aliases={"t": left, "s": right})
    with pytest.raises(PredicateError, match="No field named c"):
        Expression.parse("c = 3", aliases={"t": left, "s": right})


def test_a_predicate_that_changes_its_mind_is_asked_for_every_row(both: Both) -> None:
    both.seed({"id": list(range(1000)), "p": [1] * 1000}, partition_by=["p"])
    deleted = both.ours.table().delete("random() < 0.5 and p = 1")["num_deleted_rows"]
    assert 300 < deleted < 700
