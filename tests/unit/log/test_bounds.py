"""Bounds contain every value of their file, whoever wrote its statistics."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType, parse_type
from deltalakedb.log.statistics.bounds import EMPTY, POINT, RANGE, UNBOUNDED, Bound, compute_bounds
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.log.statistics.intervals import lower_text_bound, upper_text_bound

EPOCH = datetime(1970, 1, 1)
UNKNOWN = Bound(UNBOUNDED, -math.inf, math.inf, None, None, None)
texts = st.text(st.characters(codec="utf-8") | st.sampled_from("\0\x7f\ud7ff\ue000\U0010ffff"), max_size=80)


def column(type_name: str, *, partition: bool = False, metadata: Mapping[str, Any] | None = None) -> BoundsColumn:
    schema = StructType((StructField("c", parse_type(type_name), True, metadata or {}),))
    (found,) = bounds_columns(schema, ["c"] if partition else [], {})
    return found


def stats_of(low: Any, high: Any, **other: Any) -> str:
    """A statistics string; values given as Decimal are written digit by digit, as Spark does."""
    text = json.dumps(
        {"numRecords": 10, "minValues": {"c": "LOW"}, "maxValues": {"c": "HIGH"}, "nullCount": {"c": 0}, **other}
    )
    return text.replace('"LOW"', _number(low)).replace('"HIGH"', _number(high))


def _number(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def bound_of(col: BoundsColumn, low: Any, high: Any, **other: Any) -> Bound:
    return compute_bounds([col], [(stats_of(low, high, **other), {})]).bound(0, 0)


def partition_bound(type_name: str, value: str | None, stats: str | None = None) -> Bound:
    return compute_bounds([column(type_name, partition=True)], [(stats, {"c": value})]).bound(0, 0)


def check_contains(bound: Bound, values: Sequence[Any]) -> None:
    """Python compares int, Decimal and Fraction with float exactly."""
    assert bound.lower is not None
    assert bound.upper is not None
    assert all(bound.lower <= value <= bound.upper for value in values), (bound, values)
    check_class(bound)


def check_class(bound: Bound) -> None:
    assert bound.lower is not None
    assert bound.upper is not None
    if bound.width_class == POINT:
        assert bound.lower == bound.upper
    elif bound.width_class == UNBOUNDED:
        assert math.isinf(bound.lower) or math.isinf(bound.upper) or math.isinf(bound.upper - bound.lower)
    else:
        width = Fraction(bound.upper) - Fraction(bound.lower)
        limit = Fraction(2) ** bound.width_class
        assert limit / 4 <= width <= limit


def ends(values: Sequence[Any]) -> tuple[Any, Any]:
    return min(values), max(values)


big_ints = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.integers(-3, 3).map(lambda n: 2**53 + n),
    st.just(2**63 - 1),
)


@given(st.lists(big_ints, min_size=1, max_size=4))
def test_integers_lie_within_their_bounds(values: list[int]) -> None:
    bound = bound_of(column("long"), *ends(values))
    check_contains(bound, values)
    assert bound.lower == max(
        f for f in (float(min(values)), math.nextafter(min(values), -math.inf)) if f <= min(values)
    )


@given(
    st.sampled_from(["decimal(38,18)", "decimal(15,3)", "decimal(38,0)", "decimal(10,2)"]),
    st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(10**15), 10**15), min_size=1, max_size=4),
    st.booleans(),
)
def test_decimals_lie_within_their_bounds(type_name: str, unscaled: list[int], as_text: bool) -> None:
    precision, scale = (int(part) for part in type_name[8:-1].split(","))
    values = [
        Decimal(n).scaleb(-scale) if abs(n) < 10**precision else Decimal(n % 10**precision).scaleb(-scale)
        for n in unscaled
    ]
    low, high = ends(values)
    bound = bound_of(column(type_name), str(low) if as_text else low, str(high) if as_text else high)
    check_contains(bound, [Fraction(value) for value in values])


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=4))
def test_doubles_lie_within_their_bounds(values: list[float]) -> None:
    low, high = ends(values)
    spelled = ["Infinity" if x == math.inf else "-Infinity" if x == -math.inf else x for x in (low, high)]
    bound = bound_of(column("double"), *spelled)
    assert (bound.lower, bound.upper) == (low, high)
    assert math.copysign(1, bound.lower or 1.0) == (1 if not low or low > 0 else -1), "no -0.0"
    check_class(bound)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_floats_lie_within_their_bounds_also_after_widening(values: list[float], shortest: bool, widened: bool) -> None:
    def spell(value: float) -> Any:
        return Decimal(str(np.float32(value))) if shortest else value

    low, high = ends(values)
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    col = column("double", metadata=changes) if widened else column("float")
    check_contains(bound_of(col, spell(low), spell(high)), values)


def test_a_double_that_was_never_a_float_stays_a_point() -> None:
    assert bound_of(column("double"), 0.1, 0.1) == Bound(POINT, 0.1, 0.1, None, None, 0)


@given(st.lists(st.dates(), min_size=1, max_size=4))
def test_dates_lie_within_their_bounds(values: list[date]) -> None:
    low, high = ends(values)
    bound = bound_of(column("date"), low.isoformat(), high.isoformat())
    days = [(value - date(1970, 1, 1)).days for value in values]
    assert (bound.lower, bound.upper) == ends(days)
    check_contains(bound, days)


def cut(moment: datetime, writer: str) -> str:
    """As Spark (cut to the millisecond, in its session's zone) and as deltalake write it."""
    down = moment - timedelta(microseconds=moment.microsecond % 1000)
    if writer == "spark":
        return (
            (down - timedelta(hours=7)).replace(tzinfo=timezone(-timedelta(hours=7))).isoformat(timespec="milliseconds")
        )
    return {
        "utc": down.isoformat(timespec="milliseconds") + "Z",
        "exact": moment.isoformat(timespec="microseconds") + "Z",
    }[writer]


@given(
    st.lists(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), min_size=1, max_size=4),
    st.sampled_from(["spark", "utc", "exact"]),
)
def test_timestamps_lie_within_their_bounds_although_writers_cut_them(values: list[datetime], writer: str) -> None:
    low, high = ends(values)
    micros = [(value - EPOCH) // timedelta(microseconds=1) for value in values]
    check_contains(bound_of(column("timestamp"), cut(low, writer), cut(high, writer)), micros)
    if writer != "spark":
        ntz = bound_of(column("timestamp_ntz"), cut(low, writer).rstrip("Z"), cut(high, writer))
        check_contains(ntz, micros)


def test_a_moment_before_1970_that_was_cut_towards_zero_is_within_its_bounds() -> None:
    bound = bound_of(column("timestamp"), "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z")
    assert (bound.lower, bound.upper) == (0, 999)
    bound = bound_of(column("timestamp"), "1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.998Z")
    assert (bound.lower, bound.upper) == (-2999, -1001)


def test_a_timestamp_without_a_zone_may_be_in_any_zone() -> None:
    bound = bound_of(column("timestamp"), "2020-01-01T00:00:00", "2020-01-01T00:00:00")
    known = bound_of(column("timestamp"), "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z")
    assert known.lower is not None
    assert known.upper is not None
    assert (bound.lower, bound.upper) == (known.lower - 18 * 3600e6, known.upper + 18 * 3600e6)


def test_a_date_that_became_a_timestamp_is_its_midnight() -> None:
    bound = bound_of(column("timestamp_ntz"), "1970-01-02", "1970-01-02")
    assert (bound.lower, bound.upper) == (86400e6, 86400e6 + 999)


def test_a_wall_clock_with_an_offset_is_unknown() -> None:
    bound = bound_of(column("timestamp_ntz"), "1970-01-02T00:00:00+01:00", "1970-01-02T00:00:00-01:00")
    assert bound == UNKNOWN._replace(null_count=0)


def spark_max(value: str, tie: str) -> str:
    return value if len(value) <= 32 else value[:32] + tie


def check_text(bound: Bound, values: Sequence[str]) -> None:
    assert bound.lower_text is not None
    assert len(bound.lower_text.encode()) <= 64
    assert "\0" not in bound.lower_text
    assert all(value.encode() >= bound.lower_text.encode() for value in values)
    if bound.upper_text is not None:
        assert len(bound.upper_text.encode()) <= 64
        assert "\0" not in bound.upper_text
        assert all(value.encode() <= bound.upper_text.encode() for value in values)
    assert (bound.width_class == POINT) == (bound.lower_text == bound.upper_text)
    if bound.width_class == POINT:
        assert len(set(values)) == 1
    else:
        assert len({value[: bound.width_class] for value in values}) == 1


@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from(["", "\U0010ffff", "\x7f", "whole"]))
def test_texts_lie_within_their_bounds_although_writers_cut_them(values: list[str], tie: str) -> None:
    low, high = ends(values)
    bound = (
        bound_of(column("string"), low, high)
        if tie == "whole"
        else bound_of(column("string"), low[:32], spark_max(high, tie))
    )
    if tie == "\x7f" and len(high) > 32:
        values = [value for value in values if value <= spark_max(high, tie)]  # that writer adds it to ASCII only
        assume(values)
    check_text(bound, values)


