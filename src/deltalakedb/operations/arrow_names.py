"""Owns the names that Arrow's types have in Rust, which `arrow_typeof` and `describe` show."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

_NAMES: Final = {
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "uint8": "UInt8", "uint16": "UInt16",
    "uint32": "UInt32", "uint64": "UInt64", "float": "Float32", "double": "Float64", "bool": "Boolean",
    "string": "Utf8View", "large_string": "Utf8View", "string_view": "Utf8View", "binary": "BinaryView",
    "large_binary": "BinaryView", "binary_view": "BinaryView", "date32[day]": "Date32", "null": "Null",
}  # fmt: skip
_DESCRIBE: Final = re.compile(r'\s*desc(?:ribe)?\s+(?:table\s+)?(?:"([^"]+)"|(\w+))\s*;?\s*', re.IGNORECASE)


def rust_name(kind: pa.DataType) -> str:
    """A type as Arrow writes it in Rust; texts and bytes of tables are views there, save in maps."""
    if pa.types.is_decimal(kind):
        return f"Decimal128({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        unit = kind.unit.replace("us", "µs")
        return f'Timestamp({unit}, "{kind.tz}")' if kind.tz else f"Timestamp({unit})"
    if pa.types.is_map(kind):
        key, value = rust_name(kind.key_type).removesuffix("View"), _field(kind.item_field).removesuffix("View")
        return f'Map("key_value": non-null Struct("key": non-null {key}, {value}), unsorted)'
    if pa.types.is_list(kind):
        item = kind.value_field
        name = "" if item.name == "item" else f", field: '{item.name}'"
        return f"List({'' if item.nullable else 'non-null '}{rust_name(item.type)}{name})"
    if pa.types.is_struct(kind):
        return f"Struct({', '.join(map(_field, kind))})"
    return _NAMES.get(str(kind), str(kind))


def _field(item: pa.Field) -> str:
    return f'"{item.name}": {"" if item.nullable else "non-null "}{rust_name(item.type)}'


def described_table(sql: str) -> str | None:
    """The table that a statement such as `describe t` asks about; None for any other statement."""
    found = _DESCRIBE.fullmatch(sql)
    return None if found is None else found[1] or found[2].lower()


def describe_columns(schema: pa.Schema) -> pa.Table:
    """What `describe` tells of a table: names, types and whether they may be null."""
    texts = [(item.name, rust_name(item.type), "YES" if item.nullable else "NO") for item in schema]
    names = ("column_name", "data_type", "is_nullable")
    fields = pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])
    return pa.table([[row[place] for row in texts] for place in range(3)], schema=fields)
