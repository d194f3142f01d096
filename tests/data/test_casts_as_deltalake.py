"""Data of another type than the table's becomes what `deltalake` makes of it, unless that loses or invents a value."""

import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltalakedb.data import arrow_to_schema
from deltalakedb.exceptions import SchemaMismatchError
from tests.data.tables import WrittenTable

TARGETS = {
    "byte": pa.int8(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 2),
}
SOURCES = {
    "int8": pa.array([1], pa.int8()),
    "int64": pa.array([1]),
    "large int64": pa.array([2**40]),
    "uint32": pa.array([1], pa.uint32()),
    "float32": pa.array([1.0], pa.float32()),
    "float64": pa.array([1.0]),
    "fraction": pa.array([1.5]),
    "bool": pa.array([True]),
    "text 1": pa.array(["1"]),
    "text x": pa.array(["x"]),
    "text true": pa.array(["true"]),
    "text date": pa.array(["2020-01-01"]),
    "text moment": pa.array(["2020-01-01T01:02:03Z"]),
    "large text": pa.array(["1"], pa.large_string()),
    "text view": pa.array(["1"], pa.string_view()),
    "dictionary": pa.array(["1"]).dictionary_encode(),
    "binary": pa.array([b"1"]),
    "no utf-8": pa.array([b"\xff"]),
    "date32": pa.array([1], pa.date32()),
    "date64": pa.array([86_400_000], pa.date64()),
    "instant": pa.array([1], pa.timestamp("us", "UTC")),
    "instant elsewhere": pa.array([1], pa.timestamp("ms", "Europe/Berlin")),
    "local": pa.array([1], pa.timestamp("us")),
    "decimal(5,1)": pa.array([Decimal("1.0")], pa.decimal128(5, 1)),
    "decimal(5,3)": pa.array([Decimal("1.000")], pa.decimal128(5, 3)),
    "decimal(12,2)": pa.array([Decimal("1.00")], pa.decimal128(12, 2)),
    "null": pa.nulls(1),
}
MORE_SOURCES = {
    "text": [
        "1.5", " 12 ", "+7", "0x1F", "1e3", "", "yes", "OFF", " t", "1.235", "-1.235", "NaN", "9" * 39, ".",
        "2024-1-5", "20240105", "2024-01-05T10:00:00+02:00", "2024-01-05 10:00:00 Europe/Berlin",
        "2024-01-05T10:00:00.123456789",
    ],
    "float": [
        1e20, float("nan"), float("inf"), -0.0, 1e-7, 1.5e-5, 1e15, 1e16, 123456789.123456789, 2.675, 1e8,
        -99999999.995,
    ],
    "float32": pa.array([1e13, 9.999999e12, 1e-6, 1e-7, 0.1, 33554432.0, 16777217.0], pa.float32()),
    "instant": pa.array([1704450030123456, 1704450030123000, 1704450030000000], pa.timestamp("us", "UTC")),
    "local": pa.array([1704450030123456000, 1704450030123000000], pa.timestamp("ns")),
    "lists": [[1, None], [], None],
    "lists of floats": [[1.0, None, 1e20]],
    "lists of lists": [[["a"], None, []]],
    "lists of bytes": [[b"ab", b"\xff"]],
    "days": pa.array([19727, -1], pa.int32()),
    "many days": [2**40],
    "large integers": [99999999, 100000000, -100000000],
}  # fmt: skip
MOMENTS = {"date", "timestamp", "timestamp_ntz"}
NUMBERS = {"byte", "integer", "long", "float", "double", "decimal"}


def refused_on_purpose(target: str, source: str) -> bool:
    """Where `deltalake` takes a unit or a layout for granted, or cuts off a fraction."""
    kind = SOURCES[source].type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_moment = pa.types.is_temporal(kind)
    if (pa.types.is_date(kind) and target in {"integer", "long"}) or (target == "date" and pa.types.is_integer(kind)):
        return False  # the days since 1970
    return (
        (is_number and target in MOMENTS)
        or (is_moment and target in NUMBERS)
        or (is_number and target == "binary")
        or (source == "fraction" and target in {"byte", "integer", "long"})
    )


