"""Fits a DataFrame to a table: the resulting schema of the table, and the columns as its files store them.

Names are matched regardless of case, missing columns are null, types are assigned as by Spark's `INSERT` (ANSI store
assignment: numbers to numbers, anything simple to text), and a value that does not fit fails the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F  # noqa: N812  the usual name
from pyspark.sql import types as T  # noqa: N812  the usual name

from deltalakedb.data.arrow_types import refuse_twins, stored_fields
from deltalakedb.data.casting import mismatch
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
    parse_schema,
)
from deltalakedb.spark.schemas import quoted, to_physical, to_spark, user_metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Path: TypeAlias = tuple[str, ...]
_VOID: Final = PrimitiveType("void")
_SIZES: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_FLOATS: Final = ("float", "double")
_MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
_KNOWN: Final = frozenset({*_SIZES, *_FLOATS, *_MOMENTS, "string", "boolean", "binary", "void"})


def schema_of(frame: DataFrame) -> StructType:
    """A DataFrame's columns in Delta's types; SchemaMismatchError names a column whose type no table can have."""
    schema = parse_schema(json.dumps(frame.schema.jsonValue()))
    _check_types(schema, ())
    return schema


def _check_types(data_type: DataType, path: Path) -> None:
    match data_type:
        case StructType():
            refuse_twins((item.name for item in data_type.fields), path)
            for item in data_type.fields:
                _check_types(item.type, (*path, item.name))
        case ArrayType():
            _check_types(data_type.element_type, (*path, "element"))
        case MapType():
            _check_types(data_type.key_type, (*path, "key"))
            _check_types(data_type.value_type, (*path, "value"))
        case PrimitiveType() if data_type.name not in _KNOWN:
            raise SchemaMismatchError(
                f"column {'.'.join(path)!r}: Spark's {data_type} is no type of Delta; cast it to another one first"
            )


def new_schema(data: StructType) -> StructType:
    """The schema of a table created for such data: every column is nullable, as in Spark's Delta."""
    for item in data.fields:
        if item.type == _VOID:
            raise SchemaMismatchError(f"column {item.name!r} has no type: all of it is null; cast it to a type first")
    return _to_nullable(data)


def _to_nullable(struct: StructType) -> StructType:
    fields = (StructField(i.name, _to_nullable_type(i.type), True, user_metadata(i)) for i in struct.fields)
    return StructType(tuple(fields))


