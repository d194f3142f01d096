"""Schema, Field and column types, with the interface of `deltalake.schema`."""

from deltalakedb.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    VariantType,
    to_public,
    to_struct,
    to_struct_field,
)

__all__ = [
    "ArrayType",
    "DataType",
    "Field",
    "MapType",
    "PrimitiveType",
    "Schema",
    "StructType",
    "VariantType",
    "to_public",
    "to_struct",
    "to_struct_field",
]
