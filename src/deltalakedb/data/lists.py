"""Owns what DataFusion means by comparisons with the values of a list, and by functions that make lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.data.value_kinds import Node

_QUERIES: Final = (exp.Query, exp.Subquery, exp.Tuple)
_QUANTIFIERS: Final = ("ALL", "SOME")
"""Those that sqlglot takes for functions."""


def compare_with_list(node: Node) -> Node:
    """A comparison such as `x > all(list)` or `x = any(list)`, null if the list is null; others as they are.

    DuckDB takes a list that is null for an empty one, all values of which are as the comparison wants them.
    """
    values = _list_beside(node)
    if values is None:
        return node
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        return exp.Anonymous(this="LIST_CONTAINS", expressions=[values.copy(), node.this])
    is_there = exp.Not(this=exp.Is(this=values.copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=is_there, true=node.copy())])


def _list_beside(node: Node) -> Node | None:
    """The list that a comparison is with all or any values of; None for another one, and for one with a query."""
    right = node.expression
    if isinstance(right, exp.Any):
        values = right.this.this if isinstance(right.this, exp.Paren) else right.this
    elif isinstance(right, exp.Anonymous) and right.name.upper() in _QUANTIFIERS and len(right.expressions) == 1:
        (values,) = right.expressions
    else:
        return None
    return None if isinstance(values, _QUERIES) else values


def series_of(node: Node) -> Node:
    """`generate_series` and `range`: those of dates have dates. Where a query reads from one, it is a table."""
    start = node.args["start"]
    has_dates = isinstance(start, exp.Cast) and start.to.this == exp.DataType.Type.DATE
    if not has_dates or isinstance(node.parent, exp.Table):
        return node
    return exp.cast(node.copy(), "date[]", dialect=DuckDB)


def sort_list(arguments: Sequence[Node]) -> Node:
    """`array_sort(list, 'DESC', 'NULLS LAST')`: upwards and nulls first unless it says otherwise.

    DuckDB's own order puts nulls last.
    """
    usual = (exp.Literal.string("ASC"), exp.Literal.string("NULLS FIRST"))
    return exp.Anonymous(this="LIST_SORT", expressions=[*arguments, *usual[len(arguments) - 1 :]])