@given(texts)
def test_a_short_text_is_its_own_bound(value: str) -> None:
    bound = bound_of(column("string"), value, value)
    whole = len(value) < 32 and len(value.encode()) <= 64 and "\0" not in value
    assert (bound.width_class == POINT) == whole
    assert not whole or bound.lower_text == value


@given(texts, texts)
def test_cutting_a_text_never_passes_the_value(value: str, more: str) -> None:
    for whole in (value, value + more):
        assert lower_text_bound(value) <= whole
    upper = upper_text_bound(value, exact=True)
    assert upper is None or upper >= value
    upper = upper_text_bound(value + "x" * 32)
    assert upper is None or upper >= value + "x" * 32 + more


def test_texts_that_cannot_be_stored_are_cut_before_what_cannot() -> None:
    assert lower_text_bound("ab\0c") == "ab"
    assert upper_text_bound("ab\0c") == "ab\x01"
    assert lower_text_bound("ab\ud800c") == "ab"
    assert upper_text_bound("ab\ud800c") == "ab\ue000"
    assert upper_text_bound("\U0010ffff" * 40) is None
    assert upper_text_bound("a" * 31 + "\ud7ff") == "a" * 31 + "\ue000"
    assert upper_text_bound("a" * 62 + "\0") == "a" * 59 + "b"


