"""Texts as Postgres prints them become values; what a type cannot hold is named."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.cdc.decode.values import convert
from deltalakedb.exceptions import ValueNotHeld
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, to_arrow_type

BOOLEAN, BINARY, STRING = PrimitiveType("boolean"), PrimitiveType("binary"), PrimitiveType("string")
SHORT, INTEGER, LONG = PrimitiveType("short"), PrimitiveType("integer"), PrimitiveType("long")
FLOAT, DOUBLE = PrimitiveType("float"), PrimitiveType("double")
DATE, LOCAL, INSTANT = PrimitiveType("date"), PrimitiveType("timestamp_ntz"), PrimitiveType("timestamp")
MAX32, MAX64 = 2**31 - 1, 2**63 - 1
DAY = 86_400_000_000


def converted(texts: Sequence[str | None], data_type: DataType) -> pa.Array:
    array = convert(pa.array(texts, pa.string()), data_type, where="public.t.c")
    array.validate(full=True)
    assert array.type.equals(to_arrow_type(data_type), check_metadata=True)
    from_bytes = convert(pa.array(texts, pa.string()).cast(pa.binary()), data_type, where="public.t.c")
    assert from_bytes.cast(pa.string()).equals(array.cast(pa.string())) if data_type == STRING else True
    return array


def numbers(array: pa.Array) -> list[int | None]:
    """Days or microseconds, of which not all are a date of Python's."""
    found: list[int | None] = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize(
    ("data_type", "texts", "expected"),
    [
        (SHORT, ["-32768", "32767", None, "0"], [-32768, 32767, None, 0]),
        (INTEGER, ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
        (LONG, ["-9223372036854775808", "9223372036854775807", "4294967295"], [-(2**63), 2**63 - 1, 2**32 - 1]),
        (DOUBLE, ["1.7976931348623157e+308", "5e-324", "-0", "0.1"], [1.7976931348623157e308, 5e-324, -0.0, 0.1]),
        (FLOAT, ["3.4028235e+38", "1e-45", "1.5"], [3.4028234663852886e38, 1.401298464324817e-45, 1.5]),
        (DOUBLE, ["Infinity", "-Infinity"], [math.inf, -math.inf]),
        (BOOLEAN, ["t", "f", None], [True, False, None]),
        (BINARY, ["\\x", "\\x00ff", None, "\\xdeadbeef"], [b"", b"\x00\xff", None, b"\xde\xad\xbe\xef"]),
        (STRING, ["", "  padded  ", None, "ä€𝄞\n"], ["", "  padded  ", None, "ä€𝄞\n"]),
        (DATE, ["0001-01-01", "9999-12-31", None], [date(1, 1, 1), date(9999, 12, 31), None]),
        (
            LOCAL,
            ["2026-01-31 23:59:59.999999", "1999-01-01 00:00:00.5", None],
            [datetime(2026, 1, 31, 23, 59, 59, 999999), datetime(1999, 1, 1, 0, 0, 0, 500000), None],
        ),
        (INSTANT, ["2026-01-31 23:59:59.1+00"], [datetime(2026, 1, 31, 23, 59, 59, 100000, tzinfo=UTC)]),
        (DecimalType(10, 2), ["12345678.90", "-0.01", None, "0.00"], ["12345678.90", "-0.01", None, "0.00"]),
        (DecimalType(38, 0), ["9" * 38, "-" + "9" * 38], ["9" * 38, "-" + "9" * 38]),
        (DecimalType(38, 38), ["0." + "9" * 38], ["0." + "9" * 38]),
    ],
)  # fmt: skip
def test_values_of_each_type(data_type: DataType, texts: list[str | None], expected: list[Any]) -> None:
    if isinstance(data_type, DecimalType):
        expected = [None if value is None else Decimal(value) for value in expected]
    assert converted(texts, data_type).to_pylist() == expected


def test_nan_is_a_double_and_no_decimal() -> None:
    assert math.isnan(converted(["NaN"], DOUBLE)[0].as_py())
    with pytest.raises(
        ValueNotHeld, match=r"public.t.c has a value that decimal\(5,2\) cannot hold: 'NaN'.*text_columns"
    ):
        converted(["1.00", None, "NaN"], DecimalType(5, 2))


def test_infinite_moments_are_the_last_ones_of_their_type() -> None:
    assert numbers(converted(["infinity", None, "-infinity", "1970-01-02"], DATE)) == [MAX32, None, -MAX32, 1]
    for data_type, zone in ((LOCAL, ""), (INSTANT, "+00")):
        texts = ["infinity", "-infinity", None, f"1970-01-01 00:00:00.000001{zone}"]
        assert numbers(converted(texts, data_type)) == [MAX64, -MAX64, None, 1]


def test_years_before_christ_and_beyond_9999_are_counted_on() -> None:
    # select '0044-03-15 BC'::date - '1970-01-01'::date, and so on
    texts = ["0044-03-15 BC", "0001-12-31 BC", "10000-01-01", "5874897-12-31", "4714-11-24 BC", "0001-02-29 BC"]
    assert numbers(converted(texts, DATE)) == [-735160, -719163, 2932897, 2145042905, -2440588, -719469]
    moments = ["0044-03-15 12:00:00 BC", "294246-12-31 23:59:59.999999", "10000-01-01 00:00:00.25"]
    days = [-735160, 106751982, 2932897]
    assert numbers(converted(moments, LOCAL)) == [
        days[0] * DAY + DAY // 2,
        days[1] * DAY - 1,
        days[2] * DAY + 250_000,
    ]
    instants = ["0044-03-15 12:00:00+00 BC", "2026-01-01 00:00:00+00"]
    assert numbers(converted(instants, INSTANT)) == [days[0] * DAY + DAY // 2, 1767225600000000]


def test_a_moment_beyond_64_bits_of_microseconds_is_not_held() -> None:
    with pytest.raises(ValueNotHeld, match="'294276-12-31 23:59:59.999999'") as caught:
        converted(["2026-01-01 00:00:00", "294276-12-31 23:59:59.999999"], LOCAL)
    assert (caught.value.where, caught.value.place) == ("public.t.c", 1)


def test_the_first_value_that_is_not_held_is_named() -> None:
    with pytest.raises(ValueNotHeld) as caught:
        converted([*map(str, range(100)), "x" * 500, "y"], INTEGER)
    assert caught.value.place == 100
    assert f"'{'x' * 60}...'" in str(caught.value)
    with pytest.raises(ValueNotHeld, match=r"'\\\\xff'") as caught:
        convert(pa.array([b"a", b"\xff"]), STRING, where="public.t.c")
    assert caught.value.place == 1


@pytest.mark.parametrize(
    ("element", "texts", "expected"),
    [
        (INTEGER, ["{1,2,NULL}", "{}", None, "{-3}"], [[1, 2, None], [], None, [-3]]),
        (INTEGER, ["[0:1]={5,6}", "{1}", None], [[5, 6], [1], None]),
        (STRING, ["{a,b}", '{"NULL",NULL,null}', '{"",x}'], [["a", "b"], ["NULL", None, "null"], ["", "x"]]),
        (STRING, ['{"a,b","c\\"d","e\\\\f","{g}"}'], [["a,b", 'c"d', "e\\f", "{g}"]]),
        (STRING, ['{" ","line\nbreak"}', "{ä,€}"], [[" ", "line\nbreak"], ["ä", "€"]]),
        (BOOLEAN, ["{t,f,NULL}"], [[True, False, None]]),
        (BINARY, ['{"\\\\x00ff",NULL,"\\\\x"}'], [[b"\x00\xff", None, b""]]),
        (DATE, ["{2026-01-01}"], [[date(2026, 1, 1)]]),
        (
            INSTANT,
            ['{"2026-01-01 10:00:00+00",NULL}', "{}"],
            [[datetime(2026, 1, 1, 10, tzinfo=UTC), None], []],
        ),
        (DecimalType(4, 1), ["{1.5,-100.0}"], [[Decimal("1.5"), Decimal("-100.0")]]),
        (DOUBLE, ["{Infinity,1}"], [[math.inf, 1.0]]),
    ],
)
def test_arrays_of_each_form(element: DataType, texts: list[str | None], expected: list[Any]) -> None:
    assert converted(texts, ArrayType(element)).to_pylist() == expected


def test_an_array_of_more_dimensions_is_not_held() -> None:
    for text in ("{{1,2},{3,4}}", "[0:0][1:2]={{1,2}}", '{{"a"}}'):
        with pytest.raises(ValueNotHeld, match="more than one dimension") as caught:
            converted(["{1}", None, text], ArrayType(INTEGER))
        assert caught.value.place == 2


def test_an_element_that_is_not_held_is_told_with_its_row() -> None:
    with pytest.raises(ValueNotHeld, match="'NaN'") as caught:
        converted(["{1.0}", "{}", None, "{2.0,NaN}"], ArrayType(DecimalType(3, 1)))
    assert caught.value.place == 3


def test_chunks_and_slices_are_converted_like_whole_arrays() -> None:
    texts = pa.array(["\\x01", None, "\\x0203", None, "\\x"])
    assert convert(texts.slice(1), BINARY, where="c").to_pylist() == [None, b"\x02\x03", None, b""]
    assert convert(pa.chunked_array([texts, texts.slice(4)]), BINARY, where="c").to_pylist()[3:] == [None, b"", b""]
    assert convert(pa.chunked_array([], pa.string()), LONG, where="c").to_pylist() == []
    arrays = pa.array(["{1}", "{2,3}", None, '{"4"}', "{5}"]).slice(1)
    assert convert(arrays, ArrayType(LONG), where="c").to_pylist() == [[2, 3], None, [4], [5]]
    assert convert(arrays.slice(0, 2), ArrayType(LONG), where="c").to_pylist() == [[2, 3], None]
    dates = pa.array([None, "infinity", None, "1970-01-03"]).slice(1)
    assert numbers(convert(dates, DATE, where="c")) == [MAX32, None, 2]


def _quoted(element: str | None) -> str:
    """An element as array_out writes it."""
    if element is None:
        return "NULL"
    if element == "" or element.upper() == "NULL" or any(char in '",{}\\' or char.isspace() for char in element):
        escaped = element.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return element


@given(st.lists(st.none() | st.lists(st.none() | st.text('ab ",{}\\N\n', max_size=4) | st.just("NULL"), max_size=4)))
def test_the_elements_of_any_array_come_back(arrays: list[list[str | None] | None]) -> None:
    texts = [None if one is None else "{" + ",".join(map(_quoted, one)) + "}" for one in arrays]
    assert converted(texts, ArrayType(STRING)).to_pylist() == arrays


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_any_bytes_come_back(values: list[bytes | None]) -> None:
    texts = [None if value is None else "\\x" + value.hex() for value in values]
    assert converted(texts, BINARY).to_pylist() == values
