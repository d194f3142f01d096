"""Owns how expressions are written: in commits as `deltalake` spells them, in constraints as every engine reads.

`deltalake` records what DataFusion's optimizer leaves of a predicate: constants are folded, a literal has the type of
the column it is compared with, a column stands on the left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final

import numpy as np
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.predicate_sql import parse_expression
from deltalakedb.operations.commit_predicates import rewrite_conditions
from deltalakedb.operations.constant_folding import (
    ARITHMETIC,
    COMPARISONS,
    MAX_TESTS,
    fold_constants,
    is_number,
    number_of,
)
from deltalakedb.operations.spark_functions import RuleDialect

Node = Any
"""A node of sqlglot's tree."""
FindColumn = Callable[[Sequence[str]], tuple[str, list[str], str]]
"""The alias, the names and the type of a column, by the parts of its name."""

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SMALL: Final = re.compile(r"[a-z_][a-z0-9_]*")
_OPPOSITES: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FUNCTIONS: Final[dict[type, str]] = {
    exp.Upper: "upper", exp.Lower: "lower", exp.Abs: "abs", exp.Concat: "concat", exp.Substring: "substr",
    exp.Trim: "btrim", exp.Nullif: "nullif", exp.Round: "round",
}  # fmt: skip
_KNOWN_TO_ALL: Final = frozenset({exp.Upper, exp.Lower, exp.Abs, exp.Nullif})
"""Functions that every engine calls so."""
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE",
                              "END"})  # fmt: skip
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final[dict[str, Any]] = {"float": np.float32, "double": np.float64}
_TIMESTAMPS: Final = {"timestamp": 'Some("UTC")', "timestamp_ntz": "None"}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_OR, _AND, _NOT, _COMPARED, _ATOM = 0, 1, 2, 3, 6


@dataclass(frozen=True, slots=True)
class _Style:
    """How names and literals are written."""

    quote: str
    find: FindColumn | None = None
    """Known where an expression is written as `deltalake` records it, which folds constants and types literals."""


class _NotPlainError(Exception):
    """The expression holds more than conditions and arithmetic."""


def commit_text(root: Node, find: FindColumn) -> str:
    """An expression as commits record it: spelled as `deltalake` does, as far as it is conditions and arithmetic."""
    root = root.copy()
    for node in root.walk():
        node.comments = None
    try:
        folded = fold_constants(root.copy())
        return _write(rewrite_conditions(folded, lambda one: _kind(one, find)), _OR, _Style('"', find))
    except _NotPlainError:
        for node in list(root.find_all(exp.TimestampTrunc, exp.DateTrunc)):
            unit = exp.Literal.string(node.args["unit"].name.lower())
            node.replace(exp.Anonymous(this="date_trunc", expressions=[unit, node.this]))
        return str(root.sql(dialect=DuckDB, normalize_functions="lower"))


def _kind(column: Node, find: FindColumn) -> str:
    return find([part.name for part in column.parts])[2]


def constraint_text(text: str) -> str:
    """A constraint as the table keeps it: only names that need quotes have them, and then those that Spark reads too.

    `deltalake` writes double quotes there, between which Spark reads a text.
    """
    root = parse_expression(text, RuleDialect)
    for node in root.walk():
        node.comments = None
    try:
        return _write(fold_constants(root), _OR, _Style("`"))
    except _NotPlainError:
        return _respell(text)


def _respell(text: str) -> str:
    """The same words with other quotes."""
    parts, position = [], 0
    for token in RuleDialect().tokenize(text):
        if token.token_type == TokenType.IDENTIFIER or token.text.upper() in _KEYWORDS:
            name = token.text
            word = _name(name, _Style("`")) if token.token_type == TokenType.IDENTIFIER else name.upper()
            parts += [text[position : token.start], word]
            position = token.end + 1
    return "".join([*parts, text[position:]])


# -- how it is spelled


