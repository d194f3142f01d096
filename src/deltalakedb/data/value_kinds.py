"""Tells what an expression's values are, as far as columns, literals, casts and functions say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlglot import exp

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
KindOf: TypeAlias = Callable[[Node], str | None]
"""The type of a column, as Delta calls it; None where it is not known."""

TEXT_TYPES: Final = frozenset(exp.DataType.TEXT_TYPES)
_TEXT_RESULTS: Final = (exp.Upper, exp.Lower, exp.Substring, exp.Trim, exp.Concat, exp.ConcatWs, exp.Replace)
_TEXT_MACROS: Final = ("DL_TEXT", "DL_UPPER", "DL_LOWER", "DL_INITCAP", "DL_SUBSTR", "DL_SPLIT_PART", "DL_LPAD",
                       "DL_RPAD", "REGEXP_REPLACE", "STRFTIME")  # fmt: skip
_FRACTIONAL: Final = ("float", "double", "decimal")
_ARITHMETIC: Final = (exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_CHOICES: Final = (exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
_FRACTIONAL_RESULTS: Final = (
    exp.Avg, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Sin, exp.Cos, exp.Tan, exp.Cot, exp.Asin, exp.Acos, exp.Atan,
    exp.Sinh, exp.Cosh, exp.Tanh, exp.Degrees, exp.Radians, exp.Pi, exp.Rand, exp.Cbrt, exp.Log,
)  # fmt: skip
_FRACTIONAL_MACROS: Final = ("DL_DIVIDE", "DL_LN", "DL_LOG", "DL_LOG2", "DL_LOG10", "DL_CBRT", "DL_ASIN", "DL_ACOS",
                             "LOG2", "LOG10")  # fmt: skip
_ROUNDING: Final = (exp.Ceil, exp.Floor, exp.Trunc)
"""They make doubles of whole numbers."""
WHOLE_KINDS: Final = ("byte", "short", "integer", "long")


def is_numeric(node: Node, kind_of: KindOf) -> bool:
    if isinstance(node, exp.Paren | exp.Neg):
        return is_numeric(node.this, kind_of)
    if isinstance(node, exp.Literal):
        return not node.is_string
    return is_whole(node, kind_of) or is_fractional(node, kind_of)


def column_kind(node: Node, kind_of: KindOf) -> str | None:
    return kind_of(node) if isinstance(node, exp.Column) else None


def is_whole(node: Node, kind_of: KindOf) -> bool:
    """Whether a value is a whole number, as far as columns, literals and casts tell."""
    if isinstance(node, exp.Paren | exp.Neg):
        return is_whole(node.this, kind_of)
    if isinstance(node, exp.Literal):
        return bool(not node.is_string and node.is_int)
    if isinstance(node, exp.Cast):
        return node.to.this in exp.DataType.INTEGER_TYPES
    return column_kind(node, kind_of) in WHOLE_KINDS


def is_text(node: Node, kind_of: KindOf) -> bool:
    """Whether a value is known to be a text."""
    if isinstance(node, exp.Column):
        return kind_of(node) == "string"
    if isinstance(node, exp.Literal):
        return bool(node.is_string)
    if isinstance(node, exp.DPipe):
        return is_text(node.this, kind_of) or is_text(node.expression, kind_of)
    if isinstance(node, exp.Paren):
        return is_text(node.this, kind_of)
    if isinstance(node, exp.Cast):
        return node.to.this in TEXT_TYPES
    return isinstance(node, _TEXT_RESULTS) or (isinstance(node, exp.Anonymous) and node.name.upper() in _TEXT_MACROS)


def is_fractional(node: Node, kind_of: KindOf) -> bool:
    """Whether a value may have digits after the point, as far as columns, literals and arithmetic tell."""
    if isinstance(node, exp.Column):
        return (kind_of(node) or "").startswith(_FRACTIONAL)
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.is_int
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT, exp.DataType.Type.DECIMAL)
    if isinstance(node, (*_ARITHMETIC, *_CHOICES)):
        return any(is_fractional(part, kind_of) for part in node.iter_expressions())
    if isinstance(node, exp.Case | exp.If):
        return any(is_fractional(part, kind_of) for part in _results(node))
    if isinstance(node, exp.Anonymous):
        if node.name.upper() == "DL_NONZERO":
            return is_fractional(node.expressions[0], kind_of)
        return node.name.upper() in _FRACTIONAL_MACROS
    if isinstance(node, _ROUNDING):
        return is_fractional(node.this, kind_of) or is_whole(node.this, kind_of)
    return isinstance(node, _FRACTIONAL_RESULTS) or (
        isinstance(node, exp.Round | exp.Abs) and is_fractional(node.this, kind_of)
    )


def is_nonzero(node: Node) -> bool:
    if isinstance(node, exp.Cast):
        return is_nonzero(node.this)
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) != 0


def _results(node: Node) -> list[Node]:
    """The values that a conditional expression can have."""
    if isinstance(node, exp.If):
        results = [node.args.get("true"), node.args.get("false")]
    else:
        results = [*(one.args.get("true") for one in node.args.get("ifs") or ()), node.args.get("default")]
    return [result for result in results if result is not None]