def by_deltalake(path: Path, base: pa.Table, data: pa.Table) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_deltalake(path, base)
            write_deltalake(path, data, mode="append")
    except Exception:
        return "refused"
    rows = pa.table(DeltaTable(path).scan()).to_pylist()
    return next(row["c"] for row in rows if row["n"] == 1)


def by_us(path: Path, base: pa.Table, data: pa.Table) -> Any:
    table = WrittenTable(path, arrow_to_schema(base.schema))
    try:
        table.append(data)
    except SchemaMismatchError as error:
        return "refused" if "'c'" in str(error) else str(error)
    return table.read()["c"].to_pylist()[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_value_becomes_what_deltalake_makes_of_it(tmp_path: Path, target: str) -> None:
    local = pa.array([None], pa.timestamp("us"))  # so that the table has the feature for both writers
    base = pa.table({"n": [0], "c": pa.array([None], TARGETS[target]), "local": local})
    for name, values in SOURCES.items():
        data = pa.table({"n": [1], "c": values, "local": local})
        ours = by_us(tmp_path / "ours" / name, base, data)
        if refused_on_purpose(target, name):
            assert ours == "refused", name
        else:
            assert ours == by_deltalake(tmp_path / "theirs" / name, base, data), name


@pytest.mark.parametrize("target", ["long", "integer", "double", "boolean", "string", "date", "timestamp", "decimal"])
@pytest.mark.parametrize("source", MORE_SOURCES)
def test_each_value_becomes_what_deltalake_makes_of_it(tmp_path: Path, source: str, target: str) -> None:
    local = pa.array([None], pa.timestamp("us"))
    base = pa.table({"n": [0], "c": pa.array([None], TARGETS[target]), "local": local})
    for place, value in enumerate(pa.array(MORE_SOURCES[source])):
        if source == "large integers" and target == "date":
            continue  # dates that Python cannot hold
        data = pa.table({"n": [1], "c": pa.array([value.as_py()], value.type), "local": local})
        ours = by_us(tmp_path / "ours" / str(place), base, data)
        theirs = by_deltalake(tmp_path / "theirs" / str(place), base, data)
        is_purpose = source.startswith("float") and target in {"long", "integer"} and value.as_py() % 1 != 0
        is_purpose |= pa.types.is_timestamp(value.type) and target in NUMBERS
        is_purpose |= target == "timestamp" and (pa.types.is_integer(value.type) or pa.types.is_floating(value.type))
        assert repr(ours) == repr("refused" if is_purpose else theirs), value


def test_a_decimal_out_of_range_is_a_value_error_with_its_column(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t", arrow_to_schema(pa.schema([("c", pa.decimal128(5, 2))])))
    for values in (
        [12345.6], [float("nan")], [float("-inf")], [-999.995], [1234], ["12345.6"], ["-1000"], [1e300], ["9" * 60],
        pa.array([12345.6], pa.float32()),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="column 'c': the table has decimal") as caught:
            table.append(pa.table({"c": values}))
        assert isinstance(caught.value, SchemaMismatchError)
    assert table.read().num_rows == 0


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (5, 2), (10, 10), (18, 3), (38, 0), (38, 20), (38, 38)])
def test_floats_are_rounded_to_any_decimal_as_deltalake_does(tmp_path: Path, precision: int, scale: int) -> None:
    largest = 10.0 ** (precision - scale)
    shares = [0.0, 0.1, 0.123456789012345, -0.5, 0.949, -0.0000000123, 0.9]
    values = [share * largest for share in shares] + [None]
    kind = pa.decimal128(precision, scale)
    data = pa.table({"n": range(len(values)), "c": pa.array(values, pa.float64())})
    base = data.schema.set(1, pa.field("c", kind)).empty_table()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = WrittenTable(ours, arrow_to_schema(base.schema))
    table.append(data.slice(1))  # an offset within the buffers
    write_deltalake(theirs, base)
    write_deltalake(theirs, data.slice(1), mode="append")
    assert table.read().sort_by("n").to_pylist() == pa.table(DeltaTable(theirs).scan()).sort_by("n").to_pylist()
