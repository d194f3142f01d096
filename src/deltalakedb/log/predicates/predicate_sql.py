"""Parses predicates in SQL: converts sqlglot's tree to atoms, pushing `not` inwards by three-valued logic."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from math import inf, isfinite
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.helper import seq_get
from sqlglot.tokenizer_core import TokenType

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import FALSE, TRUE, Column, Dnf, Unknown
from deltalakedb.log.predicates.literals import (
    Instant,
    Value,
    compare,
    not_starts_with,
    parse_date,
    parse_instant,
    starts_with,
)
from deltalakedb.log.predicates.predicate import null_test

Resolve = Callable[[Sequence[str]], Column]
Node = Any
"""A node of sqlglot's tree; the library's names for its types change between releases."""


_OTHERWISE_IN_DUCKDB: Final = ("ENCODE", "DECODE", "SHA256", "TO_HEX", "ARRAY_HAS", "ARRAY_SORT")
"""Functions whose arguments, results or names DuckDB's grammar changes."""


_OF_ARRAYS: Final = (
    "ADD", "ANY_VALUE", "APPEND", "AVG", "CAT", "COMPACT", "CONCAT", "CONTAINS", "DIMS", "DISTANCE", "DISTINCT",
    "ELEMENT", "EMPTY", "EXCEPT", "EXTRACT", "HAS", "HAS_ALL", "HAS_ANY", "INDEXOF", "INTERSECT", "JOIN", "LENGTH",
    "MAX", "NDIMS", "NORMALIZE", "POP_BACK", "POP_FRONT", "POSITION", "PREPEND", "PRODUCT", "PUSH_BACK",
    "PUSH_FRONT", "REMOVE", "REMOVE_ALL", "REMOVE_N", "REPEAT", "REPLACE", "REPLACE_ALL", "REPLACE_N", "RESIZE",
    "REVERSE", "SCALE", "SLICE", "SORT", "SUBTRACT", "SUM", "TO_STRING", "UNION",
)  # fmt: skip
"""Functions of DataFusion that are called `array_` and `list_`."""


def _array_function(name: str) -> Callable[[list[Node]], Node]:
    """What makes a node of `array_name(...)`."""
    known: Callable[[list[Node]], Node] | None = DuckDB.Parser.FUNCTIONS.get(f"ARRAY_{name}")
    if known is None or f"ARRAY_{name}" in _OTHERWISE_IN_DUCKDB:
        return lambda args: exp.Anonymous(this=f"array_{name.lower()}", expressions=args)
    return known