def _write(node: Node, above: int, style: _Style) -> str:
    """The node as SQL; in parentheses where what stands above it binds more tightly."""
    text, level = _spell(node, style)
    return f"({text})" if level < above else text


def _spell(node: Node, style: _Style) -> tuple[str, int]:
    match node:
        case exp.Paren():
            return _spell(node.this, style)
        case exp.And():
            return " AND ".join(_write(part, _AND, style) for part in node.flatten()), _AND
        case exp.Or():
            return " OR ".join(_write(part, _OR, style) for part in node.flatten()), _OR
        case exp.Not():
            return _negated(node.this, style)
        case exp.Is():
            return _is(node, "IS", style)
        case exp.Between() if not node.args.get("symmetric"):
            value, low, high = _typed_parts(node.this, (node.args["low"], node.args["high"]), style)
            return f"{value} >= {low} AND {value} <= {high}", _AND
        case exp.In() if node.expressions:
            return _in(node, style, negate=bool(node.args.get("negate")))
        case exp.Like() | exp.ILike() if not node.args.get("negate"):
            return _like(node, "", style)
        case exp.Column():
            return _column(node, style), _ATOM
        case exp.Literal():
            is_fraction = style.find is not None and is_number(node) and not node.is_int
            is_whole = is_fraction and abs(number_of(node)) < 10**15 and number_of(node) % 1 == 0
            return str(int(number_of(node))) if is_whole else node.sql(dialect=DuckDB), _ATOM
        case exp.Boolean() | exp.Null():
            return node.sql(dialect=DuckDB).lower() if isinstance(node, exp.Boolean) else "NULL", _ATOM
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{node.this.sql(dialect=DuckDB)}", _ATOM
    if type(node) in COMPARISONS:
        return _comparison(node, COMPARISONS[type(node)], style)
    if type(node) in ARITHMETIC:
        sign, level = ARITHMETIC[type(node)]
        return f"{_write(node.this, level, style)} {sign} {_write(node.expression, level + 1, style)}", level
    if isinstance(node, exp.Case):
        return _case(node, style), _ATOM
    if style.find is not None:
        return _spell_more(node, style)
    if type(node) in _KNOWN_TO_ALL:
        return _call(node, style), _ATOM
    raise _NotPlainError


def _spell_more(node: Node, style: _Style) -> tuple[str, int]:
    """What stands in commits beside conditions and arithmetic."""
    match node:
        case exp.Bracket() if len(node.expressions) == 1:
            key = node.expressions[0]
            if isinstance(key, exp.Literal) and key.is_string:
                return f"get_field({_write(node.this, _OR, style)}, {key.sql(dialect=DuckDB)})", _ATOM
            # the parser counts from 0, SQL from 1
            place = str(int(number_of(key)) + 1) if is_number(key) else _write(key, _OR, style)
            return f"array_element({_write(node.this, _OR, style)}, {place})", _ATOM
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.to.this == exp.DataType.Type.DATE:
            return f"{node.this.sql(dialect=DuckDB)}::date", _ATOM
        case exp.Cast() if isinstance(node.this, exp.Column) and node.to.this in exp.DataType.TEXT_TYPES:
            return f"arrow_cast({_write(node.this, _OR, style)}, 'Utf8View')", _ATOM
        case exp.Extract():
            return f"date_part('{node.name.upper()}', {_write(node.expression, _OR, style)})", _ATOM
        case exp.RegexpLike() | exp.RegexpILike() if node.args.get("flag") is None:
            return _matched(node, "", style)
        case exp.HexString():
            return f"decode('{node.name.lower()}', 'hex')", _ATOM
        case exp.Neg():
            return f"(- {_write(node.this, _ATOM, style)})", _ATOM
    if type(node) not in _FUNCTIONS:
        raise _NotPlainError
    return _call(node, style), _ATOM


def _call(node: Node, style: _Style) -> str:
    arguments = ", ".join(_write(one, _OR, style) for one in node.iter_expressions())
    return f"{_FUNCTIONS[type(node)]}({arguments})"


