"""Schema, Field and the types: the same constructors, texts, JSON, Arrow and errors as in `deltalake`."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import deltalake.schema
import pyarrow as pa
import pytest

import deltalakedb.schema
from deltalakedb.exceptions import SchemaMismatchError
from tests.api.both import Both

INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "x > 2"}})}
ARRAY = '{"type":"array","elementType":"integer","containsNull":true}'
FIELD = '{"name":"x","type":%s,"nullable":true,"metadata":{"z":{"deep":[1,true,null]}}}'

VALUES = [
    'm.PrimitiveType("integer")', 'm.PrimitiveType("decimal(10, 2)")', 'm.PrimitiveType("void").type',
    'm.PrimitiveType("decimal(5,2)").to_json()', """m.PrimitiveType.from_json('"integer"')""",
    "m.PrimitiveType.from_arrow(pa.uint32())", "m.PrimitiveType.from_arrow(pa.large_string())",
    'm.PrimitiveType("integer") == m.PrimitiveType("integer")', 'm.PrimitiveType("integer") == "integer"',
    'm.ArrayType("integer", False)', 'm.ArrayType(m.PrimitiveType("long"), contains_null=False).to_json()',
    'm.ArrayType("integer").element_type', 'm.ArrayType("integer").type', "m.ArrayType.from_json(ARRAY)",
    "m.ArrayType.from_arrow(pa.list_(pa.int32(), 3))", 'm.ArrayType("integer") == m.PrimitiveType("integer")',
    'm.MapType("integer", "string", value_contains_null=False)', 'm.MapType("integer", "string").to_json()',
    'm.MapType("integer", "string").key_type', "m.MapType.from_arrow(pa.map_(pa.int32(), pa.string()))",
    'm.MapType("integer", "string") == m.MapType("integer", "string", False)',
    'm.StructType([m.Field("x", "integer"), m.Field("y", "string", nullable=False, metadata={"a": 1})])',
    'm.StructType([m.Field("x", "integer")]).to_json()', 'm.StructType([m.Field("x", "integer")]).type',
    'm.StructType.from_arrow(pa.struct([("x", pa.int32())])).fields',
    'm.Field("x", "integer", False)', 'm.Field("x", m.ArrayType("integer")).to_json()',
    'sorted(m.Field("x", "long", metadata={"a": {"b": 2}, "c": True, "d": 1, "e": 1.5, "f": None}).metadata.items())',
    """m.Field.from_json(FIELD % '"long"').metadata""", "m.Field.from_json(FIELD % ARRAY).type",
    'm.Field.from_arrow(pa.field("x", pa.int32(), nullable=False, metadata={"a": "b"}))',
    'm.Field("x", "integer") == m.Field("x", "integer", metadata={"a": 1})',
    'm.Field("x", m.StructType([m.Field("y", "integer")])).type.fields',
    "m.VariantType()", "m.VariantType().to_json()", """m.VariantType.from_json('"variant"')""",
    'm.Schema([m.Field("x", "integer")])', "m.Schema([])", 'str(m.Schema([m.Field("x", "integer")]))',
    'm.Schema([m.Field("x", "integer")]).json()', 'm.Schema([m.Field("x", "integer")]).to_json()',
    'm.Schema([m.Field("x", "integer", metadata=INVARIANT)]).invariants',
    'm.Schema([m.Field("s", m.StructType([m.Field("x", "integer", metadata=INVARIANT)]))]).invariants',
    'm.Schema([m.Field("s", m.ArrayType(m.StructType([m.Field("x", "long", metadata=INVARIANT)])))]).invariants',
    'm.Schema.from_arrow(pa.schema([("x", pa.int32()), ("y", pa.dictionary(pa.int8(), pa.string()))]))',
    'm.Schema.from_arrow(pa.struct([("x", pa.int32())]))',
    """m.Schema.from_json('{"type":"struct","fields":[]}')""",
    'm.Schema([m.Field("x", "integer")]) == m.StructType([m.Field("x", "integer")])',
    'm.Schema([m.Field("x", "integer")]) != m.Schema([m.Field("y", "integer")])',
    "isinstance(m.Schema([]), m.StructType)",
]  # fmt: skip

ARROW = [
    'm.PrimitiveType("timestamp")', 'm.PrimitiveType("decimal(10,2)")', 'm.ArrayType("integer", False)',
    'm.MapType("integer", "string", False)', 'm.StructType([m.Field("x", "integer")])', "m.VariantType()",
]  # fmt: skip

ERRORS = [
    'm.PrimitiveType("int")', 'm.PrimitiveType("decimal(40,2)")', 'm.PrimitiveType("decimal")',
    'm.PrimitiveType("variant")', "m.PrimitiveType(5)", 'm.PrimitiveType.from_json("integer")',
    "m.PrimitiveType.from_json(ARRAY)", "m.PrimitiveType.from_arrow(pa.list_(pa.int32()))",
    "m.PrimitiveType.from_arrow(pa.duration('s'))", "m.PrimitiveType.from_arrow(5)", 'm.ArrayType("nope")',
    """m.ArrayType.from_json('"integer"')""", "m.MapType.from_arrow(pa.int32())", "m.StructType([1])",
    "m.StructType.from_arrow(pa.int32())", "m.StructType.from_json('{')", """m.Schema.from_json('"integer"')""",
    """m.StructType.from_json('{"type":"struct","fields":[{"name":"x","type":"integer","nullable":true}]}')""",
    """m.Field.from_json('{"name":"x","type":"nope","nullable":true,"metadata":{}}')""",
    'm.Field("x", "nope")', 'm.Field("x", 5)', 'm.Field("x", "variant")', """m.VariantType.from_json('"integer"')""",
    "m.VariantType.from_arrow(pa.int32())", 'm.Schema("a")', "m.Schema.from_arrow(7)",
    'm.Schema([m.Field("x", "integer"), m.Field("X", "integer")])', 'hash(m.PrimitiveType("integer"))',
    "hash(m.Schema([]))", 'm.Schema([m.Field("x", "integer", metadata={"delta.invariants": "nope"})]).invariants',
    'setattr(m.Field("x", "integer"), "name", "y")',
]  # fmt: skip


def evaluate(text: str, module: ModuleType) -> Any:
    names = {"m": module, "pa": pa, "ARRAY": ARRAY, "FIELD": FIELD, "INVARIANT": INVARIANT}
    return eval(text, names)


@pytest.mark.filterwarnings("ignore:.*json:DeprecationWarning")
@pytest.mark.parametrize("text", VALUES)
def test_a_schema_says_what_it_says_in_deltalake(text: str) -> None:
    ours, theirs = evaluate(text, deltalakedb.schema), evaluate(text, deltalake.schema)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("text", ARROW)
def test_types_have_the_same_form_in_arrow(text: str) -> None:
    ours, theirs = evaluate(text, deltalakedb.schema), evaluate(text, deltalake.schema)
    assert ours.to_arrow() == theirs.to_arrow()
    assert pa.field(ours).type == pa.field(theirs).type
    field = pa.field(deltalakedb.schema.Field("x", ours, metadata={"a": "b", "n": 3}))
    assert field.equals(pa.field(deltalake.schema.Field("x", theirs, metadata={"a": "b", "n": 3})), check_metadata=True)


@pytest.mark.parametrize("large", [False, True])
def test_schemas_have_the_same_form_in_arrow(large: bool) -> None:
    def made(m: Any) -> Any:
        return m.Schema(
            [
                m.Field("text", "string", metadata={"comment": "words", "level": 2}),
                m.Field("parts", m.ArrayType("binary", False), nullable=False),
                m.Field("by_name", m.MapType("string", m.StructType([m.Field("x", "string")]))),
            ]
        )

    ours, theirs = (made(m).to_arrow(as_large_types=large) for m in (deltalakedb.schema, deltalake.schema))
    assert pa.schema(ours).equals(pa.schema(theirs), check_metadata=True)
    assert pa.schema(made(deltalakedb.schema)).equals(pa.schema(made(deltalake.schema)), check_metadata=True)


@pytest.mark.parametrize("text", ERRORS)
def test_what_deltalake_refuses_is_refused_with_its_error(text: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whatever it raises
        evaluate(text, deltalake.schema)
    with pytest.raises(Exception) as ours:  # noqa: PT011
        evaluate(text, deltalakedb.schema)
    assert theirs.type.__name__ in [kind.__name__ for kind in ours.type.__mro__]


def test_two_fields_of_one_name_are_refused_in_a_struct_too() -> None:
    fields = [deltalakedb.schema.Field("x", "long"), deltalakedb.schema.Field("X", "long")]
    with pytest.raises(SchemaMismatchError, match="Duplicate field name"):
        deltalakedb.schema.StructType(fields)


def test_a_schema_of_either_library_and_of_arrow_means_the_same_columns() -> None:
    text = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{"a":true}}]}'
    ours, theirs = deltalakedb.schema.Schema.from_json(text), deltalake.schema.Schema.from_json(text)
    assert deltalakedb.schema.to_struct(theirs) == deltalakedb.schema.to_struct(ours)
    assert deltalakedb.schema.to_struct(pa.schema([("x", pa.int64())])).names == ("x",)
    (field,) = theirs.fields
    assert deltalakedb.schema.to_struct_field(field) == deltalakedb.schema.to_struct(ours).fields[0]


def test_a_table_returns_such_a_schema(anywhere: Both) -> None:
    anywhere.seed({"id": [1], "s": [{"x": "a"}]})
    schema = anywhere.ours.table().schema()
    assert isinstance(schema, deltalakedb.Schema)
    assert repr(schema) == repr(anywhere.theirs.table().schema())
    anywhere.same_schema()