class DataFusion(DuckDB):
    """DataFusion's SQL where it differs from DuckDB's: backquoted names, bytes as `x'00'`, `^` for exclusive or."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012  (sqlglot's way to configure a tokenizer)
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]  # a class that sqlglot makes
        BITWISE = sqlglot.Parser.BITWISE
        EXPONENT = {TokenType.DSTAR: exp.Pow}  # noqa: RUF012

        def _parse_bitwise(self) -> Node:
            return _bind_operators(super()._parse_bitwise())

        FUNCTIONS = {  # noqa: RUF012
            **{name: make for name, make in DuckDB.Parser.FUNCTIONS.items() if name not in _OTHERWISE_IN_DUCKDB},
            **{f"LIST_{name}": _array_function(name) for name in _OF_ARRAYS},
            "DATE_BIN": lambda args: exp.DateBin(
                this=seq_get(args, 0), expression=seq_get(args, 1), origin=seq_get(args, 2)
            ),
            "LOG2": lambda args: exp.Anonymous(this="log2", expressions=args),
            "LOG10": lambda args: exp.Anonymous(this="log10", expressions=args),
            "TO_TIMESTAMP": lambda args: (
                exp.UnixToTime(this=seq_get(args, 0), scale=seq_get(args, 1))
                if len(args) < 3
                else exp.Anonymous(this="to_timestamp", expressions=args)
            ),
        }
        FUNCTION_PARSERS = {  # noqa: RUF012
            **DuckDB.Parser.FUNCTION_PARSERS,
            "POSITION": lambda self: self._parse_position(haystack_first=True),
        }


_TIGHTNESS: Final[dict[type, int]] = {
    exp.BitwiseOr: 1, exp.BitwiseXor: 2, exp.BitwiseLeftShift: 2, exp.BitwiseRightShift: 2, exp.BitwiseAnd: 3,
}  # fmt: skip
"""How tightly operators on bits bind in DataFusion; sqlglot takes them from left to right."""


def _bind_operators(node: Node) -> Node:
    """A chain of operators on bits, `a | b & c`, with those that bind more tightly taken first."""
    chain: list[tuple[Any, Node]] = []
    while type(node) in _TIGHTNESS:
        chain.append((type(node), node.expression))
        node = node.this
    if len(chain) < 2:
        return chain[0][0](this=node, expression=chain[0][1]) if chain else node
    operands: list[Node] = [node]
    kinds: list[Any] = []
    for kind, operand in reversed(chain):
        while kinds and _TIGHTNESS[kinds[-1]] >= _TIGHTNESS[kind]:
            right = operands.pop()
            operands.append(exp.Paren(this=kinds.pop()(this=operands.pop(), expression=right)))
        kinds.append(kind)
        operands.append(operand)
    while kinds:
        right = operands.pop()
        operands.append(exp.Paren(this=kinds.pop()(this=operands.pop(), expression=right)))
    return operands[0].this


_NO_EXPRESSION: Final = "Expected: an expression, found: EOF"


class _Null:
    """The literal `null`."""


_NULL: Final = _Null()
_COMPARISONS: Final[dict[type, str]] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_INTEGER_BITS: Final = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_DECIMAL_TEXT: Final = re.compile(r"-?[0-9]{1,38}(\.[0-9]{1,38})?")
_TEXT_TYPES: Final = ("TEXT", "VARCHAR", "CHAR")
_LOCAL_TYPES: Final = ("TIMESTAMP", "TIMESTAMPNTZ")
_ZONED_TYPES: Final = ("TIMESTAMPTZ", "TIMESTAMPLTZ")


def read_sql(text: str, resolve: Resolve) -> Dnf:
    root = parse_expression(text)
    _check_columns(root, resolve)
    return _Reader(resolve).read(root, negate=False)


def parse_expression(text: str, dialect: type[DuckDB] = DataFusion) -> Node:
    try:
        statements = sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise PredicateError(f"sql parser error: {_what_is_wrong(text, error)}: {text[:200]!r}") from error
    if len(statements) != 1 or statements[0] is None:
        what = "a predicate is one condition" if len(statements) > 1 else _NO_EXPRESSION
        raise PredicateError(f"sql parser error: {what}: {text[:200]!r}")
    root = statements[0]
    if isinstance(root, exp.Alias | exp.Query | exp.DDL | exp.DML | exp.Command | exp.Drop):
        raise PredicateError(f"a predicate is a condition, not a statement or a named expression: {text[:200]!r}")
    return root


def _what_is_wrong(text: str, error: Exception) -> str:
    """Describes a syntax error, in the words of `deltalake` for the usual mistakes."""
    places = getattr(error, "errors", None)
    if not places:
        is_open = text.replace("''", "").count("'") % 2
        return (
            f"Unterminated string literal at Line: 1, Column: {text.rindex(chr(39)) + 1}"
            if is_open
            else "nested too deep"
        )
    detail = str(places[0]["description"])
    return _NO_EXPRESSION if detail.startswith("Required keyword") else detail


def spell(root: Node) -> str:
    """Renders a tree as DuckDB's SQL; raises for what DuckDB does not support, and never omits it."""
    try:
        return str(root.sql(dialect=DuckDB, unsupported_level=ErrorLevel.RAISE))
    except SqlglotError as error:
        raise PredicateError(f"an expression holds what cannot be judged here: {error}") from error


def _check_columns(root: Node, resolve: Resolve) -> None:
    """Raises for an unknown column, even in a part that does not prune."""
    for node in root.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
        if isinstance(node, exp.Column):
            resolve([part.name for part in node.parts])


