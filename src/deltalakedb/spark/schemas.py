"""A table's schema as Spark types: as users see it, and as its data files are read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from pyspark.sql import types as T  # noqa: N812  the usual name

from deltalakedb.log.schema.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

_VOID = PrimitiveType("void")
_FIELD_ID = "parquet.field.id"
Rename: TypeAlias = Callable[[StructField], tuple[str, Mapping[str, Any]]]


def to_spark(schema: StructType) -> T.StructType:
    """The columns as users see them, without Delta's own metadata."""
    return _spark(_rename_fields(without_void(schema), lambda item: (item.name, user_metadata(item))))


def to_physical(schema: StructType, *, with_ids: bool, with_notes: bool = False) -> T.StructType:
    """The columns as in data files: physical names, and ids if they are to be read by or written."""

    def rename(item: StructField) -> tuple[str, Mapping[str, Any]]:
        notes = user_metadata(item) if with_notes else {}
        return item.physical_name, {**notes, _FIELD_ID: item.id} if with_ids and item.id is not None else notes

    return _spark(_rename_fields(without_void(schema), rename))


def user_metadata(item: StructField) -> dict[str, Any]:
    """The metadata of a column that users wrote, such as a comment."""
    internal = ("delta.", "__", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
    return {key: value for key, value in item.metadata.items() if not key.startswith(internal)}


def without_void(schema: StructType) -> StructType:
    """The schema without void columns, which have no data in any file; Spark's Delta leaves them out too."""
    fields = (replace(item, type=_drop_void(item.type)) for item in schema.fields if item.type != _VOID)
    return StructType(tuple(fields))


def _drop_void(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return without_void(data_type)
        case ArrayType():
            return replace(data_type, element_type=_drop_void(data_type.element_type))
        case MapType():
            key, value = (_drop_void(part) for part in (data_type.key_type, data_type.value_type))
            return replace(data_type, key_type=key, value_type=value)
        case _:
            return data_type


def _rename_fields(struct: StructType, rename: Rename) -> StructType:
    fields = []
    for item in struct.fields:
        name, metadata = rename(item)
        fields.append(StructField(name, _rename_type(item.type, rename), item.nullable, metadata))
    return StructType(tuple(fields))


def _rename_type(data_type: DataType, rename: Rename) -> DataType:
    match data_type:
        case StructType():
            return _rename_fields(data_type, rename)
        case ArrayType():
            return replace(data_type, element_type=_rename_type(data_type.element_type, rename))
        case MapType():
            key, value = (_rename_type(part, rename) for part in (data_type.key_type, data_type.value_type))
            return replace(data_type, key_type=key, value_type=value)
        case _:
            return data_type


def _spark(schema: StructType) -> T.StructType:
    return T.StructType.fromJson(json.loads(schema.to_json()))


def quoted(name: str) -> str:
    """A column's name, quoted for Spark's expressions."""
    return f"`{name.replace('`', '``')}`"
