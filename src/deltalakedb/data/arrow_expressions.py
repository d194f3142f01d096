"""Translates pyarrow expressions to SQL that selects at least the files that the expression needs."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.schema.types import PrimitiveType, StructType

_COMPARISONS: Final = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SCHEMA_STRUCT_BYTES: Final = 72
_METADATA_POINTER: Final = 16


def expression_to_sql(expression: pc.Expression, schema: StructType) -> str | None:
    """SQL that is true wherever the expression is, for pruning files; None if the expression is not understood."""
    try:
        tree = _read_tree(expression)
    except (pa.ArrowException, ValueError, LookupError, AttributeError, struct.error):
        return None  # pyarrow's format for expressions is internal: one that is not understood does not prune
    condition = _convert(tree, schema)
    return None if condition is None else condition.sql


def expression_columns(expression: pc.Expression, schema: StructType) -> set[str]:
    """The columns that an expression uses; all of them if that is unknown."""
    try:
        tree = _read_tree(expression)
    except (pa.ArrowException, ValueError, LookupError, AttributeError, struct.error):
        return set(schema.names)
    names = set(_names_in(tree))
    if not names.issubset(schema.names):
        return set(schema.names)
    return names


def _names_in(node: _Node) -> Iterator[str]:
    if isinstance(node, _Field):
        yield node.name
    elif isinstance(node, _Call):
        for item in node.arguments:
            yield from _names_in(item)
    elif isinstance(node, _Unknown):
        yield ""  # no column has this name: the caller reads all


# -- the tree, as pyarrow pickles it: a record batch of the literals, whose metadata lists the calls in order


@dataclass(frozen=True, slots=True)
class _Field:
    name: str


@dataclass(frozen=True, slots=True)
class _Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: tuple[_Node, ...]
    options: Any


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A part that is not understood, such as a field inside a struct."""


_Node = _Field | _Literal | _Call | _Unknown


def _read_tree(expression: pc.Expression) -> _Node:
    _, (buffer,) = expression.__reduce__()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    parts = _metadata_items(batch.schema)
    node = _read_node(parts, batch)
    if next(parts, None) is not None:
        raise ValueError("more than one expression")
    return node


