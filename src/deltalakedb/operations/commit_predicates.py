"""Rewrites conditions as DataFusion's optimizer does, whose result `deltalake` records: patterns as LIKE, years as
ranges."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp

Node = Any
"""A node of sqlglot's tree."""
KindOf = Callable[[Node], str]
"""The type of a column."""

_PLAIN_PATTERN: Final = re.compile(r"(\^?)([^\\^$.|?*+()\[\]{}%_]+)(\$?)")
"""A regular expression of letters that stand for themselves."""
_DATES: Final = ("date", "timestamp", "timestamp_ntz")
_YEARS: Final = range(1, 9999)


def rewrite_conditions(root: Node, kind_of: KindOf) -> Node:
    """The expression with other conditions of the same meaning; inner ones first."""

    def rewrite(node: Node) -> Node:
        for child in list(node.iter_expressions()):
            made = rewrite(child)
            if made is not child:
                child.replace(made)
        match node:
            case exp.RegexpLike() | exp.RegexpILike() if node.args.get("flag") is None:
                return _as_like(node)
            case exp.StartsWith() if _is_plain_text(node.expression):
                return exp.Like(this=node.this, expression=exp.Literal.string(f"{node.expression.name}%"))
        return _as_range(node, kind_of) if type(node) in _RANGES else node

    return rewrite(root)


def _as_like(node: Node) -> Node:
    """`name ~ '^A'` as `name like 'A%'`."""
    pattern = node.expression
    match = _PLAIN_PATTERN.fullmatch(pattern.name) if isinstance(pattern, exp.Literal) and pattern.is_string else None
    if match is None:
        return node
    start, text, end = match.groups()
    like = exp.ILike if isinstance(node, exp.RegexpILike) else exp.Like
    if start and end and like is exp.Like:
        return exp.EQ(this=node.this, expression=exp.Literal.string(text))
    return like(this=node.this, expression=exp.Literal.string(f"{'' if start else '%'}{text}{'' if end else '%'}"))


def _is_plain_text(node: Node) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and not set(node.name) & set("%_\\")


_RANGES: Final[dict[type, Callable[[Node, Node, Node], Node]]] = {
    exp.EQ: lambda day, first, next_first: exp.And(this=_compare(exp.GTE, day, first),
                                                   expression=_compare(exp.LT, day, next_first)),
    exp.NEQ: lambda day, first, next_first: exp.Or(this=_compare(exp.LT, day, first),
                                                   expression=_compare(exp.GTE, day, next_first)),
    exp.LT: lambda day, first, _: _compare(exp.LT, day, first),
    exp.LTE: lambda day, _, next_first: _compare(exp.LT, day, next_first),
    exp.GT: lambda day, _, next_first: _compare(exp.GTE, day, next_first),
    exp.GTE: lambda day, first, _: _compare(exp.GTE, day, first),
}  # fmt: skip
"""A comparison of the year of a day, as one with the first day of that year and of the next."""


def _compare(kind: type, day: Node, first: Node) -> Node:
    return kind(this=day.copy(), expression=first.copy())


def _as_range(node: Node, kind_of: KindOf) -> Node:
    """`date_part('year', day) = 2024` as the days of that year."""
    day, year = _column_of_year(node.this), node.expression
    if day is None or kind_of(day) not in _DATES or not (isinstance(year, exp.Literal) and year.is_int):
        return node
    if int(year.name) not in _YEARS:
        return node
    first, next_first = (exp.Literal.string(f"{int(year.name) + more:04}-01-01") for more in (0, 1))
    return _RANGES[type(node)](day, first, next_first)


def _column_of_year(node: Node) -> Node | None:
    """The column whose year a node is."""
    if isinstance(node, exp.Extract) and node.name.upper() == "YEAR":
        value = node.expression
    elif isinstance(node, exp.Anonymous) and node.name.upper() in ("DATE_PART", "DATEPART"):
        unit, value = node.expressions if len(node.expressions) == 2 else (None, None)
        if not isinstance(unit, exp.Literal) or unit.name.upper() != "YEAR":
            return None
    else:
        return None
    return value if isinstance(value, exp.Column) else None
