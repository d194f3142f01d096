"""Owns the names of a query's columns that are given none: an expression as DataFusion shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

Node: TypeAlias = Any
ShowColumn: TypeAlias = Callable[[Node], str]

_OPERATORS: Final[dict[type, str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "AND", exp.Or: "OR",
    exp.Like: "LIKE", exp.ILike: "ILIKE", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "BIT_XOR",
    exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>", exp.RegexpLike: "~", exp.RegexpILike: "~*",
    exp.NullSafeNEQ: "IS DISTINCT FROM", exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}  # fmt: skip
_RENAMED: Final = {
    "substring": "substr",
    "position": "strpos",
    "trim": "btrim",
    "str_position": "strpos",
    "unnest": "UNNEST",
}
_WITHOUT_TEXT: Final[dict[type, str]] = {
    exp.Substring: "substr",
    exp.StrPosition: "strpos",
    exp.Trim: "btrim",
    exp.Extract: "date_part",
    exp.CurrentDate: "current_date",
    exp.Array: "make_array",
    exp.GroupConcat: "string_agg",
    exp.Initcap: "initcap",
    exp.AnyValue: "any_value",
    exp.ToMap: "map",
    exp.Struct: "named_struct",
}
_OF_OPERATORS: Final = (exp.RegexpLike, exp.RegexpILike)
"""Functions that operators, `~` and `~*`, are read as."""
_FIRST_ONLY: Final = (exp.Initcap, exp.ArraySort)
"""Functions to which sqlglot adds arguments that the text does not have."""
_MONTHS: Final = {"YEAR": 12, "QUARTER": 3, "MONTH": 1, "CENTURY": 1200, "DECADE": 120}
_DAYS: Final = {"WEEK": 7, "DAY": 1}
_NANOSECONDS: Final = {
    "HOUR": 3600 * 10**9, "MINUTE": 60 * 10**9, "SECOND": 10**9, "MILLISECOND": 10**6, "MICROSECOND": 1000,
    "NANOSECOND": 1,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"\s*(-?\d+)\s*([A-Za-z]+)\s*")


def function_name(node: Node, text: str) -> str:
    """The name of a function as the query's text has it, in lower case."""
    if isinstance(node, exp.Filter):
        return function_name(node.this, text)
    if "start" in node.meta:
        name = text[node.meta["start"] : node.meta["end"] + 1].strip('"`').lower()
    else:
        name = _WITHOUT_TEXT.get(type(node), "") or str(getattr(node, "sql_name", lambda: "")()).lower()
    return _RENAMED.get(name, name)


def show(node: Node, text: str, column: ShowColumn) -> str:
    """An expression of a query's text as DataFusion names the column of its values."""

    def inner(one: Node) -> str:
        return show(one, text, column)

    if isinstance(node, exp.Column | exp.Subquery):
        return column(node)
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
        return _literal(node)
    if isinstance(node, exp.Paren | exp.Cast | exp.IgnoreNulls):
        return inner(node.this)
    if isinstance(node, exp.Interval):
        return _interval(node) or str(node.sql(dialect=DuckDB))
    if isinstance(node, exp.Neg):
        number = isinstance(node.this, exp.Literal)
        return inner(node.this).replace("(", "(-", 1) if number else f"(- {inner(node.this)})"
    if isinstance(node, exp.Not):
        negated = _negated(node.this, inner)
        return negated or f"NOT {inner(node.this)}"
    if isinstance(node, exp.Is):
        return f"{inner(node.this)} IS {_tested(node.expression, inner)}"
    if isinstance(node, exp.In) and not node.args.get("query"):
        return f"{inner(node.this)} IN {', '.join(map(inner, node.expressions))}"
    if isinstance(node, exp.Between):
        return f"{inner(node.this)} BETWEEN {inner(node.args['low'])} AND {inner(node.args['high'])}"
    if type(node) in _OPERATORS and not (isinstance(node, _OF_OPERATORS) and "start" in node.meta):
        word = f"NOT {_OPERATORS[type(node)]}" if node.args.get("negate") else _OPERATORS[type(node)]
        return f"{inner(node.this)} {word} {inner(node.expression)}"
    if isinstance(node, exp.Case):
        return _case(node, inner)
    if isinstance(node, exp.Filter):
        return f"{inner(node.this)} FILTER (WHERE {inner(node.expression.this)})"
    if isinstance(node, exp.Window):
        return f"{inner(node.this)}{_over(node, inner)}"
    if isinstance(node, exp.WithinGroup):
        return f"{inner(node.this)} WITHIN GROUP [{_ordered(node.expression, inner)}]"
    if isinstance(node, exp.Bracket):
        return _bracket(node, inner)
    if isinstance(node, exp.ToMap | exp.Struct):
        return _literal_of_parts(node, inner) or _function(node, text, inner)
    if isinstance(node, exp.Func):
        return _function(node, text, inner)
    return str(node.sql(dialect=DuckDB))


