"""Converts Arrow types to Delta types, and to the Arrow schema of a data file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

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
    to_arrow_type,
)

MAX_PRECISION: Final = 38
# Metadata that describes another file or table, not the column.
_FOREIGN_METADATA: Final = ("ARROW:", "PARQUET:", "delta.columnMapping.", "delta.typeChanges", "_PL_")
# Unsigned integers become signed ones of the same width, as in `deltalake`; values that are too large are refused.
_PRIMITIVES: Final[dict[pa.DataType, str]] = {
    pa.int8(): "byte",
    pa.uint8(): "byte",
    pa.int16(): "short",
    pa.uint16(): "short",
    pa.int32(): "integer",
    pa.uint32(): "integer",
    pa.int64(): "long",
    pa.uint64(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "void",
}


def arrow_to_schema(schema: pa.Schema) -> StructType:
    """The Delta schema for data of this Arrow schema; SchemaMismatchError for a column without a Delta type."""
    fields = tuple(_to_field(item, ()) for item in schema)
    refuse_twins(item.name for item in fields)
    return StructType(fields)


def _to_field(item: pa.Field, above: tuple[str, ...]) -> StructField:
    path = (*above, item.name)
    return StructField(item.name, to_delta_type(item.type, path), item.nullable, field_metadata(item.metadata))


def field_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    texts = {key.decode(): value.decode() for key, value in (metadata or {}).items()}
    return {key: value for key, value in texts.items() if not key.startswith(_FOREIGN_METADATA)}


_RUST_NAMES: Final = {
    "string": "Utf8",
    "double": "Float64",
    "float": "Float32",
    "halffloat": "Float16",
    "bool": "Boolean",
    "date32[day]": "Date32",
}


def to_delta_type(arrow: pa.DataType, path: tuple[str, ...]) -> DataType:
    """The Delta type of an Arrow type; `path` names the column in the error message."""
    name = _PRIMITIVES.get(arrow)
    if name is not None:
        return PrimitiveType(name)
    if pt.is_timestamp(arrow):
        return PrimitiveType("timestamp_ntz" if arrow.tz is None else "timestamp")
    if pt.is_decimal(arrow):
        if not 0 <= arrow.scale <= arrow.precision <= MAX_PRECISION:
            raise _no_type(arrow, path, f"a decimal has at most {MAX_PRECISION} digits and no negative scale")
        return DecimalType(arrow.precision, arrow.scale)
    if pt.is_fixed_size_binary(arrow):
        return PrimitiveType("binary")
    if pt.is_dictionary(arrow) or pt.is_run_end_encoded(arrow):
        return to_delta_type(arrow.value_type, path)
    if isinstance(arrow, pa.BaseExtensionType):
        return to_delta_type(arrow.storage_type, path)
    if pt.is_struct(arrow):
        fields = tuple(_to_field(item, path) for item in arrow)
        refuse_twins((item.name for item in fields), path)
        return StructType(fields)
    if pt.is_map(arrow):
        key, value = to_delta_type(arrow.key_type, (*path, "key")), to_delta_type(arrow.item_type, (*path, "value"))
        return MapType(key, value, arrow.item_field.nullable)
    if is_any_list(arrow):
        return ArrayType(to_delta_type(arrow.value_type, (*path, "element")), arrow.value_field.nullable)
    hint = "cast it to a number or a string first" if pt.is_temporal(arrow) else "cast it first"
    raise _no_type(arrow, path, hint)


def check_declared(arrow: pa.DataType, path: tuple[str, ...] = ()) -> None:
    """SchemaMismatchError for a type that data may have, because it is cast, but that a schema cannot declare.

    As in `deltalake`: half floats, seconds, zones other than UTC, and decimals that are not of 128 bits.
    """
    for index in range(arrow.num_fields):
        check_declared(arrow.field(index).type, (*path, arrow.field(index).name))
    undeclared = (
        pt.is_float16(arrow)
        or pt.is_run_end_encoded(arrow)
        or (pt.is_decimal(arrow) and not pt.is_decimal128(arrow))
        or (pt.is_timestamp(arrow) and (arrow.unit == "s" or (arrow.tz or "UTC").upper() != "UTC"))
    )
    if undeclared:
        raise _no_type(arrow, path, "data of this type is cast to the table's as it is written")


def is_any_list(arrow: pa.DataType) -> bool:
    return bool(
        pt.is_list(arrow)
        or pt.is_large_list(arrow)
        or pt.is_fixed_size_list(arrow)
        or pt.is_list_view(arrow)
        or pt.is_large_list_view(arrow)
    )


def _no_type(arrow: pa.DataType, path: tuple[str, ...], hint: str) -> SchemaMismatchError:
    where = f"column {'.'.join(path)!r}: " if any(path) else ""
    return SchemaMismatchError(f"{where}Schema error: Invalid data type for Delta Lake: {rust_name(arrow)}; {hint}")


def rust_name(arrow: pa.DataType) -> str:
    """A type's name in `deltalake`: `Int64`, `Time64(µs)`, `Timestamp(ms, "Europe/Berlin")`, `Decimal256(50, 3)`."""
    if pt.is_list(arrow):
        return f"List({rust_name(arrow.value_type)})"
    if pt.is_float16(arrow):
        return "Float16"
    if pt.is_timestamp(arrow):
        zone = f', "{arrow.tz}"' if arrow.tz else ""
        return f"Timestamp({arrow.unit.replace('us', 'µs')}{zone})"
    text = str(arrow)
    if text in _RUST_NAMES:
        return _RUST_NAMES[text]
    name, bracket, rest = text.partition("[" if "[" in text else "(")
    rust_text = name.capitalize().replace("Uint", "UInt")
    return f"{rust_text}({rest[:-1].replace('us', 'µs')})" if bracket else rust_text


