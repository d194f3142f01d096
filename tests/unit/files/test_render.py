"""Arrow columns as JSON text, judged by Python's own JSON reader."""

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.files.render import json_maps, json_strings, json_structs, json_values, sql_text
from deltalakedb.log.protocol.codec import to_sql_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.none() | TEXT, max_size=12))
def test_any_text_survives_as_a_json_string(texts: list[str | None]) -> None:
    rendered = json_strings(pa.array(texts, pa.string())).to_pylist()
    assert [text and json.loads(text) for text in rendered] == texts


@given(st.lists(st.none() | TEXT, max_size=12))
def test_a_column_is_escaped_like_single_texts(texts: list[str | None]) -> None:
    assert sql_text(pa.array(texts, pa.string())).to_pylist() == [t if t is None else to_sql_text(t) for t in texts]


@given(st.lists(st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3), max_size=8), st.integers(0, 3))
def test_any_map_survives_as_a_json_object(maps: list[dict[str, str | None] | None], start: int) -> None:
    pairs = [None if value is None else list(value.items()) for value in maps]
    column = pa.array(pairs, pa.map_(pa.string(), pa.string()))[start:]
    assert [text and json.loads(text) for text in json_maps(column).to_pylist()] == maps[start:]


POINT = pa.struct([("x", pa.float64()), ("name", pa.string()), ("deep", pa.struct([("n", pa.int32())]))])
POINTS = st.fixed_dictionaries(
    {
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "name": st.none() | TEXT,
        "deep": st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(-9, 9)}),
    }
)


@given(st.lists(st.none() | POINTS, max_size=8), st.integers(0, 3))
def test_any_struct_survives_without_its_nulls(points: list[dict[str, Any] | None], start: int) -> None:
    column = pa.array(points, POINT)[start:]
    rendered = [text and json.loads(text) for text in json_structs(column).to_pylist()]
    assert rendered == [_without_nulls(point) for point in points[start:]]


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(member) for name, member in value.items() if member is not None}


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1, -(2**63), None]), ["1", "-9223372036854775808", None]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(10, 2)), ["1.50", "-0.01"]),
        (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), ['"0001-01-01"', '"9999-12-31"']),
        (
            pa.array([dt.datetime(2026, 2, 3, 4, 5, 6, 789_012)], pa.timestamp("us")),
            ['"2026-02-03T04:05:06.789012"'],
        ),
        (
            pa.array([dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)], pa.timestamp("ns", "America/New_York")),
            ['"2026-02-03T04:05:06.000000Z"'],
        ),
        (pa.array([math.nan, math.inf, -math.inf, None]), ['"NaN"', '"Infinity"', '"-Infinity"', None]),
        (pa.array([["a", None], [], None]), ['["a",null]', "[]", None]),
    ],
)
def test_values_are_spelled_as_statistics_spell_them(column: pa.Array, texts: list[str | None]) -> None:
    rendered = json_values(column)
    assert rendered is not None
    assert rendered.to_pylist() == texts


def test_a_32_bit_float_keeps_its_exact_value() -> None:
    """The shortest text, 0.1, is less than the value: as an upper bound it would lose rows."""
    rendered = json_values(pa.array([0.1], pa.float32()))
    assert rendered is not None
    assert float(rendered[0].as_py()) == pa.scalar(0.1, pa.float32()).as_py()


def test_bytes_have_no_json_form() -> None:
    assert json_values(pa.array([b"x"])) is None
    assert json_structs(pa.array([{"raw": b"x"}, None])).to_pylist() == ["{}", None]
