"""Owns how expressions are written: in commits as `deltalake` spells them, in constraints as every engine reads."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicate_sql import parse_expression
from deltalakedb.operations.spark_functions import RuleDialect

Node = Any
"""A node of sqlglot's tree."""

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPARISONS: Final[dict[type, str]] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_OPPOSITES: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ARITHMETIC: Final[dict[type, tuple[str, int]]] = {
    exp.Add: ("+", 4), exp.Sub: ("-", 4), exp.Mul: ("*", 5), exp.Div: ("/", 5), exp.Mod: ("%", 5),
}  # fmt: skip
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE",
                              "END"})  # fmt: skip
_FEW: Final = 3
"""Up to so many values of a list `deltalake` writes one by one."""
_OR, _AND, _NOT, _COMPARED, _ATOM = 0, 1, 2, 3, 6


class _NotPlainError(Exception):
    """The expression holds more than conditions and arithmetic."""


def commit_text(root: Node) -> str:
    """An expression as commits record it: spelled as `deltalake` does, as far as it is conditions and arithmetic."""
    try:
        return _write(root, _OR, '"')
    except _NotPlainError:
        return str(root.sql(dialect=DuckDB, normalize_functions="lower"))


def constraint_text(text: str) -> str:
    """A constraint as the table keeps it: only names that need quotes have them, and then those that Spark reads too.

    `deltalake` writes double quotes there, between which Spark reads a text.
    """
    try:
        return _write(parse_expression(text, RuleDialect), _OR, "`")
    except _NotPlainError:
        return _respell(text)


def _respell(text: str) -> str:
    """The same words with other quotes."""
    parts, position = [], 0
    for token in RuleDialect().tokenize(text):
        if token.token_type == TokenType.IDENTIFIER or token.text.upper() in _KEYWORDS:
            name = token.text
            word = _name(name, "`") if token.token_type == TokenType.IDENTIFIER else name.upper()
            parts += [text[position : token.start], word]
            position = token.end + 1
    return "".join([*parts, text[position:]])


def _write(node: Node, above: int, quote: str) -> str:
    """The node as SQL; in parentheses where what stands above it binds more tightly."""
    text, level = _spell(node, quote)
    return f"({text})" if level < above else text


def _spell(node: Node, quote: str) -> tuple[str, int]:
    match node:
        case exp.Paren():
            return _spell(node.this, quote)
        case exp.And():
            return " AND ".join(_write(part, _AND, quote) for part in node.flatten()), _AND
        case exp.Or():
            return " OR ".join(_write(part, _OR + 1, quote) for part in node.flatten()), _OR
        case exp.Not():
            return _negated(node.this, quote)
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"{_write(node.this, _COMPARED, quote)} IS NULL", _COMPARED
        case exp.Between() if not node.args.get("symmetric"):
            parts = (node.this, node.args["low"], node.args["high"])
            value, low, high = (_write(part, _COMPARED + 1, quote) for part in parts)
            return f"{value} >= {low} AND {value} <= {high}", _AND
        case exp.In() if node.expressions:
            return _in(node, quote, negate=bool(node.args.get("negate")))
        case exp.Like() if not node.args.get("negate"):
            return f"{_write(node.this, _COMPARED, quote)} LIKE {_write(node.expression, _COMPARED, quote)}", _COMPARED
        case exp.Column():
            return ".".join(_name(part.name, quote) for part in node.parts), _ATOM
        case exp.Literal():
            return node.sql(dialect=DuckDB), _ATOM
        case exp.Boolean() | exp.Null():
            return node.sql(dialect=DuckDB).lower() if isinstance(node, exp.Boolean) else "NULL", _ATOM
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{node.this.sql(dialect=DuckDB)}", _ATOM
    if type(node) in _COMPARISONS:
        left, right = (_write(part, _COMPARED + 1, quote) for part in (node.this, node.expression))
        return f"{left} {_COMPARISONS[type(node)]} {right}", _COMPARED
    if type(node) in _ARITHMETIC:
        sign, level = _ARITHMETIC[type(node)]
        return f"{_write(node.this, level, quote)} {sign} {_write(node.expression, level + 1, quote)}", level
    raise _NotPlainError


def _negated(node: Node, quote: str) -> tuple[str, int]:
    match node:
        case exp.Paren():
            return _negated(node.this, quote)
        case exp.Not():
            return _spell(node.this, quote)
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"{_write(node.this, _COMPARED, quote)} IS NOT NULL", _COMPARED
        case exp.In() if node.expressions:
            return _in(node, quote, negate=not node.args.get("negate"))
        case exp.Like():
            return (
                f"{_write(node.this, _COMPARED, quote)} NOT LIKE {_write(node.expression, _COMPARED, quote)}",
                _COMPARED,
            )
    sign = _OPPOSITES.get(_COMPARISONS.get(type(node), ""))
    if sign is None:
        return f"NOT {_write(node, _NOT, quote)}", _NOT
    left, right = (_write(part, _COMPARED + 1, quote) for part in (node.this, node.expression))
    return f"{left} {sign} {right}", _COMPARED


def _in(node: Node, quote: str, *, negate: bool) -> tuple[str, int]:
    value = _write(node.this, _COMPARED + 1, quote)
    items = [_write(one, _OR, quote) for one in node.expressions]
    if len(items) > _FEW:
        return f"{value} {'NOT ' if negate else ''}IN ({', '.join(items)})", _COMPARED
    if negate:
        return " AND ".join(f"{value} != {item}" for item in items), _AND if len(items) > 1 else _COMPARED
    return " OR ".join(f"{value} = {item}" for item in items), _OR if len(items) > 1 else _COMPARED


def _name(name: str, quote: str) -> str:
    return name if _is_bare(name) else f"{quote}{name.replace(quote, quote * 2)}{quote}"


@cache
def _is_bare(name: str) -> bool:
    """Whether a name is read as one without quotes: of letters and digits, and no word of the language."""
    if not _BARE.fullmatch(name):
        return False
    try:
        return isinstance(parse_expression(name), exp.Column)
    except PredicateError:
        return False
