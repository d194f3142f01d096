"""Statistics of a file say only what is true of every row in it."""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.arrow_types import arrow_to_schema, file_schema
from deltalakedb.data.stats import StatsCollector, StatsPlan
from deltalakedb.log.schema.types import DecimalType, Leaf, PrimitiveType, StructType, leaf_columns, parse_schema
from deltalakedb.log.statistics.bounds import compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns
from deltalakedb.log.statistics.stats import parse_stats, typed_value, value_at
from tests.data.strategies import tables

ORDERED = {
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz",
}  # fmt: skip


def stats_text(
    schema: StructType, data: pa.Table, configuration: Mapping[str, str | None] | None = None, batch_rows: int = 100
) -> str:
    plan = StatsPlan(schema, (), configuration or {}, file_schema(schema, ()))
    collector = StatsCollector(plan)
    for batch in data.to_batches(batch_rows):
        collector.add(batch.columns, batch.num_rows)
    return collector.to_json()


def stats_of(data: pa.Table, **configuration: str) -> dict[str, Any]:
    properties = {name.replace("__", "."): value for name, value in configuration.items()}
    parsed: dict[str, Any] = json.loads(stats_text(arrow_to_schema(data.schema), data, properties))
    return parsed


def ends_of(data: pa.Array) -> tuple[Any, Any]:
    stats = stats_of(pa.table({"c": data}))
    return stats["minValues"].get("c"), stats["maxValues"].get("c")


def values_at(rows: list[dict[str, Any]], leaf: Leaf) -> Iterator[Any]:
    for row in rows:
        here: Any = row
        for name in leaf.path:
            here = None if here is None else here[name]
        yield here


@given(tables(), st.integers(1, 13))
def test_no_value_is_outside_of_its_bounds_and_every_null_is_counted(
    table: tuple[StructType, pa.Table], batch_rows: int
) -> None:
    schema, data = table
    stats = parse_stats(stats_text(schema, data, batch_rows=batch_rows), exact=True)
    assert stats is not None
    assert stats.num_records == data.num_rows
    rows = data.to_pylist()
    for leaf in leaf_columns(schema):
        values = list(values_at(rows, leaf))
        counted = value_at(stats.null_count, leaf.physical_path)
        low = typed_value(value_at(stats.min_values, leaf.physical_path), leaf.type)
        high = typed_value(value_at(stats.max_values, leaf.physical_path), leaf.type)
        if str(leaf.type) not in ORDERED and not isinstance(leaf.type, DecimalType):
            assert counted is low is high is None
            continue
        assert counted == values.count(None)
        check_ends([value for value in values if value is not None], low, high)


def check_ends(values: list[Any], low: Any, high: Any) -> None:
    if isinstance(high, datetime):
        high += timedelta(microseconds=999)  # the protocol cuts both ends down to the millisecond
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        assert high is None, "a NaN is above every number"
        values = [value for value in values if not math.isnan(value)]
    if isinstance(low, str) or isinstance(high, str):
        values = [value.encode() for value in values]
        low, high = (end if end is None else end.encode() for end in (low, high))
    for value in values:
        assert low is None or low <= value
        assert high is None or value <= high


@given(tables(st.sampled_from([PrimitiveType("long"), PrimitiveType("string"), DecimalType(18, 0)])))
def test_bounds_are_as_narrow_as_they_can_be(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    stats = parse_stats(stats_text(schema, data), exact=True)
    assert stats is not None
    for name, column in zip(data.column_names, data.columns, strict=True):
        values = [value for value in column.to_pylist() if value is not None]
        if not values:
            assert name not in stats.min_values
            assert name not in stats.max_values
        elif not isinstance(values[0], str) or max(len(value.encode()) for value in values) <= 64:
            assert (stats.min_values[name], stats.max_values[name]) == (min(values), max(values))


@given(tables())
def test_our_own_planning_reads_them_as_bounds(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    columns = bounds_columns(schema, (), {})
    bounds = compute_bounds(columns, [(stats_text(schema, data), {})])
    assert bounds.unreadable_stats == 0
    assert bounds.num_records.to_pylist() == [data.num_rows]
    assert len(bounds.columns) == len(columns)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.5, -2.0], -2.0, 1.5),
        ([1.5, math.nan], 1.5, None),
        ([math.nan, math.nan], None, None),
        ([math.inf, 1.0], 1.0, None),
        ([-math.inf, 1.0], None, 1.0),
        ([math.inf], None, None),
        ([-math.inf, math.nan], None, None),
    ],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_what_json_cannot_say_of_a_float_is_left_out(
    values: list[float], low: float | None, high: float | None, kind: pa.DataType
) -> None:
    assert ends_of(pa.array(values, kind)) == (low, high)
    assert ends_of(pa.array([None, *values], kind)) == (low, high)


@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_has_both_signs(zeros: list[float]) -> None:
    low, high = ends_of(pa.array(zeros))
    assert math.copysign(1, low) == -1
    assert math.copysign(1, high) == 1


def test_a_bound_that_is_open_in_one_row_group_stays_open() -> None:
    schema = arrow_to_schema(pa.schema([("c", pa.float64())]))
    data = pa.table({"c": [1.0, math.nan, 2.0, math.inf, -math.inf, 3.0]})
    for rows in (1, 2, 6):
        stats = json.loads(stats_text(schema, data, batch_rows=rows))
        assert stats["minValues"] == {"c": None}, "of infinity JSON knows nothing"
        assert stats["maxValues"] == {}, "NaN is above all others"