def _literal(node: Node) -> str:
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Boolean):
        return f"Boolean({str(node.this).lower()})"
    if node.is_string:
        return f'Utf8("{node.this}")'
    if node.this.isdigit():
        return f"{'Int64' if int(node.this) < 2**63 else 'UInt64'}({node.this})"
    value = float(node.this)
    return f"Float64({int(value) if value.is_integer() else value})"


def _negated(node: Node, inner: ShowColumn) -> str:
    """Conditions that have a negated form of their own."""
    if isinstance(node, exp.Is):
        return f"{inner(node.this)} IS NOT {_tested(node.expression, inner)}"
    if isinstance(node, _OF_OPERATORS) and "start" not in node.meta:
        return f"{inner(node.this)} !{_OPERATORS[type(node)]} {inner(node.expression)}"
    for kind, word in ((exp.In, "IN"), (exp.Between, "BETWEEN"), (exp.Like, "LIKE"), (exp.ILike, "ILIKE")):
        if isinstance(node, kind):
            start, _, rest = inner(node).partition(f" {word} ")
            return f"{start} NOT {word} {rest}"
    return ""


def _tested(node: Node, inner: ShowColumn) -> str:
    """What `is` compares with."""
    return str(node.this).upper() if isinstance(node, exp.Boolean) else inner(node)


def _interval(node: Node) -> str:
    """A literal interval as its months, days and nanoseconds; empty for a text that is not understood."""
    text = f"{node.name} {node.args['unit'].name}" if node.args.get("unit") is not None else node.name
    amounts = _AMOUNT.findall(text)
    if not amounts or _AMOUNT.sub("", text):
        return ""
    sums = [0, 0, 0]
    for amount, unit in amounts:
        for place, sizes in enumerate((_MONTHS, _DAYS, _NANOSECONDS)):
            sums[place] += int(amount) * sizes.get(unit.upper().removesuffix("S"), 0)
    months, days, nanoseconds = sums
    value = f"IntervalMonthDayNano {{ months: {months}, days: {days}, nanoseconds: {nanoseconds} }}"
    return f'IntervalMonthDayNano("{value}")'


def _literal_of_parts(node: Node, inner: ShowColumn) -> str:
    """`{'a': 1}` and `map {'a': 1}`; empty for functions that make the same."""
    struct = node.this if isinstance(node, exp.ToMap) else node
    if "start" in node.meta or not all(isinstance(one, exp.PropertyEQ) for one in struct.expressions):
        return ""
    keys = [f'Utf8("{one.this.name}")' for one in struct.expressions]
    values = [inner(one.expression) for one in struct.expressions]
    if isinstance(node, exp.ToMap):
        return f"map(make_array({','.join(keys)}),make_array({','.join(values)}))"
    return f"named_struct({','.join(f'{key},{value}' for key, value in zip(keys, values, strict=True))})"


def _case(node: Node, inner: ShowColumn) -> str:
    subject = f" {inner(node.this)}" if node.this is not None else ""
    branches = "".join(f" WHEN {inner(one.this)} THEN {inner(one.args['true'])}" for one in node.args["ifs"])
    default = node.args.get("default")
    return f"CASE{subject}{branches}{'' if default is None else f' ELSE {inner(default)}'} END"


