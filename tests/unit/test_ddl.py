"""Schemas as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("id long", "struct<id:long>"),
        ("id BIGINT, n Int, s smallint, t tinyint", "struct<id:long,n:integer,s:short,t:byte>"),
        ("a varchar, b text, c bool, d real", "struct<a:string,b:string,c:boolean,d:float>"),
        ("a decimal, b decimal(5), c numeric( 10 , 2 )", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(10,2)>"),
        ("a array<map<string,long>>", "struct<a:array<map<string,long>>>"),
        ("a struct<x: long, y string>, v variant", "struct<a:struct<x:long,y:string>,v:variant>"),
        ("`we ird``name` date,", "struct<we ird`name:date>"),
        ("date date, array array<long>, `not` long", "struct<date:date,array:array<long>,not:long>"),
        ("a timestamp_ntz\n, b timestamp", "struct<a:timestamp_ntz,b:timestamp>"),
    ],
)
def test_a_schema_is_read_as_it_is_typed(text: str, shown: str) -> None:
    assert str(parse_ddl(text)) == shown


def test_columns_are_nullable_unless_said_otherwise() -> None:
    schema = parse_ddl("a long not null, b long, s struct<c: long NOT NULL>")
    assert [item.nullable for item in schema.fields] == [False, True, True]
    inner = schema.fields[2].type
    assert isinstance(inner, StructType)
    assert not inner.fields[0].nullable


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "character 1 no column"),
        ("id", "character 3 the end, where a type belongs"),
        ("id lonk", "character 4 the type 'lonk'"),
        ("id long not", "`not` without `null`"),
        ("a long b long", "character 8 'b' where ',' belongs"),
        ("`open long", "a quote that does not end"),
        ("a array<long", "the end where '>' belongs"),
        ("a map<long>", "where ',' belongs"),
        ("a decimal(x)", "'x' where a number belongs"),
        ("a decimal(39,1)", "at most 38 digits"),
        ("a decimal(3,4)", "decimal\\(3,4\\)"),
        (", a long", "',' where a column's name belongs"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, match: str) -> None:
    with pytest.raises(SchemaMismatchError, match=match):
        parse_ddl(text)


def types() -> st.SearchStrategy[DataType]:
    primitives = [PrimitiveType(name) for name in ("string", "long", "integer", "date", "timestamp", "timestamp_ntz")]
    leaves: st.SearchStrategy[DataType] = st.one_of(
        st.sampled_from(primitives),
        st.just(VariantType()),
        st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(ArrayType),
            st.builds(MapType, inner, inner),
            st.lists(st.builds(StructField, st.sampled_from(["a", "b c", "d`e"]), inner), min_size=1, max_size=3).map(
                lambda fields: StructType(tuple(fields))
            ),
        ),
        max_leaves=6,
    )


def spelled(kind: DataType) -> str:
    match kind:
        case StructType():
            parts = (f"`{item.name.replace('`', '``')}`: {spelled(item.type)}" for item in kind.fields)
            return f"struct<{', '.join(parts)}>"
        case ArrayType():
            return f"array<{spelled(kind.element_type)}>"
        case MapType():
            return f"map<{spelled(kind.key_type)}, {spelled(kind.value_type)}>"
        case _:
            return str(kind)


@given(types())
def test_every_type_survives_being_spelled(kind: DataType) -> None:
    assert parse_ddl(f"c {spelled(kind)}") == StructType((StructField("c", kind),))


@given(st.text(alphabet="ab`<>(),: not\n", max_size=30))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        assert parse_ddl(text).fields
    except SchemaMismatchError as error:
        assert "character" in str(error)  # noqa: PT017  either outcome is fine
