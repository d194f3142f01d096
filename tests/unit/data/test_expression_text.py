"""Expressions that are written down again mean what they meant."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.predicates.predicate_sql import parse_expression
from deltalakedb.operations.expression_text import commit_text, constraint_text

NUMBERS = st.recursive(
    st.sampled_from(["a", "b", '"c"', "1", "0", "-2"]),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
    max_leaves=3,
)
CONDITIONS = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS),
        st.builds("{} is {}null".format, NUMBERS, st.sampled_from(["", "not "])),
        st.builds("{} {}between {} and {}".format, NUMBERS, st.sampled_from(["", "not "]), NUMBERS, NUMBERS),
        st.builds(
            "{} {}in ({})".format,
            NUMBERS,
            st.sampled_from(["", "not "]),
            st.lists(NUMBERS, min_size=1, max_size=5).map(", ".join),
        ),
    ),
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=4,
)
ROWS = "(select * from (values (0), (1), (2), (null)) x(a), (values (0), (2), (null)) y(b), (values (1), (null)) z(c))"


def _find(path: Sequence[str]) -> tuple[str, list[str], str]:
    return "", list(path), "long"


@given(CONDITIONS)
def test_a_condition_written_again_is_true_of_the_same_rows(text: str) -> None:
    again = commit_text(parse_expression(text), _find)
    kept = constraint_text(text).replace("`", '"')
    for other in (again, kept):
        wrong = duckdb.sql(f"select count(*) from {ROWS} where ({text}) is distinct from ({other})").fetchone()
        assert wrong == (0,), other
    assert commit_text(parse_expression(again), _find) == again, "what is written once stays as it is"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('"id" > 0', "id > 0"),
        ('"my col" > 0 and `a` <> 1', "`my col` > 0 AND a != 1"),
        ('"select" > 0', "`select` > 0"),
        ('length("a") < 5 or "b c" is null', "length(a) < 5 OR `b c` IS NULL"),
        ("s rlike 'x' and not a in (1, 2)", "s rlike 'x' AND NOT a IN (1, 2)"),
    ],
)
def test_a_constraint_keeps_its_words_and_only_the_quotes_that_it_needs(text: str, kept: str) -> None:
    assert constraint_text(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a = 1 or true", "true"),
        ("0 < a", "a > 0"),
        ("a in (1, 2) or a is null", "a = 1 OR a = 2 OR a IS NULL"),
        ("not (a = 1 or b < 2)", "a != 1 AND b >= 2"),
        ("coalesce(a, 1) >= 1", "CASE WHEN a IS NOT NULL THEN a ELSE 1 END >= 1"),
        ("lower(s) = s and a in (1, 2)", "lower(s) = s AND (a = 1 OR a = 2)"),
    ],
)
def test_a_constraint_is_folded_as_deltalake_folds_it(text: str, kept: str) -> None:
    assert constraint_text(text) == kept


def _find_kind(path: Sequence[str]) -> tuple[str, list[str], str]:
    return "", list(path), {"d": "date", "t": "timestamp"}.get(path[0], "string")


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("regexp_like(a, 'x')", "a LIKE '%x%'"),
        ("a ~ '^x'", "a LIKE 'x%'"),
        ("a !~* 'x$'", "a NOT ILIKE '%x'"),
        ("a ~ '^x$'", "a = 'x'"),
        ("a ~ 'x|y'", "a ~ 'x|y'"),
        ("a !~ 'x|y'", "a !~ 'x|y'"),
        ("a ~ 'x_'", "a ~ 'x_'"),
        ("starts_with(a, 'x')", "a LIKE 'x%'"),
        ("date_part('year', d) = 2024", "d >= '2024-01-01'::date AND d < '2025-01-01'::date"),
        ("extract(year from d) <> 2024", "d < '2024-01-01'::date OR d >= '2025-01-01'::date"),
        ("extract(year from d) <= 2024", "d < '2025-01-01'::date"),
        ("extract(year from a) = 2024", "date_part('YEAR', a) = 2024"),
    ],
)
def test_a_commit_records_what_the_optimizer_of_deltalake_makes_of_a_condition(text: str, recorded: str) -> None:
    assert commit_text(parse_expression(text), _find_kind) == recorded