class _Reader:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def read(self, node: Node, *, negate: bool) -> Dnf:
        """The rows for which `node` (or `not node`) may be true; rows for which it is false or null are left out."""
        if isinstance(node, exp.Paren):
            return self.read(node.this, negate=negate)
        if isinstance(node, exp.Not):
            return self.read(node.this, negate=not negate)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.read(part, negate=negate) for part in node.flatten()]
            return dnf.all_of(parts) if isinstance(node, exp.And) != negate else dnf.any_of(parts)
        if isinstance(node, exp.Boolean):
            return TRUE if bool(node.this) != negate else FALSE
        if isinstance(node, exp.Null):
            return FALSE
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)], negate)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            return self._null_safe(node, distinct=isinstance(node, exp.NullSafeNEQ) != negate)
        if isinstance(node, exp.Is):
            return self._is(node, negate)
        if isinstance(node, exp.In):
            return self._in(node, negate != bool(node.args.get("negate")))
        if isinstance(node, exp.Between):
            return self._between(node, negate != bool(node.args.get("negate")))
        if isinstance(node, exp.Like):
            return self._like(node, negate != bool(node.args.get("negate")))
        if isinstance(node, exp.StartsWith):
            return self._starts_with(node, negate)
        column = self._column(node)
        if column is not None and column.type_name == "boolean":
            return compare(column, "=", not negate)
        return _unknown(node)

    def _column(self, node: Node) -> Column | None:
        parts: list[str] = []
        while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            parts.insert(0, node.expression.name)
            node = node.this
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column):
            return None
        return self._resolve([*(part.name for part in node.parts), *parts])

    def _comparison(self, node: Node, op: str, negate: bool) -> Dnf:
        column, value = self._column(node.this), _literal(node.expression)
        if column is None:
            column, value = self._column(node.expression), _literal(node.this)
            op = _MIRRORED[op]
        if column is None or value is None:
            return _unknown(node)
        return _compare(column, _NEGATED[op] if negate else op, value)

    def _null_safe(self, node: Node, *, distinct: bool) -> Dnf:
        """`<=>` and `is [not] distinct from`: null compares like any other value."""
        column, value = self._column(node.this), _literal(node.expression)
        if column is None:
            column, value = self._column(node.expression), _literal(node.this)
        if column is None or value is None:
            return _unknown(node)
        if isinstance(value, _Null):
            return null_test(column, is_null=not distinct)
        if not distinct:
            return _compare(column, "=", value)
        return dnf.any_of([_compare(column, "!=", value), null_test(column, is_null=True)])

    def _is(self, node: exp.Is, negate: bool) -> Dnf:
        column = self._column(node.this)
        if column is None:
            return _unknown(node)
        if isinstance(node.expression, exp.Null):
            return null_test(column, is_null=not negate)
        if not isinstance(node.expression, exp.Boolean) or column.type_name != "boolean":
            return _unknown(node)
        truth = bool(node.expression.this)
        if not negate:
            return _compare(column, "=", truth)
        return dnf.any_of([_compare(column, "=", not truth), null_test(column, is_null=True)])

    def _in(self, node: exp.In, negate: bool) -> Dnf:
        column = self._column(node.this)
        items = [_literal(item) for item in node.expressions]
        if column is None or not items or any(item is None for item in items):
            return _unknown(node)
        values = [item for item in items if item is not None and not isinstance(item, _Null)]
        if negate:
            # `x not in (1, null)` is never true.
            return FALSE if len(values) < len(items) else compare(column, "!=", *values)
        return compare(column, "=", *values) if values else FALSE

    def _between(self, node: exp.Between, negate: bool) -> Dnf:
        column, low, high = self._column(node.this), _literal(node.args["low"]), _literal(node.args["high"])
        if column is None or low is None or high is None or node.args.get("symmetric"):
            return _unknown(node)
        values = [end for end in (low, high) if not isinstance(end, _Null)]
        if any(isinstance(atom, Unknown) for atoms in compare(column, "=", *values) for atom in atoms):
            return _unknown(node)
        if negate:
            return dnf.any_of([_compare(column, "<", low), _compare(column, ">", high)])
        return dnf.all_of([_compare(column, ">=", low), _compare(column, "<=", high)])

    def _like(self, node: exp.Like, negate: bool) -> Dnf:
        column, pattern = self._column(node.this), _literal(node.expression)
        if isinstance(pattern, _Null):
            return FALSE
        if pattern is None and isinstance(node.expression, exp.Literal) and node.expression.is_string:
            pattern = node.expression.name
        if column is None or not isinstance(pattern, str):
            return _unknown(node)
        # What follows a backslash is not read: all engines agree only on what stands before it.
        position = min((pattern.find(char) for char in "%_\\" if char in pattern), default=None)
        if position is None:
            return _compare(column, "!=" if negate else "=", pattern)
        prefix, rest_matters = pattern[:position], pattern[position:].strip("%") != ""
        if not negate:
            return dnf.atom(starts_with(column, prefix, rest_matters=rest_matters))
        return null_test(column, is_null=False) if rest_matters else dnf.atom(not_starts_with(column, prefix))

    def _starts_with(self, node: exp.StartsWith, negate: bool) -> Dnf:
        column, prefix = self._column(node.this), _literal(node.expression)
        if column is None or not isinstance(prefix, str):
            return _unknown(node)
        return dnf.atom(not_starts_with(column, prefix) if negate else starts_with(column, prefix, rest_matters=False))