def _to_nullable_type(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return _to_nullable(data_type)
        case ArrayType():
            return ArrayType(_to_nullable_type(data_type.element_type))
        case MapType():
            return MapType(_to_nullable_type(data_type.key_type), _to_nullable_type(data_type.value_type))
        case _:
            return data_type


# ---- the schema


def merged_schema(table: StructType, data: StructType, *, adds: bool) -> StructType:
    """The table's schema with such data, the same object if unchanged; SchemaMismatchError if it does not fit."""
    merged = _merge(table, data, (), adds=adds)
    _check_assignable(data, merged, ())
    return merged


def _merge(table: StructType, data: StructType, path: Path, *, adds: bool) -> StructType:
    fields = list(table.fields)
    places = {item.name.casefold(): place for place, item in enumerate(fields)}
    changed = False
    for item in data.fields:
        place, item_path = places.get(item.name.casefold()), (*path, item.name)
        if place is None:
            if not adds:
                raise _extra(table, item_path)
            if item.type != _VOID:
                fields.append(_to_nullable(StructType((item,))).fields[0])
                changed = True
            continue
        merged = _merge_type(fields[place].type, item.type, item_path, adds=adds)
        if merged is not fields[place].type:
            fields[place] = replace(fields[place], type=merged)
            changed = True
    return StructType(tuple(fields)) if changed else table


def _merge_type(mine: DataType, theirs: DataType, path: Path, *, adds: bool) -> DataType:
    match mine, theirs:
        case StructType(), StructType():
            return _merge(mine, theirs, path, adds=adds)
        case ArrayType(), ArrayType():
            element = _merge_type(mine.element_type, theirs.element_type, (*path, "element"), adds=adds)
            return mine if element is mine.element_type else replace(mine, element_type=element)
        case MapType(), MapType():
            key = _merge_type(mine.key_type, theirs.key_type, (*path, "key"), adds=adds)
            value = _merge_type(mine.value_type, theirs.value_type, (*path, "value"), adds=adds)
            same = key is mine.key_type and value is mine.value_type
            return mine if same else replace(mine, key_type=key, value_type=value)
    return _to_nullable_type(theirs) if mine == _VOID and adds and theirs != _VOID else mine


def _extra(table: StructType, path: Path) -> SchemaMismatchError:
    names = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
    return SchemaMismatchError(
        f"column {'.'.join(path)!r} is in the data and not in the table, which has {names}; "
        "drop it, or write with merge_schema=True to add it"
    )


def _check_assignable(have: DataType, want: DataType, path: Path) -> None:
    match have, want:
        case StructType(), StructType():
            fields_by_name = {item.name.casefold(): item for item in have.fields}
            for item in stored_fields(want):
                field = fields_by_name.get(item.name.casefold())
                if field is not None:
                    _check_assignable(field.type, item.type, (*path, item.name))
                elif not item.nullable:
                    raise SchemaMismatchError(
                        f"column {'.'.join((*path, item.name))!r} is not in the data, and the table does not let it be "
                        f"null ({item.type})"
                    )
        case ArrayType(), ArrayType():
            _check_assignable(have.element_type, want.element_type, (*path, "element"))
        case MapType(), MapType():
            _check_assignable(have.key_type, want.key_type, (*path, "key"))
            _check_assignable(have.value_type, want.value_type, (*path, "value"))
        case _ if not _assignable(have, want):
            raise mismatch(path, want, have, "cast it first")


def _assignable(have: DataType, want: DataType) -> bool:
    if have in (want, _VOID):
        return True
    simple = isinstance(have, PrimitiveType | DecimalType) and isinstance(want, PrimitiveType | DecimalType)
    if not simple:
        return False
    both = (str(have), str(want))
    return str(want) == "string" or all(map(_is_number, (have, want))) or all(name in _MOMENTS for name in both)


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in _SIZES or str(data_type) in _FLOATS


# ---- the columns


def columns_of(data: StructType, table: StructType) -> dict[str, Column]:
    """The table's stored columns, by logical name, as expressions over a DataFrame's columns."""
    fields_by_name = {item.name.casefold(): item for item in data.fields}
    spark_types = {item.name: item.dataType for item in to_spark(table).fields}
    columns = {}
    for item in stored_fields(table):
        field = fields_by_name.get(item.name.casefold())
        if field is None:
            columns[item.name] = F.lit(None).cast(spark_types[item.name])
        else:
            source = F.col(quoted(field.name))
            columns[item.name] = _column(source, field.type, field.nullable, item.type, item.nullable, (item.name,))
    return columns


def stored_columns(columns: Mapping[str, Column], table: StructType) -> list[Column]:
    """Columns with the physical names, also of nested fields, and the ids of the table's data files."""
    physical = {item.name: item for item in to_physical(table, with_ids=True).fields}
    stored = []
    for item in stored_fields(table):
        if item.name in columns:
            column, spark_field = columns[item.name], physical[item.physical_name]
            if _is_mapped(item.type):
                column = column.cast(spark_field.dataType)
            metadata: dict[str, Any] = spark_field.metadata or {}
            stored.append(
                column.alias(spark_field.name, metadata=metadata) if metadata else column.alias(spark_field.name)
            )
    return stored


def _is_mapped(data_type: DataType) -> bool:
    """Whether names inside a column differ, or ids must be written."""
    match data_type:
        case StructType():
            return any(item.id is not None or _is_mapped(item.type) for item in data_type.fields)
        case ArrayType():
            return _is_mapped(data_type.element_type)
        case MapType():
            return _is_mapped(data_type.key_type) or _is_mapped(data_type.value_type)
        case _:
            return False


def _column(source: Column, have: DataType, may_be_null: bool, want: DataType, nullable: bool, path: Path) -> Column:
    column = _convert(source, have, want, path)
    if nullable or not may_be_null:
        return column
    message = f"column {'.'.join(path)!r}: the table does not let it be null, and a row of the data is"
    return F.coalesce(column, F.raise_error(F.lit(message)).cast(_spark_type(want)))


def _convert(source: Column, have: DataType, want: DataType, path: Path) -> Column:
    if _is_as_wanted(have, want):
        return source
    match have, want:
        case StructType(), StructType():
            return _build_struct(source, have, want, path)
        case ArrayType(), ArrayType():
            return F.transform(
                source,
                lambda one: _column(
                    one,
                    have.element_type,
                    have.contains_null,
                    want.element_type,
                    want.contains_null,
                    (*path, "element"),
                ),
            )
        case MapType(), MapType():
            return F.map_from_entries(
                F.transform(F.map_entries(source), lambda one: _build_entry(one, have, want, path))
            )
    return _cast(source, have, want, path)


def _is_as_wanted(have: DataType, want: DataType) -> bool:
    """Whether no conversion is needed: same names in the same order, same types, no null where none is allowed."""
    match have, want:
        case StructType(), StructType():
            fields = stored_fields(want)
            return len(have.fields) == len(fields) and all(
                data.name == item.name and (item.nullable or not data.nullable) and _is_as_wanted(data.type, item.type)
                for data, item in zip(have.fields, fields, strict=True)
            )
        case ArrayType(), ArrayType():
            allowed = want.contains_null or not have.contains_null
            return allowed and _is_as_wanted(have.element_type, want.element_type)
        case MapType(), MapType():
            allowed = want.value_contains_null or not have.value_contains_null
            parts = ((have.key_type, want.key_type), (have.value_type, want.value_type))
            return allowed and all(_is_as_wanted(data, other) for data, other in parts)
        case _:
            return have == want


def _build_struct(source: Column, have: StructType, want: StructType, path: Path) -> Column:
    fields_by_name = {item.name.casefold(): item for item in have.fields}
    parts = []
    for item in stored_fields(want):
        field = fields_by_name.get(item.name.casefold())
        item_path = (*path, item.name)
        if field is None:
            part = F.lit(None).cast(_spark_type(item.type))
        else:
            part = _column(source.getField(field.name), field.type, field.nullable, item.type, item.nullable, item_path)
        parts.append(part.alias(item.name))
    return F.when(source.isNotNull(), F.struct(*parts))


def _build_entry(entry: Column, have: MapType, want: MapType, path: Path) -> Column:
    key = _convert(entry["key"], have.key_type, want.key_type, (*path, "key"))
    value = _column(
        entry["value"],
        have.value_type,
        have.value_contains_null,
        want.value_type,
        want.value_contains_null,
        (*path, "value"),
    )
    return F.struct(key.alias("key"), value.alias("value"))


def _cast(source: Column, have: DataType, want: DataType, path: Path) -> Column:
    target = _spark_type(want)
    if have == _VOID or not _may_overflow(have, want):
        return source.cast(target)
    # Independent of the session: without ANSI mode a plain cast would wrap around.
    message = F.concat(
        F.lit(f"column {'.'.join(path)!r}: the table has {want}, and a value of the data does not fit: "),
        source.cast("string"),
    )
    return F.when(source.isNotNull(), F.coalesce(source.try_cast(target), F.raise_error(message).cast(target)))


def _may_overflow(have: DataType, want: DataType) -> bool:
    if not (_is_number(have) and _is_number(want)) or str(want) in _FLOATS:
        return False
    if str(have) in _FLOATS:
        return True
    digits = have.precision - have.scale if isinstance(have, DecimalType) else _SIZES[str(have)]
    if isinstance(want, DecimalType):
        return digits > want.precision - want.scale
    return isinstance(have, DecimalType) or digits > _SIZES[str(want)]


def _spark_type(data_type: DataType) -> T.DataType:
    if isinstance(data_type, VariantType):
        return T.VariantType()
    return to_spark(StructType((StructField("it", data_type),))).fields[0].dataType
