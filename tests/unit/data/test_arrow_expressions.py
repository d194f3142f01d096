"""Expressions of pyarrow as SQL: never fewer rows than the expression keeps, whatever it is made of."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.arrow_expressions import expression_columns, expression_to_sql
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.schema.types import StructField, StructType, parse_type

TYPES = {
    "id": "long", "text": "string", "day": "date", "at": "timestamp", "plain": "timestamp_ntz", "f": "double",
    "price": "decimal(10,2)", "flag": "boolean", 'od"d name': "long", "raw": "binary",
}  # fmt: skip
SCHEMA = StructType(tuple(StructField(name, parse_type(kind)) for name, kind in TYPES.items()))
F = pc.field

KNOWN: list[tuple[Any, str]] = [
    (F("id") >= 3, '("id" >= 3)'),
    (pc.scalar(5) < F("id"), '("id" > 5)'),
    (F("text") == "it's", "(\"text\" = 'it''s')"),
    (F("day") > date(2026, 1, 1), "(\"day\" > date '2026-01-01')"),
    (F("plain") <= datetime(2026, 1, 1, 1, 2, 3, 45), "(\"plain\" <= timestamp '2026-01-01 01:02:03.000045')"),
    (F("at") < datetime(2026, 1, 1, tzinfo=UTC), "(\"at\" < timestamp '2026-01-01 00:00:00+00:00')"),
    (F("price") == Decimal("1.25"), '("price" = 1.25)'),
    (F("flag") == True, '("flag" = true)'),  # noqa: E712
    (F('od"d name') == 1, '("od""d name" = 1)'),
    (F("id").is_valid() & F("text").is_null(), '(("id" is not null) and ("text" is null))'),
    (F("id").isin([1, 2]), '("id" in (1, 2))'),
    (~(F("id") == 2), '(not ("id" = 2))'),
    ((F("id") + 1 > 2) & (F("id") < 9), '(("id" < 9))'),
    ((F("f") > 1.5) | (F("id") == 1), '(("f" > 1.5) or ("id" = 1))'),
]  # fmt: skip

UNKNOWN: list[Any] = [
    F("id") + 1 > 2, (F("id") + 1 > 2) | (F("id") < 9), ~(F("f") > 1.5), F("f") != 2.0, F("nosuch") == 1,
    F("raw") == b"a", F("text", "x") == 1, F("f").is_null(nan_is_null=True), F("id").isin([1, None]), F("flag"),
    pc.scalar(True), F("id").cast(pa.int32()) == 1, ~F("id").isin([1]), F("f") == float("inf"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "sql"), KNOWN, ids=str)
def test_what_is_understood_becomes_sql(expression: Any, sql: str) -> None:
    assert expression_to_sql(expression, SCHEMA) == sql
    parse_predicate(sql, SCHEMA)


@pytest.mark.parametrize("expression", UNKNOWN, ids=str)
def test_what_is_not_understood_chooses_nothing(expression: Any) -> None:
    assert expression_to_sql(expression, SCHEMA) is None


def test_the_columns_of_an_expression_are_known() -> None:
    assert expression_columns((F("id") + F("f") > 2) & F("text").is_valid(), SCHEMA) == {"id", "f", "text"}
    assert expression_columns(F("text", "x") == 1, SCHEMA) == set(SCHEMA.names)
    assert expression_columns(F("nosuch") == 1, SCHEMA) == set(SCHEMA.names)


NUMBERS = st.integers(-3, 3)
FLOATS = st.sampled_from([-1.5, 0.0, 1.0, 2.5])
LEAVES = st.one_of(
    st.builds(
        lambda op, n: op(F("i"), n), st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.greater_equal]), NUMBERS
    ),
    st.builds(
        lambda op, n: op(F("f"), n), st.sampled_from([pc.equal, pc.not_equal, pc.less_equal, pc.greater]), FLOATS
    ),
    st.builds(lambda values: F("i").isin(values), st.lists(NUMBERS, min_size=1, max_size=3)),
    st.sampled_from([F("i").is_null(), F("f").is_valid(), F("i") + 1 > 2]),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=6,
)


@given(
    EXPRESSIONS,
    st.lists(st.tuples(st.none() | NUMBERS, st.none() | FLOATS | st.just(float("nan"))), min_size=1, max_size=8),
)
def test_no_row_that_an_expression_keeps_is_lost(
    expression: Any, values: list[tuple[int | None, float | None]]
) -> None:
    rows = pa.table(
        {"i": pa.array([i for i, _ in values], pa.int64()), "f": pa.array([f for _, f in values], pa.float64())}
    )
    schema = StructType((StructField("i", parse_type("long")), StructField("f", parse_type("double"))))
    sql = expression_to_sql(expression, schema)
    if sql is None:
        return
    numbered = rows.append_column("row", pa.array(range(len(values))))
    kept = set(numbered.filter(expression).column("row").to_pylist())
    with duckdb.connect() as connection:
        connection.register("rows", numbered)
        chosen = {row for (row,) in connection.execute(f"select row from rows where {sql}").fetchall()}
    assert kept <= chosen
