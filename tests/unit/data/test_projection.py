"""A file of an older schema is read as the table is now."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.data.projection import Projection
from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)


def read(stored: pa.Array, wanted: DataType) -> list[Any]:
    batch = pa.record_batch({"c": stored})
    (array,) = Projection(batch.schema, [StructField("c", wanted)], by_id=False).arrays(batch)
    array.validate(full=True)
    return list(array.to_pylist())


@pytest.mark.parametrize(
    ("stored", "wanted", "values"),
    [
        (pa.array([7], pa.int8()), PrimitiveType("long"), [7]),
        (pa.array([7], pa.int32()), PrimitiveType("double"), [7.0]),
        (pa.array([7], pa.int32()), DecimalType(12, 2), [Decimal("7.00")]),
        (pa.array([2**62]), DecimalType(21, 2), [Decimal(2**62)]),
        (pa.array([1.5], pa.float32()), PrimitiveType("double"), [1.5]),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), DecimalType(10, 4), [Decimal("1.5000")]),
        (pa.array([0], pa.date32()), PrimitiveType("timestamp_ntz"), [datetime(1970, 1, 1)]),
        (pa.array([[1]], pa.list_(pa.int8())), ArrayType(PrimitiveType("long")), [[1]]),
        (
            pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int16())),
            MapType(PrimitiveType("integer"), PrimitiveType("long")),
            [[(1, 2)]],
        ),
    ],
)
def test_a_type_that_grew_reads_old_files(stored: pa.Array, wanted: DataType, values: list[Any]) -> None:
    assert read(stored, wanted) == values
    empty = stored.slice(0, 0)
    assert read(pa.concat_arrays([pa.nulls(1, stored.type), stored, empty]).slice(1), wanted) == values


def test_an_instant_without_a_zone_is_utc() -> None:
    (value,) = read(pa.array([1_500_000], pa.timestamp("us")), PrimitiveType("timestamp"))
    assert value.isoformat() == "1970-01-01T00:00:01.500000+00:00"


def test_fields_that_a_file_does_not_have_are_null_at_every_depth() -> None:
    inner = StructType((StructField("new", PrimitiveType("string")), StructField("x", PrimitiveType("long"))))
    stored = pa.array(
        [[{"x": 1, "old": True}, None], None], pa.list_(pa.struct([("x", pa.int64()), ("old", pa.bool_())]))
    )
    assert read(stored, ArrayType(inner)) == [[{"new": None, "x": 1}, None], None]


def mapped(name: str, kind: DataType, number: int, physical: str) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, kind, True, metadata)


def test_by_id_a_column_is_found_whatever_it_is_called() -> None:
    field = pa.field("what a foreign writer called it", pa.int64(), metadata={"PARQUET:field_id": "5"})
    other = pa.field("col-5", pa.int64(), metadata={"PARQUET:field_id": "6"})
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=pa.schema([field, other]))
    wanted = [mapped("shown", PrimitiveType("long"), 5, "col-5")]
    assert Projection(batch.schema, wanted, by_id=True).arrays(batch)[0].to_pylist() == [1]
    assert Projection(batch.schema, wanted, by_id=False).arrays(batch)[0].to_pylist() == [2]


def test_by_id_a_file_without_ids_is_read_by_name() -> None:
    batch = pa.record_batch({"col-5": [1]})
    wanted = [mapped("shown", PrimitiveType("long"), 5, "col-5")]
    assert Projection(batch.schema, wanted, by_id=True).arrays(batch)[0].to_pylist() == [1]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.array([[1]]), PrimitiveType("long")),
        (pa.array([1]), ArrayType(PrimitiveType("long"))),
        (pa.array(["x"]), PrimitiveType("long")),
    ],
)
def test_a_file_of_quite_another_type_is_refused(stored: pa.Array, wanted: DataType) -> None:
    with pytest.raises(MalformedLogError, match="column 'c': a file has"):
        read(stored, wanted)
