"""Statistics and partition values, typed by the schema."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import ArrayType, DataType, VariantType, parse_type
from deltalakedb.log.statistics.stats import FileStats, parse_stats, typed_value, value_at


def test_statistics_have_their_parts() -> None:
    stats = parse_stats(
        '{"numRecords":3,"tightBounds":false,"minValues":{"a":{"b":1}},"maxValues":{"a":{"b":2}},"nullCount":{"a":{"b":0}}}'
    )
    assert stats == FileStats(3, False, {"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 0}})
    assert value_at(stats.min_values, ("a", "b")) == 1
    assert value_at(stats.min_values, ("a", "b", "c")) is None
    assert value_at(stats.min_values, ("x",)) is None


@pytest.mark.parametrize("text", [None, "", "no json", "{", "[]", "1", "null", "[" * 100_000])
def test_statistics_that_cannot_be_read_are_none(text: str | None) -> None:
    assert parse_stats(text) is None
    assert parse_stats(text, exact=True) is None


def test_odd_parts_are_left_out() -> None:
    stats = parse_stats('{"numRecords":-1,"minValues":[],"maxValues":1,"nullCount":"x","tightBounds":null}')
    assert stats == FileStats()
    assert parse_stats('{"numRecords":true}') == FileStats()


def test_what_only_lenient_parsers_read_is_read() -> None:
    stats = parse_stats('{"minValues":{"f":NaN,"s":"\\ud800"}}')
    assert stats is not None
    assert math.isnan(stats.min_values["f"])
    assert stats.min_values["s"] == "\ud800"


def test_decimals_are_exact_when_asked_for() -> None:
    stats = parse_stats('{"minValues":{"d":12345678901234567890.123456789012345678}}', exact=True)
    assert stats is not None
    assert typed_value(stats.min_values["d"], parse_type("decimal(38,18)")) == Decimal(
        "12345678901234567890.123456789012345678"
    )


@pytest.mark.parametrize(
    ("raw", "type_name", "value"),
    [
        (1, "long", 1),
        (True, "long", None),
        (1.5, "long", None),
        ("1", "integer", None),
        (True, "boolean", True),
        (1, "boolean", None),
        (1, "double", 1.0),
        ("-Infinity", "float", -math.inf),
        (True, "double", None),
        ("x", "double", None),
        (1.1, "decimal(5,2)", Decimal("1.1")),
        ("1.1", "decimal(5,2)", Decimal("1.1")),
        ("x", "decimal(5,2)", None),
        ("NaN", "decimal(5,2)", None),
        (True, "decimal(5,2)", None),
        ("x", "string", "x"),
        (1, "string", None),
        ("2020-02-29", "date", date(2020, 2, 29)),
        ("2021-02-29", "date", None),
        ("+10000-01-01", "date", None),
        ("2020-01-01T00:00:00.123-07:00", "timestamp", datetime(2020, 1, 1, 7, 0, 0, 123000, UTC)),
        ("2020-01-01T00:00:00.123456789Z", "timestamp", datetime(2020, 1, 1, 0, 0, 0, 123456, UTC)),
        ("2020-01-01 10:00:00", "timestamp_ntz", datetime(2020, 1, 1, 10)),
        ("2020-01-01 10:00:00+01:00", "timestamp_ntz", None),
        ("+20000-01-01T00:00:00Z", "timestamp", None),
        ("x", "binary", None),
        (None, "long", None),
        ({}, "long", None),
    ],
)
def test_a_minimum_is_typed_by_the_schema(raw: Any, type_name: str, value: Any) -> None:
    assert typed_value(raw, parse_type(type_name)) == value


def test_types_without_order_have_no_minimum() -> None:
    assert typed_value("x", VariantType()) is None


@pytest.mark.parametrize(
    ("text", "type_name", "value"),
    [
        (None, "string", None),
        ("", "string", None),
        ("", "long", None),
        ("x", "string", "x"),
        ("-9223372036854775808", "long", -(2**63)),
        ("+5", "byte", 5),
        ("1.5", "double", 1.5),
        ("-1e3", "float", -1000.0),
        ("Infinity", "double", math.inf),
        ("12.30", "decimal(5,2)", Decimal("12.30")),
        ("TRUE", "boolean", True),
        ("2020-01-01", "date", date(2020, 1, 1)),
        ("2020-01-01 00:00:00.5", "timestamp", datetime(2020, 1, 1, 0, 0, 0, 500000, UTC)),
        ("1970-01-01T00:00:00.123456Z", "timestamp", datetime(1970, 1, 1, 0, 0, 0, 123456, UTC)),
        ("2020-01-01 00:00:00", "timestamp_ntz", datetime(2020, 1, 1)),
        ("\x01\xff", "binary", b"\x01\xff"),
    ],
)
def test_a_partition_value_is_typed_by_the_schema(text: str | None, type_name: str, value: Any) -> None:
    assert parse_partition_value(text, parse_type(type_name)) == value


@pytest.mark.parametrize(
    ("text", "type_name"),
    [
        ("x", "long"),
        ("1.5", "integer"),
        ("１", "long"),
        ("x", "double"),
        ("y", "boolean"),
        ("2020-13-01", "date"),
        ("now", "timestamp"),
        ("NaN", "decimal(5,2)"),
        ("x", "decimal(5,2)"),
    ],
)
def test_a_partition_value_of_another_type_is_refused(text: str, type_name: str) -> None:
    with pytest.raises(MalformedLogError, match="partition value"):
        parse_partition_value(text, parse_type(type_name))


def test_a_nested_type_cannot_be_a_partition() -> None:
    nested: DataType = ArrayType(parse_type("long"))
    with pytest.raises(MalformedLogError):
        parse_partition_value("[1]", nested)
