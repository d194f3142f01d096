"""Converts schemas between type names, JSON, Arrow and the log's types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.schema import types as log
from deltalakedb.runtime.arguments import check_text

_PRIMITIVES: Final = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
        "timestamp_ntz", "void",
    }
)  # fmt: skip
_MAX_DIGITS: Final = 38
_INVARIANTS: Final = "delta.invariants"


def primitive_type(name: str) -> log.DataType:
    """Return the type of this name; ValueError if there is none."""
    check_text(name, required=True)
    parsed = log.parse_type(name) if name != "decimal" else None
    if isinstance(parsed, log.DecimalType) and _is_decimal(parsed):
        return parsed
    if isinstance(parsed, log.PrimitiveType) and parsed.name in _PRIMITIVES:
        return parsed
    hint = ", precision/scale can't be larger than 38" if name.startswith("decimal") else ""
    raise ValueError(f"invalid type string: {name}{hint}")


def _is_decimal(kind: log.DecimalType) -> bool:
    return 0 < kind.precision <= _MAX_DIGITS and 0 <= kind.scale <= kind.precision


def metadata_value(value: Any) -> Any:
    """Return a field's metadata value: strings and integers unchanged, others as JSON text, as `deltalake` does."""
    return value if isinstance(value, str) or (type(value) is int and abs(value) < 2**63) else to_json(value)


# -- JSON


def type_from_json(text: str) -> log.DataType:
    """Parse a type in the protocol's JSON."""
    check_text(text, required=True)
    value = {"name": "", "type": _load(text), "nullable": True, "metadata": {}}
    return read_struct({"type": "struct", "fields": [value]}).fields[0].type


def field_from_json(text: str) -> log.StructField:
    """Parse a field in the protocol's JSON."""
    check_text(text, required=True)
    return read_struct({"type": "struct", "fields": [_load(text)]}).fields[0]


def _load(text: str) -> Any:
    """Parse JSON; ValueError with `deltalake`'s message."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply: recursion limit exceeded") from None
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(text.rstrip())
        message = "EOF while parsing a value" if at_end else "expected value"
        message = {"Extra data": "trailing characters"}.get(error.msg, message)
        if error.msg.startswith("Unterminated string"):
            message = "EOF while parsing a string"
        raise ValueError(f"{message} at line {error.lineno} column {error.colno - at_end}: {error.msg}") from None


def read_struct(value: Any) -> log.StructType:
    """Parse a struct from a JSON value; ValueError says what is missing or unknown in it."""
    _check_type(value)
    struct = log.type_from_value(value)
    if not isinstance(struct, log.StructType):
        raise TypeError("Type is not a struct")
    return struct


def _check_type(value: Any) -> None:
    """Raise ValueError for an invalid type. The log is parsed leniently; JSON from a program is not."""
    if isinstance(value, str):
        _check_name(value)
        return
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ValueError(f"Invalid data type: {to_json(value)}")
    required_fields = {"struct": ("fields",), "array": ("elementType", "containsNull"), "map": ("keyType", "valueType")}
    required = required_fields.get(value["type"])
    if required is None:
        raise ValueError(f"Unsupported Delta table type: '{value['type']}'")
    for name in required:
        if name not in value:
            raise ValueError(f"missing field `{name}` in {to_json(value)}")
    for name in ("elementType", "keyType", "valueType"):
        if name in value:
            _check_type(value[name])
    for name in ("containsNull", "valueContainsNull"):
        if name in value:
            _check_kind(value[name], bool, "a boolean")
    if value["type"] == "struct":
        _check_kind(value["fields"], list, "a sequence")
        _check_fields(value["fields"])


def _check_fields(fields: list[Any]) -> None:
    names: set[str] = set()
    for field in fields:
        _check_kind(field, dict, "struct StructField")
        for name in ("name", "type", "nullable", "metadata"):
            if name not in field:
                raise ValueError(f"missing field `{name}` in {to_json(field)}")
        _check_kind(field["name"], str, "a string")
        _check_kind(field["nullable"], bool, "a boolean")
        _check_kind(field["metadata"], dict, "a map")
        _check_type(field["type"])
        if field["name"].casefold() in names:
            raise ValueError(f"Schema error: Duplicate field name (case-insensitive): '{field['name']}'")
        names.add(field["name"].casefold())


def _check_name(name: str) -> None:
    parsed = log.parse_type(name) if name != "decimal" else None
    if isinstance(parsed, log.DecimalType):
        if not _is_decimal(parsed):
            raise ValueError(
                f"Invalid decimal: precision must be in range 1..38 inclusive, found: {parsed.precision}, and the "
                f"scale not above it, found: {parsed.scale}"
            )
    elif not isinstance(parsed, log.VariantType) and name not in _PRIMITIVES:
        raise ValueError(f"Unsupported Delta table type: '{name}'")


def _check_kind(value: Any, kind: type, expected: str) -> None:
    """Raise ValueError, with the message of `deltalake`'s JSON reader, if a value has the wrong type."""
    if not isinstance(value, kind):
        raise ValueError(f"invalid type: {shown_kind(value)}, expected {expected}")