def _bracket(node: Node, inner: ShowColumn) -> str:
    (place,) = node.expressions
    if isinstance(place, exp.Slice):
        step = place.args.get("step")
        bounds = (place.this, place.expression, exp.Literal.number(1) if step is None else step)
        return f"{inner(node.this)}[{':'.join('' if one is None else inner(one) for one in bounds)}]"
    if isinstance(place, exp.Literal) and place.is_string:
        return f"{inner(node.this)}[{place.this}]"
    shift = 1 if isinstance(place, exp.Literal) and not node.args.get("offset") else 0
    shown = f"Int64({int(place.this) + shift})" if isinstance(place, exp.Literal) else inner(place)
    return f"{inner(node.this)}[{shown}]"


def _over(node: Node, inner: ShowColumn) -> str:
    """The window of a function; one that names none reaches over all rows, or up to the current one if it is sorted."""
    if node.args.get("alias") is not None:
        select = node.find_ancestor(exp.Select)
        defined = (select.args.get("windows") if select is not None else None) or ()
        node = next((one for one in defined if one.name == node.alias), node)
    partition, order, spec = node.args.get("partition_by"), node.args.get("order"), node.args.get("spec")
    text = f" PARTITION BY [{', '.join(map(inner, partition))}]" if partition else ""
    text += f" ORDER BY [{_ordered(order, inner)}]" if order is not None else ""
    if spec is not None:
        return f"{text} {spec.sql(dialect=DuckDB).upper()}"
    if order is not None:
        return f"{text} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return f"{text} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def _ordered(order: Node, inner: ShowColumn) -> str:
    parts = []
    for one in order.expressions:
        way = "DESC" if one.args.get("desc") else "ASC"
        parts.append(f"{inner(one.this)} {way} NULLS {'FIRST' if one.args.get('nulls_first') else 'LAST'}")
    return ", ".join(parts)


def _function(node: Node, text: str, inner: ShowColumn) -> str:
    name = function_name(node, text)
    if isinstance(node, exp.Extract):
        return f'date_part(Utf8("{node.name.upper()}"),{inner(node.expression)})'
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        return f'date_trunc(Utf8("{node.args["unit"].name.lower()}"),{inner(node.this)})'
    if isinstance(node, exp.Trim) and node.args.get("position"):
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args["position"]).upper(), name)
    if isinstance(node, exp.GroupConcat) and isinstance(node.this, exp.Order):
        shown = [inner(node.this.this), *([inner(node.args["separator"])] if node.args.get("separator") else [])]
        return f"{name}({','.join(shown)}) ORDER BY [{_ordered(node.this, inner)}]"
    values = [one for one in node.iter_expressions() if not isinstance(one, exp.DataType)]
    values = _values(node, name, values)
    if name in ("array_slice", "array_element", "get_field") and len(values) > 1:
        places = [
            one.name if name == "get_field" and isinstance(one, exp.Literal) else inner(one) for one in values[1:]
        ]
        return f"{inner(values[0])}[{':'.join(places)}]"
    if len(values) == 1 and isinstance(values[0], exp.Star):
        return f"{name}(*)"
    if len(values) == 1 and isinstance(values[0], exp.Distinct):
        return f"{name}(DISTINCT {','.join(map(inner, values[0].expressions))})"
    if len(values) == 1 and isinstance(values[0], exp.Order):
        value = values[0].this
        unique = isinstance(value, exp.Distinct)
        argument = f"DISTINCT {','.join(map(inner, value.expressions))}" if unique else inner(value)
        return f"{name}({argument}) ORDER BY [{_ordered(values[0], inner)}]"
    return f"{name}({','.join(map(inner, values))})"


def _values(node: Node, name: str, values: list[Node]) -> list[Node]:
    """The arguments of a function as the text has them, of those that sqlglot has."""
    if isinstance(node, exp.Log) and name in ("log2", "log10"):
        return values[1:]
    if isinstance(node, exp.ArrayPrepend):
        return values[::-1]
    return values[:1] if isinstance(node, _FIRST_ONLY) else values


_NAMES: Final = {
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "uint8": "UInt8", "uint16": "UInt16",
    "uint32": "UInt32", "uint64": "UInt64", "float": "Float32", "double": "Float64", "bool": "Boolean",
    "string": "Utf8View", "large_string": "Utf8View", "string_view": "Utf8View", "binary": "BinaryView",
    "large_binary": "BinaryView", "binary_view": "BinaryView", "date32[day]": "Date32", "null": "Null",
}  # fmt: skip


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
