"""Owns arithmetic with decimals: how many digits a result has, by Arrow's rules, and division that keeps them exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
KindOf: TypeAlias = Callable[[Node], str | None]
"""The type of a column, as Delta calls it; None where it is not known."""

_MAX_PRECISION: Final = 38
_MORE_DIGITS: Final = 4
"""How many digits after the point a division adds."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_CASTS: Final = {
    exp.DataType.Type.TINYINT: 3,
    exp.DataType.Type.SMALLINT: 5,
    exp.DataType.Type.INT: 10,
    exp.DataType.Type.BIGINT: 20,
}


class Digits(NamedTuple):
    """The digits of a number in decimal arithmetic."""

    precision: int
    scale: int
    is_decimal: bool
    """False for a whole number."""


def digits_of(node: Node, kind_of: KindOf) -> Digits | None:
    """The digits of a value; None where it is a float, no number, or not known."""
    if isinstance(node, exp.Paren | exp.Neg):
        return digits_of(node.this, kind_of)
    if isinstance(node, exp.Anonymous) and node.name.upper() == "DL_NONZERO":
        return digits_of(node.expressions[0], kind_of)
    if isinstance(node, exp.Column):
        return _digits_of_kind(kind_of(node) or "")
    if isinstance(node, exp.Literal):
        return Digits(20, 0, is_decimal=False) if not node.is_string and node.is_int else None
    if isinstance(node, exp.Cast):
        return _digits_of_cast(node)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        one, other = digits_of(node.this, kind_of), digits_of(node.expression, kind_of)
        return None if one is None or other is None else _result(node, one, other)
    return None


def _digits_of_kind(kind: str) -> Digits | None:
    if kind in _DIGITS:
        return Digits(_DIGITS[kind], 0, is_decimal=False)
    if kind.startswith("decimal("):
        precision, scale = map(int, kind[8:-1].split(","))
        return Digits(precision, scale, is_decimal=True)
    return None


def _digits_of_cast(node: Node) -> Digits | None:
    if node.to.this in _CASTS:
        return Digits(_CASTS[node.to.this], 0, is_decimal=False)
    if node.to.this == exp.DataType.Type.DECIMAL and len(node.to.expressions) == 2:
        precision, scale = (int(one.name) for one in node.to.expressions)
        return Digits(precision, scale, is_decimal=True)
    return None


def _result(node: Node, one: Digits, other: Digits) -> Digits | None:
    if not (one.is_decimal or other.is_decimal):
        return None
    if isinstance(node, exp.Mul):
        precision, scale = one.precision + other.precision + 1, one.scale + other.scale
    elif isinstance(node, exp.Div):
        scale = one.scale + _MORE_DIGITS
        precision = one.precision - one.scale + other.scale + scale
    else:
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if scale > _MAX_PRECISION:
        return None
    return Digits(min(precision, _MAX_PRECISION), scale, is_decimal=True)


def keep_digits(node: Node, kind_of: KindOf) -> None:
    """Give arithmetic with decimals the type it has in Arrow."""
    result = digits_of(node, kind_of)
    if result is None:
        return
    value = node.copy()
    if isinstance(node, exp.Div):
        one, other = digits_of(node.this, kind_of), digits_of(node.expression, kind_of)
        assert one is not None
        assert other is not None
        value = _divide(node, one, other, result.scale)
    node.replace(exp.cast(value, f"DECIMAL({result.precision}, {result.scale})", dialect=DuckDB))


def _divide(node: Node, one: Digits, other: Digits, scale: int) -> Node:
    """A division cut off after `scale` digits, by way of whole numbers: DuckDB's own goes by way of floats."""
    whole = _as_whole(node.this, one.scale, one.scale + _MORE_DIGITS - one.scale + other.scale)
    quotient = exp.IntDiv(this=whole, expression=_as_whole(node.expression, other.scale, 0))
    unit = f"0.{'1'.rjust(scale, '0')}"
    return exp.Mul(
        this=exp.cast(exp.Paren(this=quotient), f"DECIMAL({_MAX_PRECISION}, 0)", dialect=DuckDB),
        expression=exp.cast(exp.Literal.string(unit), f"DECIMAL({scale}, {scale})", dialect=DuckDB),
    )


def _as_whole(value: Node, scale: int, more: int) -> Node:
    """A decimal without its point, times a power of ten."""
    factor = exp.Literal.number(10**scale)
    whole = exp.cast(exp.Mul(this=exp.Paren(this=value.copy()), expression=factor), "HUGEINT", dialect=DuckDB)
    return exp.Mul(this=whole, expression=exp.cast(exp.Literal.number(10**more), "HUGEINT", dialect=DuckDB))
