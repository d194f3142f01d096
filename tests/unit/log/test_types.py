"""The table schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import DeltaProtocolError, MalformedLogError
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    TypeChange,
    VariantType,
    leaf_columns,
    parse_schema,
)

names = st.text(min_size=1, max_size=5)
primitives: st.SearchStrategy[DataType] = st.sampled_from(
    [PrimitiveType(name) for name in ("string", "long", "integer", "short", "byte", "float", "double", "boolean")]
    + [PrimitiveType(name) for name in ("binary", "date", "timestamp", "timestamp_ntz", "void", "of the future")]
    + [DecimalType(38, 18), DecimalType(5, 0), VariantType()]
)


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(ArrayType, inner, st.booleans()) | st.builds(MapType, inner, inner, st.booleans()) | structs(inner)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    metadata = st.dictionaries(names, st.integers() | names, max_size=2)
    fields = st.builds(StructField, names, inner, st.booleans(), metadata)
    return st.lists(fields, max_size=3).map(lambda items: StructType(tuple(items)))


schemas = structs(st.recursive(primitives, _nested, max_leaves=5))


def field(name: str, type_: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@given(schemas)
def test_a_schema_survives_json(schema: StructType) -> None:
    assert parse_schema(schema.to_json()) == schema


def test_leaves_have_logical_and_physical_paths() -> None:
    schema = parse_schema(
        json.dumps(
            struct(
                field("a", "long", **{"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}),
                field(
                    "s",
                    struct(field("x", "decimal(10,2)"), field("y", "date")),
                    **{"delta.columnMapping.physicalName": "col-2"},
                ),
                field("l", {"type": "array", "elementType": "string", "containsNull": True}),
            )
        )
    )
    assert [(leaf.name, leaf.physical_path, str(leaf.type)) for leaf in leaf_columns(schema)] == [
        ("a", ("col-1",), "long"),
        ("s.x", ("col-2", "x"), "decimal(10,2)"),
        ("s.y", ("col-2", "y"), "date"),
        ("l", ("l",), "array<string>"),
    ]
    assert schema.fields[0].id == 1
    assert schema.fields[2].id is None


def test_a_leaf_below_a_nullable_struct_is_nullable() -> None:
    inner = StructType((StructField("x", PrimitiveType("long"), nullable=False),))
    schema = StructType((StructField("s", inner, nullable=True), StructField("t", inner, nullable=False)))
    assert [leaf.nullable for leaf in leaf_columns(schema)] == [True, False]


def test_fields_are_found_without_regard_to_case() -> None:
    schema = StructType((StructField("A", PrimitiveType("long")), StructField("a", PrimitiveType("string"))))
    assert schema.field("a") == schema.fields[1]
    assert StructType(schema.fields[:1]).field("a") == schema.fields[0]
    assert schema.field("b") is None


def test_type_changes_and_collations_are_known() -> None:
    changes = [
        {"fromType": "integer", "toType": "long"},
        {"fromType": "short", "toType": "integer", "fieldPath": "element"},
    ]
    item = parse_schema(json.dumps(struct(field("a", "long", **{"delta.typeChanges": changes})))).fields[0]
    assert item.type_changes == (TypeChange("integer", "long"), TypeChange("short", "integer", "element"))
    assert not item.has_collation
    assert StructField("s", PrimitiveType("string"), True, {"__COLLATIONS": {"s": "ICU.x"}}).has_collation


def test_every_type_has_an_arrow_type() -> None:
    kinds = ["string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"]
    kinds += ["timestamp_ntz", "void", "decimal(20,3)", "decimal", "variant"]
    schema = parse_schema(json.dumps(struct(*(field(f"c{i}", kind) for i, kind in enumerate(kinds)))))
    arrow = schema.to_arrow()
    assert arrow.field("c10").type == pa.timestamp("us", "UTC")
    assert arrow.field("c11").type == pa.timestamp("us")
    assert arrow.field("c13").type == pa.decimal128(20, 3)
    assert arrow.field("c14").type == pa.decimal128(10, 0)
    nested = MapType(
        PrimitiveType("string"), ArrayType(StructType((StructField("x", PrimitiveType("date")),)), False), True
    )
    arrow = StructType((StructField("m", nested),)).to_arrow()
    assert arrow.field("m").type.item_type.value_type.field("x").type == pa.date32()
    assert not arrow.field("m").type.item_type.value_field.nullable


def test_an_unknown_type_is_kept_and_refused_only_where_it_must_be_understood() -> None:
    schema = parse_schema(json.dumps(struct(field("g", "geometry(4326)"))))
    assert str(schema.fields[0].type) == "geometry(4326)"
    with pytest.raises(DeltaProtocolError, match=r"geometry\(4326\)"):
        schema.to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"long"',
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"name":1,"type":"long"}]}',
        "null",
        '{"type":"set"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(MalformedLogError, match="schemaString"):
        parse_schema(text)