def _case(node: Node, style: _Style) -> str:
    words = ["CASE", *([_write(node.this, _OR, style)] if node.this is not None else [])]
    for one in node.args["ifs"]:
        words += ["WHEN", _write(one.this, _OR, style), "THEN", _write(one.args["true"], _OR, style)]
    if node.args.get("default") is not None:
        words += ["ELSE", _write(node.args["default"], _OR, style)]
    return " ".join([*words, "END"])


def _is(node: Node, word: str, style: _Style) -> tuple[str, int]:
    value = _write(node.this, _COMPARED, style)
    if isinstance(node.expression, exp.Null):
        return f"{value} {word} NULL", _COMPARED
    if isinstance(node.expression, exp.Boolean):
        return f"{value} {word} {'TRUE' if node.expression.this else 'FALSE'}", _COMPARED
    raise _NotPlainError


def _like(node: Node, negation: str, style: _Style) -> tuple[str, int]:
    word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    pattern = node.expression
    if style.find is not None and word == "LIKE" and _is_plain_text(pattern):
        sign = "!=" if negation else "="
        return f"{_write(node.this, _COMPARED, style)} {sign} {_write(pattern, _COMPARED, style)}", _COMPARED
    return f"{_write(node.this, _COMPARED, style)} {negation}{word} {_write(pattern, _COMPARED, style)}", _COMPARED


def _matched(node: Node, negation: str, style: _Style) -> tuple[str, int]:
    word = "~*" if isinstance(node, exp.RegexpILike) else "~"
    pattern = _write(node.expression, _COMPARED, style)
    return f"{_write(node.this, _COMPARED, style)} {negation}{word} {pattern}", _COMPARED


def _is_plain_text(pattern: Node) -> bool:
    return isinstance(pattern, exp.Literal) and pattern.is_string and not set(pattern.name) & set("%_\\")


def _comparison(node: Node, sign: str, style: _Style) -> tuple[str, int]:
    left, right = node.this, node.expression
    if not isinstance(left, exp.Column) and _is_literal(left) and not _is_literal(right):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if isinstance(left, exp.Column) and isinstance(right, exp.Column) and _order(right) > _order(left):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if isinstance(right, exp.Boolean) and sign == "=":
        return _spell(left, style) if right.this else _negated(left, style)
    left = _without_cast(left, right, style)
    one, (other,) = _typed_first(left, (right,), style)
    return f"{one} {sign} {other}", _COMPARED


def _order(column: Node) -> list[str]:
    """By which of two columns DataFusion puts one to the left: the one that is last in the alphabet."""
    names = [part.name for part in column.parts]
    return names if len(names) > 1 else ["", *names]


def _is_literal(node: Node) -> bool:
    return is_number(node) or isinstance(node, exp.Literal)


def _without_cast(node: Node, other: Node, style: _Style) -> Node:
    """A whole number that is compared as text, or as another whole number, is compared as it is."""
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Column) or not _is_literal(other):
        return node
    if _type_of(node.this, style) not in _INTEGERS:
        return node
    to = node.to.this
    fits = to in exp.DataType.INTEGER_TYPES or (to in exp.DataType.TEXT_TYPES and other.name.lstrip("-").isdigit())
    return node.this if fits else node


def _typed_parts(value: Node, others: Sequence[Node], style: _Style) -> list[str]:
    one, rest = _typed_first(value, others, style)
    return [one, *rest]


def _typed_first(value: Node, others: Sequence[Node], style: _Style) -> tuple[str, list[str]]:
    """A value and what it is compared with; literals as those of the value's type."""
    kind = _type_of(value, style)
    texts = [_literal(other, kind) or _write(other, _COMPARED + 1, style) for other in others]
    return _write(value, _COMPARED + 1, style), texts


