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
MOMENTS = {"date", "timestamp", "timestamp_ntz"}
NUMBERS = {"byte", "integer", "long", "float", "double", "decimal"}


def refused_on_purpose(target: str, source: str) -> bool:
    """Where `deltalake` takes a unit or a layout for granted, or cuts off a fraction."""
    kind = SOURCES[source].type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_moment = pa.types.is_temporal(kind)
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