kinds = [
    "long",
    "integer",
    "double",
    "float",
    "decimal(38,18)",
    "decimal(9,2)",
    "boolean",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
]
odd_values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**63 - 2, 2**64 + 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=40),
    st.sampled_from(
        [
            "NaN",
            "Infinity",
            "-Infinity",
            "1e5",
            "12.5",
            "2020-01-01",
            "2020-01-01T00:00:00.123Z",
            "now",
            "\ud800",
            "1" * 500,
        ]
    ),
    st.sampled_from([[], {}, {"c": 1}, [[1], [2]]]),
)


@given(st.sampled_from(kinds), st.booleans(), st.lists(st.tuples(odd_values, odd_values, odd_values), max_size=6))
def test_a_column_of_many_files_is_bound_as_each_file_alone(
    kind: str, partition: bool, rows: list[tuple[Any, Any, Any]]
) -> None:
    """The fast way over a column and the way over a single value agree, whatever the statistics hold."""
    col = column(kind, partition=partition)
    files: list[tuple[str | None, dict[str, str | None]]] = [
        (stats_of(low, high, nullCount={"c": nulls}), {"c": low if isinstance(low, str) else None})
        for low, high, nulls in rows
    ]
    files += [(None, {}), ("no json", {"c": None})]
    together = compute_bounds([col], files)
    for place, file in enumerate(files):
        alone = compute_bounds([col], [file]).bound(0, 0)
        assert together.bound(0, place) == alone
        if alone.width_class != EMPTY and col.kind != "text":
            check_class(alone)
    assert together.unreadable_stats == 1
    assert together.num_records.to_pylist() == [10] * len(rows) + [None, None]


def test_what_is_unknown_is_unbounded() -> None:
    pairs: list[tuple[Any, Any]] = [(None, None), ("x", "y"), ([], {})]
    for low, high in pairs:
        assert bound_of(column("long"), low, high)[:3] == UNKNOWN[:3]
    assert bound_of(column("long"), 1, None)[:3] == (UNBOUNDED, 1.0, math.inf)
    assert bound_of(column("string"), None, 5)[3:5] == ("", None)
    assert compute_bounds([column("long")], [(None, {})]).bound(0, 0) == UNKNOWN
    assert compute_bounds([column("string")], [("{", {})]).bound(0, 0) == Bound(RANGE, None, None, "", None, None)


def test_bounds_that_contradict_each_other_are_unknown() -> None:
    assert bound_of(column("long"), 5, 4)[:3] == UNKNOWN[:3]
    assert bound_of(column("string"), "b", "a")[3:5] == ("", None)