def shown_kind(value: Any) -> str:
    """Return a JSON value as messages show it: `string "x"`, `integer `5``, `sequence`."""
    if isinstance(value, bool | int | float):
        name = {bool: "boolean", int: "integer"}.get(type(value), "floating point")
        return f"{name} `{to_json(value)}`"
    if isinstance(value, str):
        return f'string "{value}"'
    return "null" if value is None else "map" if isinstance(value, dict) else "sequence"


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
        raise TypeError(f"C Data interface error: Unable to interpret C data struct as a Schema: {error}") from None


def type_from_arrow(exported: Any) -> log.DataType:
    """Return the Delta type of an object that exports an Arrow type."""
    from deltalakedb.data.arrow_types import check_declared, to_delta_type  # slow to import

    arrow = exported if isinstance(exported, pa.DataType) else pa.DataType._import_from_c_capsule(_capsule(exported))
    check_declared(arrow)
    return to_delta_type(arrow, ())


def field_from_arrow(exported: Any) -> log.StructField:
    """Return the Delta field of an object that exports an Arrow field."""
    field = exported if isinstance(exported, pa.Field) else pa.Field._import_from_c_capsule(_capsule(exported))
    return struct_from_arrow(pa.schema([field])).fields[0]


def struct_from_arrow(exported: Any) -> log.StructType:
    """Return the Delta schema of an object that exports an Arrow schema."""
    from deltalakedb.data.arrow_types import arrow_to_schema, check_declared

    arrow = _arrow_schema(exported)
    for item in arrow:
        check_declared(item.type, (item.name,))
    return arrow_to_schema(arrow)


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
    arrow = log.to_arrow_type(data_type)
    widened = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return widened.get(arrow, arrow) if large else arrow


def arrow_field(item: log.StructField, *, large: bool) -> pa.Field:
    texts = {key: value if isinstance(value, str) else to_json(value) for key, value in item.metadata.items()}
    return pa.field(item.name, arrow_type(item.type, large=large), nullable=item.nullable, metadata=texts or None)


# -- invariants


def invariants(data_type: log.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    match data_type:
        case log.StructType():
            for item in data_type.fields:
                column_path = (*path, item.name)
                text = item.metadata.get(_INVARIANTS)
                if text is not None:
                    yield ".".join(column_path), _invariant(text, column_path)
                yield from invariants(item.type, column_path)
        case log.ArrayType():
            yield from invariants(data_type.element_type, (*path, "element"))
        case log.MapType():
            yield from invariants(data_type.key_type, (*path, "key"))
            yield from invariants(data_type.value_type, (*path, "value"))


def _invariant(text: Any, path: tuple[str, ...]) -> str:
    try:
        sql: str = json.loads(text)["expression"]["expression"]
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLogError(
            f"Invalid JSON in invariant expression, line=`{text}`, err=`{error}`, of column {'.'.join(path)}"
        ) from error
    return sql