def refuse_twins(names: Iterable[str], above: tuple[str, ...] = ()) -> None:
    """SchemaMismatchError for duplicate names: Delta's column names are unique regardless of case."""
    names_by_folded: dict[str, str] = {}
    for name in names:
        folded = name.casefold()
        if folded in names_by_folded:
            where = f" in {'.'.join(above)!r}" if above else ""
            problem = (
                "is there twice"
                if names_by_folded[folded] == name
                else f"differs from {names_by_folded[folded]!r} only in case"
            )
            raise SchemaMismatchError(
                f"Schema error: Duplicate field name (case-insensitive): '{name}'; column {name!r} {problem}{where}"
            )
        names_by_folded[folded] = name


def file_schema(schema: StructType, partition_columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of a table's data files: physical names and field ids; without partition and void columns."""
    partitions = set(partition_columns)
    return pa.schema([_file_field(item) for item in stored_fields(schema) if item.name not in partitions])


def stored_fields(struct: StructType) -> tuple[StructField, ...]:
    """The fields that have a column in data files: `void` is stored only if a struct has nothing else."""
    return tuple(item for item in struct.fields if item.type != PrimitiveType("void")) or struct.fields


def _file_field(item: StructField) -> pa.Field:
    metadata = None if item.id is None else {b"PARQUET:field_id": str(item.id).encode()}
    return pa.field(item.physical_name, file_type(item.type), nullable=item.nullable, metadata=metadata)


def file_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a column in a data file."""
    match data_type:
        case StructType():
            return pa.struct([_file_field(item) for item in stored_fields(data_type)])
        case ArrayType():
            element = file_type(data_type.element_type)
            return pa.list_(pa.field("element", element, nullable=data_type.contains_null))
        case MapType():
            value = pa.field("value", file_type(data_type.value_type), nullable=data_type.value_contains_null)
            return pa.map_(file_type(data_type.key_type), value)
        case VariantType():
            raise SchemaMismatchError("columns of type variant cannot be written yet")
        case _:
            return to_arrow_type(data_type)