def test_nan_leaves_the_end_open() -> None:
    assert bound_of(column("double"), 1.0, "NaN")[:3] == (UNBOUNDED, 1.0, math.inf)
    assert bound_of(column("double"), "NaN", "NaN")[:3] == UNKNOWN[:3]
    text = '{"numRecords":1,"minValues":{"c":NaN},"maxValues":{"c":2.0}}'
    assert compute_bounds([column("double")], [(text, {})]).bound(0, 0)[:3] == (UNBOUNDED, -math.inf, 2.0)


def test_a_file_of_nulls_is_empty() -> None:
    assert bound_of(column("long"), None, None, nullCount={"c": 10}) == Bound(EMPTY, None, None, None, None, 10)
    assert bound_of(column("string"), None, None, nullCount={"c": 10}, tightBounds=False) == Bound(
        EMPTY, None, None, None, None, 10
    )
    assert bound_of(column("long"), 1, 2, nullCount={"c": 10})[:3] == (1, 1.0, 2.0), "values outweigh a count"


def test_null_counts_of_wide_bounds_mean_none_or_all() -> None:
    def count(nulls: Any, **other: Any) -> int | None:
        return bound_of(column("long"), 1, 2, nullCount={"c": nulls}, **other).null_count

    assert count(4) == 4
    assert count(4, tightBounds=False) is None
    assert count(0, tightBounds=False) == 0
    assert count(10, tightBounds=False) == 10
    assert count(11) is None
    assert count(-1) is None
    assert count("4") is None


def test_a_partition_value_is_both_ends() -> None:
    assert partition_bound("long", "5") == Bound(POINT, 5.0, 5.0, None, None, 0)
    assert partition_bound("boolean", "TRUE") == Bound(POINT, 1.0, 1.0, None, None, 0)
    assert partition_bound("date", "1970-01-02") == Bound(POINT, 1.0, 1.0, None, None, 0)
    assert partition_bound("timestamp", "1970-01-01T00:00:00.000005Z") == Bound(POINT, 5.0, 5.0, None, None, 0)
    assert partition_bound("timestamp_ntz", "1970-01-01 00:00:00.000005") == Bound(POINT, 5.0, 5.0, None, None, 0)
    assert partition_bound("string", "x" * 60) == Bound(POINT, None, None, "x" * 60, "x" * 60, 0)
    assert partition_bound("decimal(38,2)", "0.50")[:3] == (POINT, 0.5, 0.5)
    assert partition_bound("double", "NaN")[:3] == UNKNOWN[:3]
    assert partition_bound("long", "x")[:3] == UNKNOWN[:3]


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimal_partition_values_lie_within_their_bounds(unscaled: int) -> None:
    value = Decimal(unscaled).scaleb(-10)
    check_contains(partition_bound("decimal(38,10)", str(value)), [Fraction(value)])


@given(texts.filter(len))
def test_text_partition_values_lie_within_their_bounds(value: str) -> None:
    check_text(partition_bound("string", value), [value])


def test_a_null_partition_says_that_all_rows_are_null() -> None:
    for value in (None, ""):
        assert partition_bound("long", value) == Bound(EMPTY, None, None, None, None, 1)
        assert partition_bound("string", value, '{"numRecords":7}') == Bound(EMPTY, None, None, None, None, 7)
    absent = compute_bounds([column("long", partition=True)], [("{}", {})]).bound(0, 0)
    assert absent == UNKNOWN, "a value that is not there is no null"


def test_nested_columns_are_found_by_their_physical_path() -> None:
    inner = StructField("x", PrimitiveType("long"), True, {"delta.columnMapping.physicalName": "col-x"})
    schema = StructType((StructField("s", StructType((inner,))),))
    (col,) = bounds_columns(schema, [], {})
    assert (col.column_path, col.kind) == ('["s","col-x"]', "number")
    text = '{"numRecords":1,"minValues":{"s":{"col-x":3}},"maxValues":{"s":{"col-x":4}},"nullCount":{"s":{"col-x":0}}}'
    files: list[tuple[str | None, dict[str, str | None]]] = [(text, {}), ('{"minValues":{"s":1}}', {})]
    bounds = compute_bounds([col], files)
    assert bounds.bound(0, 0) == Bound(1, 3.0, 4.0, None, None, 0)
    assert bounds.bound(0, 1) == UNKNOWN


def test_no_files_have_no_bounds() -> None:
    bounds = compute_bounds([column(kind, partition=part) for kind in kinds for part in (True, False)], [])
    assert {batch.num_rows for batch in bounds.columns} == {0}
