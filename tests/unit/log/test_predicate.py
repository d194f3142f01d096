"""Predicates are read as SQL means them; what bounds cannot judge is Unknown, what is wrong is an error."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan, nextafter
from typing import Any

import pytest

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.atoms import IsNotNull, IsNull, Predicate, Unknown, Within
from deltalakedb.log.predicates.dnf import MAX_DISJUNCTS
from deltalakedb.log.predicates.predicate import parse_predicate, resolve_column
from deltalakedb.log.predicates.ranges import (
    MAX_RANGES,
    TextRange,
)
from deltalakedb.log.schema.types import StructType, parse_schema

DAY = 86_400_000_000
HOURS_18 = 18 * 3_600_000_000


def schema_of(**columns: Any) -> StructType:
    fields = []
    for name, kind in columns.items():
        metadata = kind.pop("metadata", {}) if isinstance(kind, dict) else {}
        given_type = kind["of"] if isinstance(kind, dict) and "of" in kind else kind
        fields.append({"name": name, "type": given_type, "nullable": True, "metadata": metadata})
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


SCHEMA = schema_of(
    x="long",
    i="integer",
    g="double",
    f="float",
    m="decimal(38,10)",
    n="decimal(9,2)",
    b="boolean",
    flag="boolean",
    d="date",
    t="timestamp",
    z="timestamp_ntz",
    s="string",
    raw="binary",
    tags={"of": {"type": "array", "elementType": "string", "containsNull": True}},
    a={"of": {"type": "struct", "fields": [{"name": "B", "type": "integer", "nullable": True, "metadata": {}}]}},
    p="string",
    padded={"of": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}},
    collated={"of": "string", "metadata": {"__COLLATIONS": {"collated": "spark.UTF8_LCASE"}}},
)


def parse(source: Any) -> Predicate:
    return parse_predicate(source, SCHEMA, ["p", "b"])


def ranges(source: Any) -> list[tuple[Any, ...]]:
    """The ranges of a predicate that is one atom."""
    ((atom,),) = parse(source).disjuncts
    assert isinstance(atom, Within), atom
    return [(item.lo, item.hi) for item in atom.ranges]


def only_atom(source: Any) -> Any:
    ((atom,),) = parse(source).disjuncts
    return atom


def up(value: float) -> float:
    return nextafter(value, inf)


def down(value: float) -> float:
    return nextafter(value, -inf)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", [(5, 5)]),
        ("5 = x", [(5, 5)]),
        ("x == 5", [(5, 5)]),
        ("x <=> 5", [(5, 5)]),
        ("x > 5", [(up(5), inf)]),
        ("5 > x", [(-inf, down(5))]),
        ("x <= -5", [(-inf, -5)]),
        ("x <> 5", [(-inf, down(5)), (up(5), inf)]),
        ("x between 3 and 7", [(3, 7)]),
        ("x not between 3 and 7", [(-inf, down(3)), (up(7), inf)]),
        ("x in (7, 3, 3)", [(3, 3), (7, 7)]),
        ("x not in (3)", [(-inf, down(3)), (up(3), inf)]),
        ("x in (1, null)", [(1, 1)]),
        ("x > 3 and x < 7 and x <> 5", [(up(3), down(5)), (up(5), down(7))]),
        ("x = 1 or x = 2 or x between 10 and 20", [(1, 1), (2, 2), (10, 20)]),
        ("x < 2.5", [(-inf, down(2.5))]),
        ("x = 1e3", [(1000, 1000)]),
        ("x = '17'", [(17, 17)]),
        ("x = cast(5 as decimal(10,2))", [(5, 5)]),
        ("x = 5::bigint", [(5, 5)]),
        ("n = cast('0.25' as decimal(9,2))", [(0.25, 0.25)]),
        ("g = cast('1e3' as double)", [(1000, 1000)]),
        ("g = cast('0.5' as float)", [(0.5, 0.5)]),
        ("not (x >= 5)", [(-inf, down(5))]),
        ("not not x = 5", [(5, 5)]),
        ("A.b = 3", [(3, 3)]),
        ("`X` = 3", [(3, 3)]),
        ('"x" = 3', [(3, 3)]),
        ("b", [(1, 1)]),
        ("not b", [(0, 0)]),
        ("b = false", [(0, 0)]),
        ("b is true", [(1, 1)]),
        ("d = date '1970-01-02'", [(1, 1)]),
        ("d = '1970-01-02'", [(1, 1)]),
        ("d >= cast('1970-01-02' as date)", [(1, inf)]),
        ("z = '1970-01-02'", [(DAY, DAY)]),
        ("z = timestamp '1970-01-01 00:00:00.000001'", [(1, 1)]),
        ("t = '1970-01-01T00:00:00Z'", [(0, 0)]),
        ("t = '1970-01-01 01:00:00+01:00'", [(0, 0)]),
        ("t = timestamptz '1970-01-01 00:00:00-01'", [(3_600_000_000, 3_600_000_000)]),
        ("n = 0.25", [(0.25, 0.25)]),
        ("g = -0.0", [(0, 0)]),
        ("s = 'a'", [("a", "a")]),
        ("s = 'it''s'", [("it's", "it's")]),
        ("s like 'ab%'", [("ab", "ac")]),
        ("s like 'ab'", [("ab", "ab")]),
        ("s like 'a_c%'", [("a", "b")]),
        ("s like 'ab\\_'", [("ab", "ac")]),
        ("s like 'ab\\%%'", [("ab", "ac")]),
        ("s like 'ab\\'", [("ab", "ac")]),
        ("starts_with(s, 'ab')", [("ab", "ac")]),
        ("s not like 'ab%'", [("", "ab"), ("ac", None)]),
        ("s between 'a' and 'b'", [("a", "b")]),
        ("p = 'eu'", [("eu", "eu")]),
    ],
)
def test_comparisons_become_ranges(text: str, expected: list[tuple[Any, Any]]) -> None:
    assert ranges(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = null",
        "x <> null",
        "not (x = null)",
        "x not in (1, null)",
        "not (x in (1, null))",
        "x between null and 3",
        "x > 5 and x < 5",
        "x = 1 and x = 2",
        "x = 1 and x is null",
        "x is null and x is not null",
        "false",
        "not true",
        "null",
        "not null",
        "s like null",
    ],
)
def test_what_can_never_be_true_keeps_no_file(text: str) -> None:
    assert parse(text).disjuncts == ()


def test_not_follows_three_valued_logic() -> None:
    assert ranges("not (x between null and 3)") == [(up(3), inf)]
    either = parse("not (x > 5 and i > 5)").disjuncts
    assert [len(conjunct) for conjunct in either] == [1, 1]
    both = parse("not (x > 5 or i > 5)").disjuncts
    assert [len(conjunct) for conjunct in both] == [2]
    assert isinstance(only_atom("not (x is null)"), IsNotNull)


def test_null_tests_and_null_safe_comparison() -> None:
    assert isinstance(only_atom("x is null"), IsNull)
    assert isinstance(only_atom("x isnull"), IsNull)
    assert isinstance(only_atom("x is not distinct from null"), IsNull)
    assert isinstance(only_atom("x <=> null"), IsNull)
    assert isinstance(only_atom("x is distinct from null"), IsNotNull)
    kinds = {type(conjunct[0]) for conjunct in parse("x is distinct from 5").disjuncts}
    assert kinds == {Within, IsNull}
    kinds = {type(conjunct[0]) for conjunct in parse("b is not true").disjuncts}
    assert kinds == {Within, IsNull}


@pytest.mark.parametrize(
    "text",
    [
        "abs(x) = 5",
        "x + 1 = 5",
        "x = i",
        "x = current_date",
        "cast(x as string) = '5'",
        "x = 'five'",
        "x = true",
        "b = 1",
        "flag",
        "not flag",
        "flag = true",
        "d = 5",
        "d = '2020-13-01'",
        "d = '01/02/2020'",
        "s = 5",
        "s collate nocase = 'a'",
        "collated = 'a'",
        "padded = 'a'",
        "s = 'a\\nb'",
        "s ilike 'a%'",
        "s like 'a!%%' escape '!'",
        "raw = 'a'",
        "a is null",
        "tags is null",
        "exists(tags, e -> e = 'a')",
        "tags[1] = 'a'",
        "x in (select 1)",
        "x in (1, 'two')",
        "x = cast(2.5 as int)",
        "n = cast('0.255' as decimal(9,2))",
        "n = cast('12345678' as decimal(9,2))",
        "g = cast('0.1' as float)",
        "m = '1.5'",
        "(x > 5) is true",
        "1 = 1",
        "x in (i, 3)",
        "t = '2020-01-01 00:00:00 Europe/Berlin'",
    ],
)
def test_what_bounds_cannot_judge_is_unknown(text: str) -> None:
    for source in (text, f"not ({text})"):
        assert isinstance(only_atom(source), Unknown), source


@pytest.mark.parametrize("text", ["s like 'ab\\_'", "s like 'ab\\%'", "s like '\\'", "s like 'a\\b'"])
def test_a_pattern_is_read_up_to_its_first_backslash(text: str) -> None:
    """What follows is an escaped character, or the backslash itself: engines differ."""
    assert not only_atom(text).exact
    assert isinstance(only_atom(f"not ({text})"), IsNotNull)


def test_a_large_whole_number_is_compared_with_a_literal_with_a_point_as_a_double() -> None:
    ((low, high),) = ranges("x = 9007199254740993.0")
    assert low <= 2**53 <= high
    assert not only_atom("x = 9007199254740993.0").exact


@pytest.mark.parametrize("text", ["collated = 'a'", "padded like 'a%'", "not starts_with(collated, 'a')"])
def test_collated_and_padded_columns_do_not_prune(text: str) -> None:
    assert parse(text).unknown


def test_unknown_parts_do_not_hide_the_others() -> None:
    ((first, second),) = parse("abs(x) = 5 and i = 3").disjuncts
    assert {type(first), type(second)} == {Unknown, Within}
    assert parse("abs(x) = 5 or i = 3").unknown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x =", "Expected: an expression, found: EOF"),
        ("x = 'open", "Unterminated string literal"),
        ("", "Expected: an expression, found: EOF"),
        ("x = 1; drop table t", "one condition"),
        ("select 1", "condition"),
        ("drop table t", "condition"),
        ("x = 1 as y", "condition"),
        ("nope = 1", "No field named nope"),
        ("abs(nope) = 1", "No field named nope"),
        ("a.nope = 1", "No field named a.nope"),
        ("x.y = 1", "No field named x.y"),
        ("(" * 2000 + "x = 1" + ")" * 2000, "nested too deep"),
    ],
)
def test_wrong_text_is_an_error_that_says_why(text: str, says: str) -> None:
    with pytest.raises(PredicateError, match=says):
        parse(text)


def test_a_timestamp_literal_without_zone_may_be_in_any_zone() -> None:
    for literal in ("'1970-01-02'", "'1970-01-02 00:00:00'", "timestamp '1970-01-02 00:00:00'", "date '1970-01-02'"):
        assert ranges(f"t = {literal}") == [(DAY - HOURS_18, DAY + HOURS_18)]
        assert not only_atom(f"t = {literal}").exact
    assert ranges("t < '1970-01-02'") == [(-inf, down(DAY + HOURS_18))]
    assert ranges("z = timestamptz '1970-01-02 00:00:00+00'") == [(DAY - HOURS_18, DAY + HOURS_18)]
    # DuckDB and Spark disagree on a zone in a literal whose type has none
    assert ranges("t = timestamp '1970-01-02 00:00:00+00'") == [(DAY - HOURS_18, DAY + HOURS_18)]


def test_a_timestamp_compared_with_a_date_column_is_widened_to_whole_days() -> None:
    assert ranges("d = timestamp '1970-01-03 12:00:00'") == [(1, 4)]


def test_numbers_that_doubles_cannot_hold_are_enclosed() -> None:
    ((low, high),) = ranges("m = 0.1")
    assert low <= Decimal("0.1") <= high
    assert high == up(low)
    assert ranges("x = 9007199254740993") == [(2.0**53, 2.0**53 + 2)]
    assert ranges("x <> 9007199254740993") == [(-inf, inf)]
    ((low, high),) = ranges("m > 0.1 and m < 0.10000000000000000001")
    assert low <= up(high), "decimals live between neighbouring doubles"


def test_a_float_is_compared_in_single_or_double_precision() -> None:
    ((low, high),) = ranges("f = 0.1")
    assert low < 0.1 < 0.10000000149011612 < high
    assert not only_atom("f = 0.1").exact
    widened = schema_of(
        w={"of": "double", "metadata": {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}}
    )
    assert resolve_column(widened, ["w"]).fuzzy_float


@pytest.mark.parametrize(
    ("text", "includes_nan"),
    [
        ("g > 5", True),
        ("g >= 5", True),
        ("g <> 5", True),
        ("g = 5", False),
        ("g < 5", False),
        ("g between 1 and 5", False),
        ("g > 1 and g < 5", False),
        ("g = cast('NaN' as double)", True),
        ("g <= cast('NaN' as double)", True),
        ("g < cast('NaN' as double)", False),
        ("g <> cast('NaN' as double)", False),
        ("g not in (1, cast('NaN' as double))", False),
        ("x > 5", False),
    ],
)
def test_nan_is_the_largest_number_and_equals_itself(text: str, includes_nan: bool) -> None:
    assert only_atom(text).nan is includes_nan


def test_text_that_databases_cannot_hold_is_cut_outwards() -> None:
    ((low, high),) = ranges([("s", "=", "a\0b")])
    assert (low, high) == ("a", "b")
    assert ranges([("s", "<", "a\0b")]) == [("", "b")]
    assert ranges([("s", ">", "a\ud800")]) == [("a", None)]
    assert ranges([("s", "!=", "a\0b")]) == [("", None)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("x", "=", 5)], [(5, 5)]),
        ([("X", "==", 5.0)], [(5, 5)]),
        ([("x", "!=", 5)], [(-inf, down(5)), (up(5), inf)]),
        ([("x", ">=", 3), ("x", "<", 7)], [(3, down(7))]),
        ([[("x", "=", 1)], [("x", "=", 2)]], [(1, 1), (2, 2)]),
        ([("x", "in", [3, 1])], [(1, 1), (3, 3)]),
        ([("x", "not in", (3, None))], [(-inf, down(3)), (up(3), inf)]),
        ([("x", "NOT  IN", {3, None})], [(-inf, down(3)), (up(3), inf)]),
        ([("a.b", "=", "4")], [(4, 4)]),
        ([("d", "=", date(1970, 1, 2))], [(1, 1)]),
        ([("z", "=", datetime(1970, 1, 2))], [(DAY, DAY)]),
        ([("t", "=", datetime(1970, 1, 2, tzinfo=UTC))], [(DAY, DAY)]),
        ([("b", "=", True)], [(1, 1)]),
        ([("n", "=", Decimal("0.25"))], [(0.25, 0.25)]),
        ([("g", "<", nan)], [(-inf, inf)]),
    ],
)
def test_filters_mean_what_they_mean_to_deltalake(filters: Any, expected: list[tuple[Any, Any]]) -> None:
    assert ranges(filters) == expected


def test_a_null_is_not_in_a_list_without_null() -> None:
    outside, null = [conjunct[0] for conjunct in parse([("x", "not in", [3])]).disjuncts]
    assert isinstance(outside, Within)
    assert isinstance(null, IsNull)


def test_a_null_partition_is_written_as_none_or_empty() -> None:
    assert isinstance(only_atom([("p", "=", None)]), IsNull)
    assert isinstance(only_atom([("p", "!=", None)]), IsNotNull)
    for filters in ([("p", "=", "")], [("p", "in", ["", "eu"])], [("p", "in", [None, "eu"])]):
        assert IsNull in {type(conjunct[0]) for conjunct in parse(filters).disjuncts}


@pytest.mark.parametrize(
    "filters",
    [[("x", "like", 5)], [("x", "=")], ["x = 5"], [("nope", "=", 5)], [("x", "in", "abc")], [(5, "=", "x")], [[5]]],
)
def test_wrong_filters_are_errors(filters: Any) -> None:
    with pytest.raises(PredicateError):
        parse(filters)


def test_no_predicate_keeps_everything() -> None:
    sources: list[Any] = [None, []]
    for source in sources:
        assert parse(source).disjuncts == ((),)


def test_many_alternatives_are_widened_not_lost() -> None:
    pairs = [(n, n + 1000) for n in range(MAX_DISJUNCTS + 8)]
    ((first, second, reason),) = parse(" or ".join(f"(x = {a} and i = {b})" for a, b in pairs)).disjuncts
    assert isinstance(reason, Unknown)
    assert isinstance(first, Within)
    assert isinstance(second, Within)
    assert {first.column.name, second.column.name} == {"x", "i"}
    assert all(any(r.lo <= a <= r.hi for r in first.ranges) for a, _ in pairs)  # type: ignore[operator]
    product = parse(" and ".join(f"(x = {n} or i = {n} or g = {n})" for n in range(6))).disjuncts
    assert len(product) <= MAX_DISJUNCTS


@pytest.mark.parametrize("count", [MAX_RANGES + 1, 5000])
def test_long_lists_are_merged_soundly(count: int) -> None:
    numbers = [n * n for n in range(count)]
    merged = ranges([("x", "in", numbers)])
    assert len(merged) <= MAX_RANGES
    assert all(any(lo <= n <= hi for lo, hi in merged) for n in numbers[:: count // 50])
    texts = [f"{n:06d}" for n in range(count)]
    merged = ranges([("s", "in", texts)])
    assert len(merged) <= MAX_RANGES
    assert all(any(lo <= text <= hi for lo, hi in merged) for text in texts[:: count // 50])
    assert not only_atom([("x", "in", numbers)]).exact


def test_thousands_of_alternatives_in_text_are_read() -> None:
    assert len(ranges(" or ".join(f"x = {n}" for n in range(0, 3000, 10)))) == 300


def test_a_predicate_reads_back_what_it_does() -> None:
    shown = [str(atom) for conjunct in parse("x > 5 and s like 'a%' and abs(i) = 1").disjuncts for atom in conjunct]
    assert shown == ["x in (5, inf]", "s in ['a', 'b')", "not used: bounds say nothing about ABS(i) = 1"]
    assert TextRange("a", "a") == TextRange("a", "a", False, False)
