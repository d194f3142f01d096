"""Owns the forms of a schema at the edge: names of types, JSON and Arrow, read into the log's values and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log import types as log
from deltalakedb.log.codec import to_json

_PRIMITIVES: Final = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
        "timestamp_ntz", "void",
    }
)  # fmt: skip
_MAX_DIGITS: Final = 38
_INVARIANTS: Final = "delta.invariants"


def primitive_type(name: str) -> log.DataType:
    """The type of a name; ValueError for a name that is none."""
    if not isinstance(name, str):
        raise TypeError(f"'{type(name).__name__}' object is not an instance of 'str'")
    parsed = log.parse_type(name) if name != "decimal" else None
    if isinstance(parsed, log.DecimalType) and 0 <= parsed.scale <= parsed.precision <= _MAX_DIGITS:
        return parsed
    if isinstance(parsed, log.PrimitiveType) and parsed.name in _PRIMITIVES:
        return parsed
    raise ValueError(f"invalid type string: {name}; a decimal is written decimal(p,s) and has at most 38 digits")


def metadata_value(value: Any) -> Any:
    """Texts and whole numbers stay what they are; anything else becomes its JSON text, as in `deltalake`."""
    return value if isinstance(value, str) or (type(value) is int and abs(value) < 2**63) else to_json(value)


# -- JSON


def type_from_json(text: str) -> log.DataType:
    """A type as the protocol writes it."""
    value = {"name": "", "type": json.loads(text), "nullable": True, "metadata": {}}
    return read_struct({"type": "struct", "fields": [value]}).fields[0].type


def field_from_json(text: str) -> log.StructField:
    """A field as the protocol writes it."""
    return read_struct({"type": "struct", "fields": [json.loads(text)]}).fields[0]


def read_struct(value: Any) -> log.StructType:
    """A struct from parsed JSON; ValueError says what is missing or unknown in it."""
    _check_fields(value)
    try:
        struct = log.type_from_value(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no schema of Delta: {error!r}") from error
    if not isinstance(struct, log.StructType):
        raise TypeError("Type is not a struct")
    for name in _unknown_types(struct):
        raise ValueError(f"Unsupported Delta table type: {name!r}")
    return struct


def _check_fields(value: Any) -> None:
    """The log is read leniently; what a program writes by hand is not."""
    if not isinstance(value, dict):
        return
    if isinstance(value.get("fields"), list):
        for field in value["fields"]:
            for name in ("name", "type", "nullable", "metadata"):
                if isinstance(field, dict) and name not in field:
                    raise ValueError(f"missing field `{name}` in {to_json(field)}")
            _check_fields(field["type"] if isinstance(field, dict) else None)
    needed = {"array": ("elementType", "containsNull"), "map": ("keyType", "valueType", "valueContainsNull")}
    for name in needed.get(str(value.get("type")), ()):
        if name not in value:
            raise ValueError(f"missing field `{name}` in {to_json(value)}")
    for name in ("elementType", "keyType", "valueType"):
        _check_fields(value.get(name))


def _unknown_types(data_type: log.DataType) -> Iterator[str]:
    match data_type:
        case log.StructType():
            for item in data_type.fields:
                yield from _unknown_types(item.type)
        case log.ArrayType():
            yield from _unknown_types(data_type.element_type)
        case log.MapType():
            yield from _unknown_types(data_type.key_type)
            yield from _unknown_types(data_type.value_type)
        case log.PrimitiveType():
            if data_type.name not in _PRIMITIVES:
                yield data_type.name


# -- Arrow


def _capsule(exported: Any) -> Any:
    export = getattr(exported, "__arrow_c_schema__", None)
    if export is None:
        raise ValueError("Expected an object with dunder __arrow_c_schema__")
    return export()


def _arrow_schema(exported: Any) -> pa.Schema:
    if isinstance(exported, pa.Schema):
        return exported
    try:
        return pa.Schema._import_from_c_capsule(_capsule(exported))
    except pa.ArrowInvalid as error:
        raise TypeError(f"no Arrow schema: {error}") from None


def type_from_arrow(exported: Any) -> log.DataType:
    """The Delta type of anything that exports an Arrow type."""
    from deltalakedb.data.arrow_types import to_delta_type  # the data plane is slow to load

    arrow = exported if isinstance(exported, pa.DataType) else pa.DataType._import_from_c_capsule(_capsule(exported))
    return to_delta_type(arrow, ())


def field_from_arrow(exported: Any) -> log.StructField:
    """The Delta field of anything that exports an Arrow field."""
    field = exported if isinstance(exported, pa.Field) else pa.Field._import_from_c_capsule(_capsule(exported))
    return struct_from_arrow(pa.schema([field])).fields[0]


def struct_from_arrow(exported: Any) -> log.StructType:
    """The Delta schema of anything that exports an Arrow schema."""
    from deltalakedb.data.arrow_types import arrow_to_schema

    return arrow_to_schema(_arrow_schema(exported))


def arrow_type(data_type: log.DataType, *, large: bool) -> pa.DataType:
    match data_type:
        case log.StructType():
            return pa.struct([arrow_field(item, large=large) for item in data_type.fields])
        case log.ArrayType():
            element = pa.field(
                "element", arrow_type(data_type.element_type, large=large), nullable=data_type.contains_null
            )
            return pa.large_list(element) if large else pa.list_(element)
        case log.MapType():
            value = arrow_type(data_type.value_type, large=large)
            return pa.map_(
                arrow_type(data_type.key_type, large=large),
                pa.field("value", value, nullable=data_type.value_contains_null),
            )
    plain = log.to_arrow_type(data_type)
    widened = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return widened.get(plain, plain) if large else plain


def arrow_field(item: log.StructField, *, large: bool) -> pa.Field:
    texts = {key: value if isinstance(value, str) else to_json(value) for key, value in item.metadata.items()}
    return pa.field(item.name, arrow_type(item.type, large=large), nullable=item.nullable, metadata=texts or None)


# -- what the fields say


def invariants(data_type: log.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    match data_type:
        case log.StructType():
            for item in data_type.fields:
                here = (*path, item.name)
                text = item.metadata.get(_INVARIANTS)
                if text is not None:
                    yield ".".join(here), _invariant(text, here)
                yield from invariants(item.type, here)
        case log.ArrayType():
            yield from invariants(data_type.element_type, (*path, "element"))
        case log.MapType():
            yield from invariants(data_type.key_type, (*path, "key"))
            yield from invariants(data_type.value_type, (*path, "value"))


def _invariant(text: Any, path: tuple[str, ...]) -> str:
    try:
        sql: str = json.loads(text)["expression"]["expression"]
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLogError(f"the invariant of column {'.'.join(path)} is not readable: {error}") from error
    return sql
