"""Owns the types of the literals in an expression: DataFusion's, where DuckDB would read a literal otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.data.decimal_types import digits_of
from deltalakedb.exceptions import PredicateError

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
KindOf: TypeAlias = Callable[[Node], str | None]
"""The type of a column, as Delta calls it; None where it is not known."""

COMPARISONS: Final = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between,
)  # fmt: skip
_CHOICES: Final = (exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
"""What gives one of its parts, all of one type."""
_KEEP: Final = (
    exp.Interval, exp.Bracket, exp.Limit, exp.Offset, exp.Order, exp.Group, exp.Ordered, exp.PercentileCont,
    exp.PercentileDisc, exp.DataTypeParam,
)  # fmt: skip
"""Where a literal is no value of the expression."""
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_SMALL: Final = ("byte", "short", "integer")
_WHOLE: Final = {"byte": "Int8", "short": "Int16", "integer": "Int32", "long": "Int64"}
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_MAX_UNSIGNED: Final = 2**64
_DECIMAL_OF_DOUBLE: Final = "DECIMAL(30, 15)"
"""What a double becomes where decimals are chosen from."""


def type_literals(root: Node, kind_of: KindOf, *, has_decimals: bool = False) -> None:
    """Make doubles of literals with a point, unless `has_decimals`, and moments of texts that are compared with one.

    A literal that is compared with a decimal stays one, so that all its digits count.
    """
    for node in list(root.find_all(exp.Literal)):
        if node.is_string:
            _compare_text(node, kind_of)
        elif node.is_int and isinstance(node.parent, _ARITHMETIC):
            _widen(node, kind_of)
        elif not has_decimals and (not node.is_int or int(node.this) >= _MAX_UNSIGNED):
            _type_number(node, kind_of)


def _type_number(literal: Node, kind_of: KindOf) -> None:
    if isinstance(literal.parent, _KEEP) or literal.find_ancestor(exp.Interval) or "e" in literal.this.lower():
        return
    above = _above(literal)
    if above is None:
        return  # the whole value of a column, which takes it as it is written
    if isinstance(above, exp.Cast) and above.to.this == exp.DataType.Type.DECIMAL:
        return
    if isinstance(above, COMPARISONS) and _has_decimal(above, kind_of):
        return
    choice = above.parent if isinstance(above, exp.If) and isinstance(above.parent, exp.Case) else above
    if isinstance(choice, _CHOICES) and _has_decimal(choice, kind_of):
        literal.replace(exp.cast(literal.copy(), _DECIMAL_OF_DOUBLE, dialect=DuckDB))
    else:
        literal.replace(exp.Literal.number(f"{literal.this}e0"))


def _above(node: Node) -> Node:
    """What a value is a part of, without parentheses and signs."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Neg):
        above = above.parent
    return above


def _has_decimal(node: Node, kind_of: KindOf) -> bool:
    """Whether a part is a decimal; that of a case is a value, not a condition."""
    if isinstance(node, exp.Case):
        parts = [one.args["true"] for one in node.args["ifs"]] + [node.args.get("default")]
    else:
        parts = list(node.iter_expressions())
    digits = [digits_of(one, kind_of) for one in parts if one is not None]
    return any(one is not None and one.is_decimal for one in digits)


def _widen(literal: Node, kind_of: KindOf) -> None:
    """A whole number has 64 bits, also beside a column of fewer."""
    sides = (literal.parent.this, literal.parent.expression)
    if any(isinstance(one, exp.Column) and kind_of(one) in _SMALL for one in sides):
        literal.replace(exp.cast(literal.copy(), "bigint"))


def _compare_text(literal: Node, kind_of: KindOf) -> None:
    """A text beside a column of moments without a zone, of which DuckDB would drop the offset, or of whole numbers."""
    above = literal.parent
    if not isinstance(above, COMPARISONS):
        return
    kinds = [kind_of(one) or "" for one in above.iter_expressions() if isinstance(one, exp.Column)]
    if "timestamp_ntz" in kinds:
        literal.replace(exp.cast(literal.copy(), "timestamp", dialect=DuckDB))
    whole = [kind for kind in kinds if kind in _WHOLE]
    if whole and not _NUMBER.fullmatch(literal.this):
        raise PredicateError(f"Cast error: Cannot cast string '{literal.this}' to value of {_WHOLE[whole[0]]} type")
