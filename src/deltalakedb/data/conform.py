"""Owns the fit of data to a table's schema: names, types, what may be null, and what a merge adds to the schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from deltalakedb.data.arrow_types import refuse_twins, stored_fields, to_delta_type
from deltalakedb.data.casting import StructPlan
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.feature_use import GENERATION_EXPRESSION
from deltalakedb.log.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

SchemaMode: TypeAlias = Literal["merge"] | None
Path: TypeAlias = tuple[str, ...]


def check_schema(
    arrow: pa.Schema, table: StructType, *, schema_mode: SchemaMode = None, table_name: str = ""
) -> StructType:
    """The schema that the table has once this data is written; the same object when nothing is added to it.

    Types of the table never change here: data is cast to them. Values are looked at only when they are written.
    """
    try:
        refuse_twins(arrow.names)
        merged = _merge(table, list(arrow), (), adds=schema_mode == "merge")
        StructPlan(arrow.names, arrow.types, merged, ())
    except SchemaMismatchError as error:
        raise _named(error, table_name) from None
    return merged


def _named(error: SchemaMismatchError, table_name: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"table {table_name}: {error}") if table_name else error


def _merge(table: StructType, data: Iterable[pa.Field], path: Path, *, adds: bool) -> StructType:
    fields = list(table.fields)
    places = {item.name.casefold(): place for place, item in enumerate(fields)}
    changed = False
    for item in data:
        place = places.get(item.name.casefold())
        here = (*path, item.name)
        if place is None:
            if not adds:
                raise _extra(table, here)
            if GENERATION_EXPRESSION.encode() in (item.metadata or {}):
                raise SchemaMismatchError(
                    f"the new column {'.'.join(here)!r} is generated, and the rows that are there have no value of it; "
                    "replace the table with mode='overwrite' and schema_mode='overwrite'"
                )
            fields.append(StructField(item.name, _nullable(to_delta_type(item.type, here)), True))
            changed = True
            continue
        mine = fields[place]
        merged = _merge_type(mine.type, item.type, here, adds=adds)
        if merged is not mine.type:
            fields[place] = replace(mine, type=merged)
            changed = True
    return StructType(tuple(fields)) if changed else table


def _merge_type(mine: DataType, arrow: pa.DataType, path: Path, *, adds: bool) -> DataType:
    """The table's type, with the fields that structs inside it gain."""
    if isinstance(mine, StructType) and pt.is_struct(arrow):
        refuse_twins((item.name for item in arrow), path)
        return _merge(mine, list(arrow), path, adds=adds)
    if isinstance(mine, ArrayType) and hasattr(arrow, "value_type"):
        element = _merge_type(mine.element_type, arrow.value_type, (*path, "element"), adds=adds)
        return mine if element is mine.element_type else replace(mine, element_type=element)
    if isinstance(mine, MapType) and pt.is_map(arrow):
        key = _merge_type(mine.key_type, arrow.key_type, (*path, "key"), adds=adds)
        value = _merge_type(mine.value_type, arrow.item_type, (*path, "value"), adds=adds)
        same = key is mine.key_type and value is mine.value_type
        return mine if same else replace(mine, key_type=key, value_type=value)
    if mine == PrimitiveType("void") and adds and not pt.is_null(arrow):
        return to_delta_type(arrow, path)
    return mine


def _nullable(data_type: DataType) -> DataType:
    """A type whose parts may all be null: rows written before have none of them."""
    match data_type:
        case StructType():
            fields = (replace(item, type=_nullable(item.type), nullable=True) for item in data_type.fields)
            return StructType(tuple(fields))
        case ArrayType():
            return ArrayType(_nullable(data_type.element_type), data_type.contains_null)
        case MapType():
            value = _nullable(data_type.value_type)
            return MapType(data_type.key_type, value, data_type.value_contains_null)
        case _:
            return data_type


def _extra(table: StructType, path: Path) -> SchemaMismatchError:
    known = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
    return SchemaMismatchError(
        f"column {'.'.join(path)!r} is in the data and not in the table, which has {known}; "
        "drop it, or write with schema_mode='merge' to add it"
    )


class Conformer:
    """Turns batches of one Arrow schema into the table's columns: `fields` in the table's order, types of its files."""

    def __init__(self, arrow: pa.Schema, table: StructType) -> None:
        check_schema(arrow, table)
        self._plan = StructPlan(arrow.names, arrow.types, table, ())
        self.fields = self._plan.fields
        self._strict = [place for place, item in enumerate(self.fields) if not _accepts_any_null(item)]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        arrays = self._plan.arrays(batch.columns, batch.num_rows)
        for place in self._strict:
            item = self.fields[place]
            _refuse_nulls(arrays[place], item.type, item.nullable, (item.name,))
        return arrays


def _accepts_any_null(item: StructField) -> bool:
    return item.nullable and _type_accepts_any_null(item.type)


def _type_accepts_any_null(data_type: DataType) -> bool:
    match data_type:
        case StructType():
            return all(map(_accepts_any_null, data_type.fields))
        case ArrayType():
            return data_type.contains_null and _type_accepts_any_null(data_type.element_type)
        case MapType():
            parts = (data_type.key_type, data_type.value_type)
            return data_type.value_contains_null and all(map(_type_accepts_any_null, parts))
        case _:
            return True


def _refuse_nulls(array: pa.Array, data_type: DataType, nullable: bool, path: Path) -> None:
    """Refuse a null where the schema allows none; what lies below a null parent is not looked at."""
    if array.null_count:
        if not nullable:
            row = pc.index(array.is_null(), pa.scalar(True)).as_py()
            raise SchemaMismatchError(
                f"column {'.'.join(path)!r}: the table does not let it be null, and row {row} of the data is"
            )
        if pt.is_nested(array.type):
            array = array.drop_null()
    match data_type:
        case StructType():
            for item, child in zip(stored_fields(data_type), array.flatten(), strict=True):
                if not _accepts_any_null(item):
                    _refuse_nulls(child, item.type, item.nullable, (*path, item.name))
        case ArrayType():
            _refuse_nulls(array.flatten(), data_type.element_type, data_type.contains_null, (*path, "element"))
        case MapType():
            entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))).flatten()
            keys, values = entries.flatten()
            _refuse_nulls(keys, data_type.key_type, False, (*path, "key"))
            _refuse_nulls(values, data_type.value_type, data_type.value_contains_null, (*path, "value"))
        case _:
            pass