def _compare(column: Column, op: str, value: Value | _Null) -> Dnf:
    return FALSE if isinstance(value, _Null) else compare(column, op, value)


def _unknown(node: Node) -> Dnf:
    sql = node.sql(dialect=DataFusion)
    return dnf.unknown(f"bounds say nothing about {sql[:80]}{'...' if len(sql) > 80 else ''}")


# ---- literals


def _literal(node: Node) -> Value | _Null | None:
    """The value of a literal; None if the node is not a literal, or one that engines read differently."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return _NULL
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return _text(node.name) if node.is_string else _number(node.name)
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        return -value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None
    if isinstance(node, exp.Date) and len([arg for arg in node.args.values() if arg]) == 1:
        value = _literal(node.this)
        return parse_date(value) if isinstance(value, str) else None
    if type(node) in (exp.Cast, exp.TryCast):
        return _cast(_literal(node.this), node.to)
    return None


def _text(text: str) -> str | None:
    """None for a text with a backslash, which is an escape in Spark and a character elsewhere."""
    return None if "\\" in text else text


def _number(text: str) -> Value | None:
    try:
        if text.isdigit():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, InvalidOperation):
        return None


def _cast(value: Value | _Null | None, to: exp.DataType) -> Value | _Null | None:
    """The result of casting a literal, if all engines agree on it."""
    if value is None or isinstance(value, _Null):
        return value
    name = to.this.name if hasattr(to.this, "name") else ""
    if name == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if isinstance(value, str):
        return _cast_text(value, name, to)
    if isinstance(value, date):
        return value if name == "DATE" else None
    if isinstance(value, Instant):
        return value if name in _LOCAL_TYPES and value.clock == "local" else None
    return _cast_number(value, name, to) if not isinstance(value, bool) else None


def _cast_text(text: str, name: str, to: Node) -> Value | None:
    if name in _TEXT_TYPES:
        return text
    if name == "DATE":
        return parse_date(text)
    if name in _LOCAL_TYPES:
        instant = parse_instant(text)
        # DuckDB keeps the UTC time as a wall clock time, Spark keeps the instant.
        return Instant(instant.micros, "either") if instant and instant.clock == "utc" else instant
    if name in _ZONED_TYPES:
        return parse_instant(text)
    if name in _INTEGER_BITS and text.removeprefix("-").isdigit() and text.isascii():
        return _fits(int(text), name)
    if name in ("DOUBLE", "FLOAT"):
        value = _float(text)
        return value if value is None or name == "DOUBLE" or not isfinite(value) else _cast_number(value, name, to)
    if name == "DECIMAL" and _DECIMAL_TEXT.fullmatch(text):
        return _cast_number(Decimal(text), name, to)
    return None


def _float(text: str) -> float | None:
    try:
        return float(text) if text == text.strip() and "_" not in text else None
    except ValueError:
        return None


def _cast_number(value: int | float | Decimal, name: str, to: exp.DataType) -> Value | None:
    size = _size(value)
    if name == "DOUBLE":
        return float(value) if size < 1e300 else None
    if name == "FLOAT":
        single = struct.unpack("f", struct.pack("f", value))[0] if size < 1e38 else None
        return float(single) if single == value else None
    if name in _INTEGER_BITS:
        return _fits(int(value), name) if size < 2**63 and value == int(value) else None
    if name == "DECIMAL" and not isinstance(value, float) and len(to.expressions) == 2:
        precision, scale = (int(param.name) for param in to.expressions)
        return value if _fits_decimal(Decimal(value), precision, scale) else None
    return None


def _size(value: int | float | Decimal) -> float:
    try:
        return abs(float(value))
    except OverflowError:
        return inf


def _fits_decimal(value: Decimal, precision: int, scale: int) -> bool:
    _, digits, exponent = value.normalize(Context(prec=80)).as_tuple()
    whole = len(digits) + int(exponent)
    return -int(exponent) <= scale and whole <= precision - scale


def _fits(value: int, name: str) -> int | None:
    return value if -(2 ** _INTEGER_BITS[name]) <= value < 2 ** _INTEGER_BITS[name] else None
