"""Data fits a table or is refused with the column's name, what was expected and what came."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from deltalakedb.data.arrow_types import arrow_to_schema, file_schema
from deltalakedb.data.conform import Conformer, check_schema
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.schema.types import StructType
from tests.data.strategies import tables

TABLE = arrow_to_schema(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])),
            pa.field("items", pa.list_(pa.field("element", pa.int64(), nullable=False))),
            pa.field("map", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        ]
    )
)


def conform(data: pa.Table, table: StructType = TABLE) -> list[dict[str, Any]]:
    conformer = Conformer(data.schema, table)
    found = []
    for batch in data.to_batches():
        arrays = conformer(batch)
        fitted = pa.RecordBatch.from_arrays(arrays, schema=file_schema(table, ()))
        fitted.validate(full=True)
        found += fitted.to_pylist()
    return found


def test_columns_are_ordered_and_missing_ones_filled_with_null() -> None:
    data = pa.table({"name": ["x"], "ID": pa.array([7], pa.int8())})
    assert conform(data) == [{"id": 7, "name": "x", "s": None, "items": None, "map": None}]


def test_fields_of_structs_are_found_by_name_at_every_depth() -> None:
    kind = pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))
    table = arrow_to_schema(pa.schema([("l", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])))]))
    data = pa.table({"l": pa.array([[{"a": 1, "b": "x"}, None], None, [], [{"a": 2, "b": None}]], kind)})
    expected = [{"l": value} for value in data["l"].to_pylist()]
    assert conform(data, table) == expected
    assert conform(data.slice(1), table) == expected[1:], "offsets of a slice count"
    assert conform(data.slice(3), table) == expected[3:]


@pytest.mark.parametrize(
    "kind", [pa.large_list(pa.int8()), pa.list_(pa.int8(), 2), pa.list_view(pa.int8()), pa.large_list_view(pa.int8())]
)
def test_lists_of_every_layout_become_lists(kind: pa.DataType) -> None:
    table = arrow_to_schema(pa.schema([("l", pa.list_(pa.int64()))]))
    rows = [[1, 2], None, [3, None]]
    assert conform(pa.table({"l": pa.array(rows, kind)}), table) == [{"l": row} for row in rows]
    assert conform(pa.table({"l": pa.array(rows, kind)}).slice(1), table) == [{"l": row} for row in rows[1:]]


def test_maps_are_cast_inside() -> None:
    table = arrow_to_schema(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
    rows = [[("a", 1), ("b", None)], None, []]
    data = pa.table({"m": pa.array(rows, pa.map_(pa.large_string(), pa.int8()))})
    assert conform(data, table) == [{"m": row} for row in rows]
    assert conform(data.slice(1), table) == [{"m": row} for row in rows[1:]]


@given(tables())
def test_data_of_the_tables_own_types_stays_as_it_is(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    conformer = Conformer(data.schema, schema)
    for batch in data.to_batches():
        # by their text: NaN is not equal to itself
        assert [repr(array.to_pylist()) for array in conformer(batch)] == [
            repr(column.to_pylist()) for column in batch.columns
        ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": ["x"]}, "Invalid data found: 1 rows failed validation check"),
        ({"id": [1, None]}, r"Invalid data found: 1 rows(.|\n)*column 'id': the table does not let it be null"),
        ({"id": [1], "other": [1]}, "Field other not found in schema: the table has id, name"),
        (
            {"id": ["x"]},
            "Cannot cast string 'x' to value of Int64 type; column 'id': the table has long, the data has string",
        ),
        ({"id": [[1]]}, "column 'id': the table has long, the data has list<item: int64>"),
        ({"id": [1], "s": [{"b": "x"}]}, r"column 's\.a': the table does not let it be null"),
        ({"id": [1], "s": [{"a": None, "b": "x"}]}, r"column 's\.a': the table does not let it be null"),
        ({"id": [1], "s": [{"a": 2**40}]}, r"column 's\.a': the table has integer, the data has int64"),
        ({"id": [1], "s": [{"a": 1, "z": 1}]}, r"Field s\.z not found in schema"),
        ({"id": [1], "items": [[1, None]]}, r"column 'items\.element': the table does not let it be null"),
        ({"id": [1], "map": [[("a", None)]]}, r"column 'map.*': the table"),
        ({"id": [1.5]}, "Can't cast value 1.5.* to type Int64; column 'id': the table has long, the data has double"),
        (
            {"id": pa.array([2**63], pa.uint64())},
            "Can't cast value .* column 'id': the table has long, the data has uint64",
        ),
        ({"id": [Decimal("1.5")]}, "column 'id': the table has long, the data has decimal"),
        ({"id": [1], "name": [b"\xff"]}, "Invalid UTF8.* column 'name': the table has string, the data has binary"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        conform(pa.table(data))


def test_the_first_value_that_does_not_fit_is_named() -> None:
    schema = arrow_to_schema(pa.schema([("n", pa.int64())]))
    batch = pa.record_batch({"n": ["1", "2", "bad", "4", "worse", "also"]})
    with pytest.raises(SchemaMismatchError, match="Cannot cast string 'bad' to value of Int64"):
        Conformer(batch.schema, schema)(batch)


def test_a_null_struct_may_hold_what_a_struct_may_not() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.string())])
    data = pa.table({"id": [1, 2], "s": pa.array([None, {"a": 1, "b": None}], kind)})
    assert [row["s"] for row in conform(data)] == [None, {"a": 1, "b": None}]


def test_a_name_twice_in_the_data_is_refused() -> None:
    data = pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"])
    with pytest.raises(SchemaMismatchError, match="Duplicate field name"):
        conform(data)


def test_the_message_names_the_table() -> None:
    with pytest.raises(SchemaMismatchError, match=r"Field x not found in schema.*table sales\.orders"):
        check_schema(pa.schema([("id", pa.int64()), ("x", pa.int64())]), TABLE, table_name="sales.orders")


def test_a_schema_that_gains_nothing_is_the_same_object() -> None:
    data = pa.schema([("id", pa.int8()), ("name", pa.large_string())])
    assert check_schema(data, TABLE) is TABLE
    assert check_schema(data, TABLE, schema_mode="merge") is TABLE


def test_merging_adds_columns_and_fields_at_the_end_all_of_them_nullable() -> None:
    data = pa.schema(
        [
            pa.field("new", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False),
            pa.field("id", pa.int32()),
            pa.field("s", pa.struct([pa.field("c", pa.bool_()), pa.field("a", pa.int32())])),
        ]
    )
    merged = check_schema(data, TABLE, schema_mode="merge")
    assert merged.names == (*TABLE.names, "new")
    new = merged.fields[-1]
    assert new.nullable
    assert isinstance(new.type, StructType)
    assert new.type.fields[0].nullable
    inner = merged.fields[2].type
    assert isinstance(inner, StructType)
    assert inner.names == ("a", "b", "c")
    assert str(merged.fields[0].type) == "long", "data is cast, a column's type never changes"


def test_merging_does_not_widen_a_type() -> None:
    table = arrow_to_schema(pa.schema([("c", pa.int32())]))
    data = pa.table({"c": [2**40]})
    assert check_schema(data.schema, table, schema_mode="merge") is table
    with pytest.raises(SchemaMismatchError, match="the table has integer, the data has int64"):
        conform(data, table)


def test_a_column_without_a_type_takes_that_of_the_data_when_merging() -> None:
    table = arrow_to_schema(pa.schema([("c", pa.null()), ("d", pa.int64())]))
    assert str(check_schema(pa.schema([("c", pa.int64())]), table, schema_mode="merge").fields[0].type) == "long"