def _read_node(parts: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    kind, value = next(parts)
    if kind == "literal":
        return _Literal(batch.column(int(value))[0].as_py())
    if kind == "field_ref":
        return _Field(value)
    if kind == "nested_field_ref":
        for _ in range(int(value)):
            next(parts)
        return _Unknown()
    if kind != "call":
        raise ValueError(f"an expression with {kind}")
    arguments: list[_Node] = []
    options: Any = None
    call_parts = list(_parts_of(parts, value))
    inner = iter(call_parts)
    for part in inner:
        if part[0] == "options":
            options = batch.column(int(part[1]))[0].as_py()
        else:
            arguments.append(_read_node(_chain(part, inner), batch))
    return _Call(value, tuple(arguments), options)


def _parts_of(parts: Iterator[tuple[str, str]], function: str) -> Iterator[tuple[str, str]]:
    """The parts of a call: everything up to the end with its name, including nested calls."""
    depth = 1
    for part in parts:
        depth += {"call": 1, "end": -1}.get(part[0], 0)
        if depth == 0:
            if part[1] != function:
                raise ValueError("a call that does not end")
            return
        yield part
    raise ValueError("a call that does not end")


def _chain(first: tuple[str, str], rest: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield first
    yield from rest


def _metadata_items(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Keys and values in order; pyarrow itself returns a dictionary, which keeps one of each key."""
    schema_struct = ctypes.create_string_buffer(_SCHEMA_STRUCT_BYTES)
    address = ctypes.addressof(schema_struct)
    schema._export_to_c(address)
    try:
        pointer = ctypes.c_void_p.from_address(address + _METADATA_POINTER).value
        items = [] if pointer is None else _read_metadata(pointer)
    finally:
        pa.Schema._import_from_c(address)  # importing it also releases it
    return iter(items)


def _read_metadata(pointer: int) -> list[tuple[str, str]]:
    """Read metadata of Arrow's C data interface: a count, then length and bytes of each key and value, native order."""
    texts: list[str] = []
    address = pointer + 4
    for _ in range(2 * _integer_at(pointer)):
        size = _integer_at(address)
        texts.append(ctypes.string_at(address + 4, size).decode())
        address += 4 + size
    return list(zip(texts[::2], texts[1::2], strict=True))


def _integer_at(address: int) -> int:
    (value,) = struct.unpack("=i", ctypes.string_at(address, 4))
    return int(value)


# -- the tree as SQL


@dataclass(frozen=True, slots=True)
class _Sql:
    sql: str
    exact: bool
    """Whether it is false wherever the expression is; otherwise it must not be negated."""


def _convert(node: _Node, schema: StructType) -> _Sql | None:
    if not isinstance(node, _Call):
        return None
    if node.function in ("and_kleene", "and"):
        return _conjunction([_convert(item, schema) for item in node.arguments])
    if node.function in ("or_kleene", "or"):
        return _disjunction([_convert(item, schema) for item in node.arguments])
    if node.function == "invert":
        inner = _convert(node.arguments[0], schema)
        return _Sql(f"(not {inner.sql})", True) if inner is not None and inner.exact else None
    if node.function in _COMPARISONS and len(node.arguments) == 2:
        return _comparison(node, schema)
    if node.function in ("is_valid", "is_null", "is_in") and isinstance(node.arguments[0], _Field):
        return _test(node, node.arguments[0], schema)
    return None


def _conjunction(parts: list[_Sql | None]) -> _Sql | None:
    converted = [part for part in parts if part is not None]
    if not converted:
        return None
    exact = len(converted) == len(parts) and all(part.exact for part in converted)
    return _Sql(f"({' and '.join(part.sql for part in converted)})", exact)


def _disjunction(parts: list[_Sql | None]) -> _Sql | None:
    converted = [part for part in parts if part is not None]
    if len(converted) < len(parts):
        return None
    return _Sql(f"({' or '.join(part.sql for part in converted)})", all(part.exact for part in converted))


def _comparison(call: _Call, schema: StructType) -> _Sql | None:
    operator, (left, right) = _COMPARISONS[call.function], call.arguments
    if isinstance(left, _Literal) and isinstance(right, _Field):
        left, right, operator = right, left, _TURNED[operator]
    if not isinstance(left, _Field) or not isinstance(right, _Literal):
        return None
    value, name = _literal(right.value), _column(left, schema)
    if value is None or name is None:
        return None
    # NaN is unequal to everything here and above everything in SQL; statistics do not tell whether a file has one
    is_float = _is_float(left, schema)
    return None if is_float and operator == "<>" else _Sql(f"({name} {operator} {value})", not is_float)


def _test(call: _Call, field: _Field, schema: StructType) -> _Sql | None:
    name = _column(field, schema)
    if name is None:
        return None
    if call.function == "is_valid":
        return _Sql(f"({name} is not null)", True)
    if call.function == "is_null":
        counts_nan = bool((call.options or {}).get("nan_is_null"))
        return None if counts_nan and _is_float(field, schema) else _Sql(f"({name} is null)", True)
    values = [_literal(value) for value in (call.options or {}).get("value_set") or ()]
    literals = [value for value in values if value is not None]
    if not literals or len(literals) < len(values):
        return None
    return _Sql(f"({name} in ({', '.join(literals)}))", False)


def _column(field: _Field, schema: StructType) -> str | None:
    """The column's name, quoted; pyarrow's names are case-sensitive."""
    return '"' + field.name.replace('"', '""') + '"' if field.name in schema.names else None


def _is_float(field: _Field, schema: StructType) -> bool:
    item = schema.field(field.name)
    return item is not None and item.type in (PrimitiveType("float"), PrimitiveType("double"))


def _literal(value: Any) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else str(value)
        case float():
            return repr(value) if value - value == 0 else None
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"timestamp '{value.isoformat(sep=' ')}'"
        case date():
            return f"date '{value.isoformat()}'"
    return None
