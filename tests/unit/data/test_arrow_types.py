"""Arrow's types as Delta's, and back as the types of a data file."""

import json
import warnings

import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given

from deltalakedb.data.arrow_types import arrow_to_schema, file_schema
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.schema.types import StructType, parse_schema
from tests.data.strategies import any_types, tables


@given(tables(any_types))
def test_the_schema_of_a_tables_arrow_data_is_the_tables(table: tuple[StructType, pa.Table]) -> None:
    schema, data = table
    assert arrow_to_schema(data.schema) == schema
    assert arrow_to_schema(file_schema(schema, ())) == schema


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.decimal128(10, 2), pa.list_(pa.int32()), pa.list_(pa.int32(), 2),
        pa.large_list(pa.int32()), pa.list_view(pa.int32()), pa.timestamp("ms", "UTC"), pa.timestamp("us"),
        pa.date64(), pa.binary(4), pa.large_binary(), pa.binary_view(), pa.null(), pa.map_(pa.string(), pa.int32()),
        pa.struct([pa.field("a", pa.uint8(), False)]), pa.list_(pa.field("element", pa.bool_(), False)),
    ],
    ids=str,
)  # fmt: skip
def test_types_become_what_deltalake_makes_of_them(kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("c", kind)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert json.loads(arrow_to_schema(schema).to_json()) == json.loads(Schema.from_arrow(schema).to_json())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.float16(), "float"),
        (pa.decimal256(38, 3), "decimal(38,3)"),
        (pa.decimal64(10, 3), "decimal(10,3)"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "string"),
        (pa.uuid(), "binary"),
        (pa.json_(), "string"),
    ],
)
def test_types_that_deltalake_refuses_but_that_have_a_home(kind: pa.DataType, name: str) -> None:
    assert str(arrow_to_schema(pa.schema([("c", kind)])).fields[0].type) == name


@pytest.mark.parametrize(
    "kind",
    [pa.time64("us"), pa.duration("us"), pa.month_day_nano_interval(), pa.decimal256(39, 0), pa.decimal128(5, -2)],
    ids=str,
)
def test_a_type_without_a_home_is_refused_with_its_column(kind: pa.DataType) -> None:
    schema = pa.schema([("outer", pa.struct([("inner", pa.list_(kind))]))])
    with pytest.raises(SchemaMismatchError, match=r"'outer\.inner\.element'.*Invalid data type for Delta Lake"):
        arrow_to_schema(schema)


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"], ["straße", "STRASSE"]])
def test_names_that_differ_in_nothing_or_in_case_are_refused(names: list[str]) -> None:
    kinds = [pa.field(name, pa.int64()) for name in names]
    with pytest.raises(SchemaMismatchError, match=f"[Dd]uplicate .*{names[1]}"):
        arrow_to_schema(pa.schema(kinds))
    with pytest.raises(SchemaMismatchError, match="in 's'"):
        arrow_to_schema(pa.schema([("s", pa.struct(kinds))]))


def test_a_columns_own_metadata_is_kept_and_that_of_its_file_is_not() -> None:
    metadata = {"comment": "of the user", "PARQUET:field_id": "7", "delta.columnMapping.physicalName": "col-7"}
    schema = arrow_to_schema(pa.schema([pa.field("c", pa.int64(), metadata=metadata)]))
    assert schema.fields[0].metadata == {"comment": "of the user"}


def test_a_data_file_has_physical_names_and_field_ids_at_every_depth() -> None:
    def field(name: str, kind: object, number: int) -> dict[str, object]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    inner = {"type": "struct", "fields": [field("x", "long", 3)]}
    items = {"type": "array", "elementType": inner, "containsNull": True}
    fields = [field("p", "string", 1), field("items", items, 2), field("nothing", "void", 4)]
    schema = file_schema(parse_schema(json.dumps({"type": "struct", "fields": fields})), ["p"])
    assert schema.names == ["col-2"], "no partition column, nothing void"
    assert schema.field(0).metadata == {b"PARQUET:field_id": b"2"}
    element = schema.field(0).type.value_type
    assert (element.field(0).name, element.field(0).metadata) == ("col-3", {b"PARQUET:field_id": b"3"})
