"""What is written is read back the same, by us and by others."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.schema.types import DecimalType, PrimitiveType, StructField, StructType
from tests.data.strategies import leaf_types, tables
from tests.data.tables import WrittenTable

PARTITION_TYPES = [
    *map(PrimitiveType, ["long", "integer", "short", "byte", "double", "boolean", "string", "date", "timestamp"]),
    PrimitiveType("timestamp_ntz"),
    PrimitiveType("binary"),
    DecimalType(10, 3),
]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path) / "table"


def plain(value: Any) -> Any:
    """A value that compares as we mean it: NaN equals itself, a zone is its offset."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def rows_of(table: pa.Table) -> list[Any]:
    return [plain(row) for row in table.to_pylist()]


@given(tables())
def test_our_reader_gives_back_every_type_as_it_was_written(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    with folder() as path:
        written = WrittenTable(path, schema)
        written.append(data)
        read = written.read()
        assert read.schema == data.schema
        assert rows_of(read) == rows_of(data)


@given(tables(leaf_types))
def test_deltalake_reads_what_we_wrote(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    with folder() as path:
        WrittenTable(path, schema).append(data)
        assert rows_of(DeltaTable(path).to_pyarrow_table()) == rows_of(data)


@given(tables())
def test_deltalake_scans_nested_types_too(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    with folder() as path:
        WrittenTable(path, schema).append(data)
        assert rows_of(pa.table(DeltaTable(path).scan())) == rows_of(data)


@st.composite
def partitioned_tables(draw: st.DrawFn) -> tuple[StructType, pa.Table]:
    schema, data = draw(tables(st.sampled_from(PARTITION_TYPES), max_columns=3))
    number = StructField("n", PrimitiveType("long"), False)
    schema = StructType((*schema.fields, number))
    return schema, data.append_column(pa.field("n", pa.int64(), False), pa.array(range(data.num_rows)))


def with_empty_as_null(rows: list[Any]) -> list[Any]:
    return [{name: None if value in ("", b"") else value for name, value in row.items()} for row in rows]


@given(partitioned_tables())
def test_partition_values_come_back_typed_and_an_empty_one_as_null(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    nullable = StructType(tuple(StructField(item.name, item.type) for item in schema.fields))
    with folder() as path:
        written = WrittenTable(path, nullable, [name for name in schema.names if name != "n"])
        written.append(data)
        read = written.read().sort_by("n")
        assert rows_of(read) == with_empty_as_null(rows_of(data))


@given(partitioned_tables())
def test_deltalake_reads_our_partitions(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    # `deltalake` spells the bytes of a partition in its own way, and takes "" for a string.
    fields = tuple(StructField(item.name, item.type) for item in schema.fields if item.type != PrimitiveType("binary"))
    data = data.select([item.name for item in fields])
    with folder() as path:
        WrittenTable(path, StructType(fields), [item.name for item in fields if item.name != "n"]).append(data)
        read = pa.table(DeltaTable(path).scan()).select(data.column_names)
        assert sorted(rows_of(read), key=lambda row: row["n"]) == with_empty_as_null(rows_of(data))


@pytest.mark.parametrize("columns", [["c"], ["p", "c"], ["p"], ["c", "a"]])
def test_a_choice_of_columns_is_read_in_the_order_asked_for(tmp_path: Path, columns: list[str]) -> None:
    data = pa.table({"a": [1, 2, 3], "p": ["x", "x", "y"], "c": ["u", "v", "w"]})
    fields = (StructField("a", PrimitiveType("long")), StructField("p", PrimitiveType("string")))
    schema = StructType((*fields, StructField("c", PrimitiveType("string"))))
    written = WrittenTable(tmp_path / "t", schema, ["p"])
    written.append(data)
    read = written.read(columns=columns)
    assert read.column_names == columns
    assert read.num_rows == 3
    assert read.to_pylist() == data.select(columns).to_pylist()