def test_a_float_is_written_as_the_double_it_is() -> None:
    assert ends_of(pa.array([0.1], pa.float32())) == (0.10000000149011612, 0.10000000149011612)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a" * 64, "a" * 64, "a" * 64),
        ("a" * 65, "a" * 64, "a" * 63 + "b"),
        ("é" * 40, "é" * 32, "é" * 31 + "ê"),
        ("a" + "\U0010ffff" * 40, "a" + "\U0010ffff" * 15, "b"),
        ("\U0010ffff" * 40, "\U0010ffff" * 16, None),
        ("\ud7ff" * 40, "\ud7ff" * 21, "\ud7ff" * 20 + "\ue000"),
        ("", "", ""),
    ],
)
def test_text_is_cut_to_64_bytes_and_its_maximum_rounded_up(text: str, low: str, high: str | None) -> None:
    assert ends_of(pa.array([text])) == (low, high)


def test_decimals_keep_every_digit() -> None:
    exact = [Decimal("12345678901234567890.1234567890"), Decimal("-0.0000000001")]
    data = pa.table({"c": pa.array(exact, pa.decimal128(38, 10))})
    text = stats_text(arrow_to_schema(data.schema), data)
    assert '"maxValues":{"c":12345678901234567890.1234567890}' in text
    assert '"minValues":{"c":-0.0000000001}' in text


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (1_234_567, "1970-01-01 00:00:01.234"),
        (-1, "1969-12-31 23:59:59.999"),
        (-1_234_567, "1969-12-31 23:59:58.765"),
        (0, "1970-01-01 00:00:00"),
        (2**62, None),
        (-(2**62), None),
    ],
)
def test_timestamps_are_cut_down_to_the_millisecond(micros: int, text: str | None) -> None:
    assert ends_of(pa.array([micros], pa.timestamp("us"))) == (text, text)
    zoned = text and text.replace(" ", "T") + "Z"
    assert ends_of(pa.array([micros], pa.timestamp("us", "UTC"))) == (zoned, zoned)


def test_dates_beyond_the_years_that_readers_share_have_no_bounds() -> None:
    assert ends_of(pa.array([date(1, 1, 1), date(9999, 12, 31)])) == ("0001-01-01", "9999-12-31")
    assert ends_of(pa.array([2**30], pa.int32()).cast(pa.date32())) == (None, None)


def test_a_bound_beyond_those_years_is_left_out_and_the_other_one_kept() -> None:
    for kind, number, far in ((pa.date32(), pa.int32(), 2**31 - 1), (pa.timestamp("us"), pa.int64(), 2**63 - 1)):
        start = "1970-01-01" if kind == pa.date32() else "1970-01-01 00:00:00"
        assert ends_of(pa.array([0, far], number).view(kind)) == (start, None)
        assert ends_of(pa.array([-far, 0], number).view(kind)) == (None, start)
        assert ends_of(pa.array([-far, 0, None, far], number).view(kind)) == (None, None)


def test_bytes_lists_and_maps_have_no_statistics() -> None:
    data = pa.table(
        {
            "flag": [True, None],
            "bytes": [b"x", None],
            "list": [[1], None],
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    stats = stats_of(data)
    assert stats["minValues"] == stats["maxValues"] == {"flag": True}
    assert stats["nullCount"] == {"flag": 1}


def test_a_struct_is_described_by_its_leaves_and_a_null_struct_makes_them_null() -> None:
    kind = pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])
    data = pa.table({"s": pa.array([{"x": 1, "deep": {"y": "a"}}, None, {"x": 3, "deep": None}], kind)})
    assert stats_of(data) == {
        "numRecords": 3,
        "minValues": {"s": {"x": 1, "deep": {"y": "a"}}},
        "maxValues": {"s": {"x": 3, "deep": {"y": "a"}}},
        "nullCount": {"s": {"x": 1, "deep": {"y": 2}}},
    }


def test_the_first_32_leaves_have_statistics_unless_the_table_says_otherwise() -> None:
    data = pa.table({f"c{place}": [place] for place in range(40)})
    assert list(stats_of(data)["nullCount"]) == [f"c{place}" for place in range(32)]
    assert list(stats_of(data, delta__dataSkippingNumIndexedCols="2")["minValues"]) == ["c0", "c1"]
    assert len(stats_of(data, delta__dataSkippingNumIndexedCols="-1")["minValues"]) == 40
    assert stats_of(data, delta__dataSkippingNumIndexedCols="0")["nullCount"] == {}
    assert list(stats_of(data, delta__dataSkippingStatsColumns="c35,`c7`")["maxValues"]) == ["c7", "c35"]


def test_tight_bounds_are_mentioned_where_vectors_may_come() -> None:
    data = pa.table({"c": [1]})
    assert "tightBounds" not in stats_of(data)
    assert stats_of(data, delta__enableDeletionVectors="true")["tightBounds"] is True


def test_statistics_use_physical_names() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "shown", "type": "long", "nullable": True, "metadata": mapped(1, "col-1")},
        {"name": "s", "type": nested(), "nullable": True, "metadata": mapped(2, "col-2")},
    ]
    schema_string = json.dumps({"type": "struct", "fields": fields})
    schema = parse_schema(schema_string)
    data = pa.table([pa.array([1]), pa.array([{"col-3": 2}])], schema=file_schema(schema, ()))
    stats = json.loads(stats_text(schema, data))
    assert stats["minValues"] == stats["maxValues"] == {"col-1": 1, "col-2": {"col-3": 2}}


def mapped(number: int, name: str) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


def nested() -> dict[str, Any]:
    inner = {"name": "x", "type": "long", "nullable": True, "metadata": mapped(3, "col-3")}
    return {"type": "struct", "fields": [inner]}
