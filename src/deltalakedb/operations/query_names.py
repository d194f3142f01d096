"""Owns the names of a query's columns that are given none: an expression as DataFusion shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

Node: TypeAlias = Any
ShowColumn: TypeAlias = Callable[[Node], str]

_OPERATORS: Final[dict[type, str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "/", exp.Mod: "%", exp.DPipe: "||",
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "AND", exp.Or: "OR",
    exp.Like: "LIKE", exp.ILike: "ILIKE", exp.NullSafeNEQ: "IS DISTINCT FROM", exp.NullSafeEQ: "IS NOT DISTINCT FROM",
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
}


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

    if isinstance(node, exp.Column):
        return column(node)
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
        return _literal(node)
    if isinstance(node, exp.Paren | exp.Cast):
        return inner(node.this)
    if isinstance(node, exp.Neg):
        number = isinstance(node.this, exp.Literal)
        return inner(node.this).replace("(", "(-", 1) if number else f"(- {inner(node.this)})"
    if isinstance(node, exp.Not):
        negated = _negated(node.this, inner)
        return negated or f"NOT {inner(node.this)}"
    if isinstance(node, exp.Is):
        return f"{inner(node.this)} IS {inner(node.expression)}"
    if isinstance(node, exp.In) and not node.args.get("query"):
        return f"{inner(node.this)} IN {', '.join(map(inner, node.expressions))}"
    if isinstance(node, exp.Between):
        return f"{inner(node.this)} BETWEEN {inner(node.args['low'])} AND {inner(node.args['high'])}"
    if type(node) in _OPERATORS:
        return f"{inner(node.this)} {_OPERATORS[type(node)]} {inner(node.expression)}"
    if isinstance(node, exp.Case):
        return _case(node, inner)
    if isinstance(node, exp.Filter):
        return f"{inner(node.this)} FILTER (WHERE {inner(node.expression.this)})"
    if isinstance(node, exp.Window):
        return f"{inner(node.this)}{_over(node, inner)}"
    if isinstance(node, exp.Bracket):
        return _bracket(node, inner)
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
        return f"{inner(node.this)} IS NOT {inner(node.expression)}"
    for kind, word in ((exp.In, "IN"), (exp.Between, "BETWEEN"), (exp.Like, "LIKE"), (exp.ILike, "ILIKE")):
        if isinstance(node, kind):
            start, _, rest = inner(node).partition(f" {word} ")
            return f"{start} NOT {word} {rest}"
    return ""


def _case(node: Node, inner: ShowColumn) -> str:
    subject = f" {inner(node.this)}" if node.this is not None else ""
    branches = "".join(f" WHEN {inner(one.this)} THEN {inner(one.args['true'])}" for one in node.args["ifs"])
    default = node.args.get("default")
    return f"CASE{subject}{branches}{'' if default is None else f' ELSE {inner(default)}'} END"


def _bracket(node: Node, inner: ShowColumn) -> str:
    (place,) = node.expressions
    if isinstance(place, exp.Literal) and place.is_string:
        return f"{inner(node.this)}[{place.this}]"
    shift = 1 if isinstance(place, exp.Literal) and not node.args.get("offset") else 0
    shown = f"Int64({int(place.this) + shift})" if isinstance(place, exp.Literal) else inner(place)
    return f"{inner(node.this)}[{shown}]"


def _over(node: Node, inner: ShowColumn) -> str:
    """The window of a function; one that names none reaches over all rows, or up to the current one if it is sorted."""
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
    values = [one for one in node.iter_expressions() if not isinstance(one, exp.DataType)]
    if len(values) == 1 and isinstance(values[0], exp.Star):
        return f"{name}(*)"
    if len(values) == 1 and isinstance(values[0], exp.Distinct):
        return f"{name}(DISTINCT {','.join(map(inner, values[0].expressions))})"
    if len(values) == 1 and isinstance(values[0], exp.Order):
        return f"{name}({inner(values[0].this)}) ORDER BY [{_ordered(values[0], inner)}]"
    return f"{name}({','.join(map(inner, values))})"
