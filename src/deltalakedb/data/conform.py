"""Fits data to a table's schema: names, types, nullability, and the columns that a merge adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from deltalakedb.data.arrow_types import refuse_twins, stored_fields, to_delta_type
from deltalakedb.data.casting import StructPlan
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.protocol.features import GENERATION_EXPRESSION
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

SchemaMode: TypeAlias = Literal["merge"] | None
Path: TypeAlias = tuple[str, ...]
PREVIEW: Final = 5
"""How many rows that break a rule are shown."""
_MAX_SHOWN: Final = 100


def check_schema(
    arrow: pa.Schema, table: StructType, *, schema_mode: SchemaMode = None, table_name: str = ""
) -> StructType:
    """The schema of the table once this data is written; the same object if nothing is added.

    The table's types never change here: data is cast to them. Values are checked only when they are written.
    """
    try:
        refuse_twins(arrow.names)
        merged = _merge(table, list(arrow), (), adds=schema_mode == "merge")
        StructPlan(arrow.names, arrow.types, merged, ())
    except SchemaMismatchError as error:
        merges = "Schema error: Cannot merge field" if schema_mode == "merge" else "Cannot cast field"
        message = str(error).replace("Cannot cast field", merges)
        raise SchemaMismatchError(f"{message} (table {table_name})" if table_name else message) from None
    return merged


def _merge(table: StructType, data: Iterable[pa.Field], path: Path, *, adds: bool) -> StructType:
    fields = list(table.fields)
    positions = {item.name.casefold(): position for position, item in enumerate(fields)}
    changed = False
    for item in data:
        position = positions.get(item.name.casefold())
        column = (*path, item.name)
        if position is None:
            if not adds:
                raise _extra(table, column)
            if GENERATION_EXPRESSION.encode() in (item.metadata or {}):
                raise SchemaMismatchError(
                    "Schema evolved fields cannot have generated expressions. Recreate the table to achieve this: the "
                    f"rows that are there have no value of the new column {'.'.join(column)!r}; mode='overwrite' with "
                    "schema_mode='overwrite' replaces them"
                )
            fields.append(StructField(item.name, _nullable(to_delta_type(item.type, column)), True))
            changed = True
            continue
        existing = fields[position]
        merged = _merge_type(existing.type, item.type, column, adds=adds)
        if merged is not existing.type:
            fields[position] = replace(existing, type=merged)
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
        is_same = key is mine.key_type and value is mine.value_type
        return mine if is_same else replace(mine, key_type=key, value_type=value)
    if mine == PrimitiveType("void") and adds and not pt.is_null(arrow):
        return to_delta_type(arrow, path)
    return mine


def _nullable(data_type: DataType) -> DataType:
    """The type with all parts nullable, because existing rows do not have them."""
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
    names = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
    return SchemaMismatchError(
        f"Field {'.'.join(path)} not found in schema: the table has {names}; drop it, or write with "
        "schema_mode='merge' to add it"
    )


class Conformer:
    """Converts batches of one Arrow schema to the table's columns: `fields` in the table's order, with file types."""

    def __init__(self, arrow: pa.Schema, table: StructType) -> None:
        check_schema(arrow, table)
        self._plan = StructPlan(arrow.names, arrow.types, table, ())
        self.fields = self._plan.fields
        self._is_plain = self._plan.is_identity
        self._strict = [position for position, item in enumerate(self.fields) if not _accepts_any_null(item)]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        arrays = batch.columns if self._is_plain else self._plan.arrays(batch.columns, batch.num_rows)
        for position in self._strict:
            item = self.fields[position]
            if arrays[position].null_count and not item.nullable:
                message = describe_invalid([item.name for item in self.fields], arrays, arrays[position].is_null())
                raise SchemaMismatchError(f"{message}\ncolumn {item.name!r}: the table does not let it be null")
            _refuse_nulls(arrays[position], item.type, item.nullable, (item.name,))
        return arrays


def describe_invalid(names: Sequence[str], arrays: Sequence[pa.Array], broken: pa.Array) -> str:
    """How many rows a rule refuses, with a preview of the first ones, in `deltalake`'s format."""
    indices = pc.indices_nonzero(broken)
    shown = preview(names, [array.take(indices[:PREVIEW]) for array in arrays])
    return f"Invalid data found: {len(indices)} rows failed validation check.\n{shown}"


def preview(names: Sequence[str], columns_of_rows: Sequence[pa.Array | pa.ChunkedArray]) -> str:
    """Rows that a rule refuses, as a table of texts."""
    columns = [[name, *map(_format_value, array)] for name, array in zip(names, columns_of_rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    edge = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    lines = [
        f"|{'|'.join(f' {text:{width}} ' for text, width in zip(row, widths, strict=True))}|"
        for row in zip(*columns, strict=True)
    ]
    table = "\n".join([edge, lines[0], edge, *lines[1:], edge])
    return f"Preview of invalid data:\n\n{table}"


def _format_value(value: pa.Scalar) -> str:
    text = "" if not value.is_valid else str(value.as_py())
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


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
    """Refuse a null where the schema allows none; values below a null parent are not checked."""
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