def _type_of(node: Node, style: _Style) -> str:
    if style.find is None:
        return ""
    if isinstance(node, exp.Column):
        return style.find([part.name for part in node.parts])[2]
    if isinstance(node, exp.Bracket) and isinstance(node.this, exp.Column) and len(node.expressions) == 1:
        key = node.expressions[0]
        if isinstance(key, exp.Literal) and key.is_string:
            try:
                return style.find([*(part.name for part in node.this.parts), key.name])[2]
            except PredicateError:
                return ""
    return ""


def _literal(node: Node, kind: str) -> str | None:
    """A literal as one of a column's type; None for what is written as it stands."""
    if not kind or not _is_literal(node):
        return None
    text = f"-{node.this.name}" if isinstance(node, exp.Neg) else node.name
    try:
        if kind in _INTEGERS:
            return str(int(Decimal(text))) if Decimal(text) % 1 == 0 else None
        if kind in _FLOATS:
            from deltalakedb.data.partitioning import float_text

            return float_text(_FLOATS[kind](text))
        if kind == "date":
            return f"'{text}'::date"
        if kind in _TIMESTAMPS:
            return f"arrow_cast('{_moment(text)}', 'Timestamp(Microsecond, {_TIMESTAMPS[kind]})')"
        if kind == "string" and not isinstance(node, exp.Neg) and not node.is_string:
            return f"'{text}'"
        if (match := _DECIMAL.fullmatch(kind)) is not None:
            unscaled = Decimal(text).scaleb(int(match[2]))
            return None if unscaled % 1 else f"'{int(unscaled)}'::decimal({match[1]}, {match[2]})"
    except (ValueError, InvalidOperation, OverflowError):
        return None
    return None


def _moment(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat("T", "microseconds")


def _negated(node: Node, style: _Style) -> tuple[str, int]:
    match node:
        case exp.Paren():
            return _negated(node.this, style)
        case exp.Not():
            return _spell(node.this, style)
        case exp.Is():
            return _is(node, "IS NOT", style)
        case exp.In() if node.expressions:
            return _in(node, style, negate=not node.args.get("negate"))
        case exp.Like() | exp.ILike():
            return _like(node, "NOT ", style)
        case exp.RegexpLike() | exp.RegexpILike() if style.find is not None and node.args.get("flag") is None:
            return _matched(node, "!", style)
    sign = _OPPOSITES.get(COMPARISONS.get(type(node), ""))
    if sign is None:
        return f"NOT {_write(node, _NOT, style)}", _NOT
    return _comparison(node, sign, style)


def _in(node: Node, style: _Style, *, negate: bool) -> tuple[str, int]:
    value, *items = _typed_parts(node.this, node.expressions, style)
    if len(items) > MAX_TESTS:
        return f"{value} {'NOT ' if negate else ''}IN ({', '.join(items)})", _COMPARED
    if negate:
        return " AND ".join(f"{value} != {item}" for item in items), _AND if len(items) > 1 else _COMPARED
    return " OR ".join(f"{value} = {item}" for item in items), _OR if len(items) > 1 else _COMPARED


def _column(node: Node, style: _Style) -> str:
    parts = [part.name for part in node.parts]
    if style.find is None:
        return ".".join(_name(part, style) for part in parts)
    inside = len(style.find(parts)[1]) - 1
    column = ".".join(_name(part, style) for part in parts[: len(parts) - inside])
    for field in parts[len(parts) - inside :]:
        quoted = field.replace("'", "''")
        column = f"get_field({column}, '{quoted}')"
    return column


def _name(name: str, style: _Style) -> str:
    """A name, in quotes where it needs them; in commits those of `deltalake`, which knows no words of the language."""
    bare = _is_bare(name) if style.find is None else _SMALL.fullmatch(name)
    return name if bare else f"{style.quote}{name.replace(style.quote, style.quote * 2)}{style.quote}"


@cache
def _is_bare(name: str) -> bool:
    """Whether a name is read as one without quotes: of letters and digits, and no word of the language."""
    if not _BARE.fullmatch(name):
        return False
    try:
        return isinstance(parse_expression(name), exp.Column)
    except PredicateError:
        return False
