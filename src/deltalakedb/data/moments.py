"""Owns dates and moments in expressions: their formats, parts, time zones and intervals, as DataFusion has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.exceptions import PredicateError

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
KindOf: TypeAlias = Callable[[Node], str | None]
"""The type of a column, as Delta calls it; None where it is not known."""

_SPECIFIER: Final = re.compile(r"%(-?)(\.?[369]?f|[A-Za-z%+]|:+z|.)", re.DOTALL)
_SAME: Final = frozenset("YymdbBaAHIMSpjUWGVuw%")
_UNPADDED: Final = frozenset("ymdHIMSj")
_SPELLED: Final = {
    "h": "%b", "D": "%m/%d/%y", "x": "%m/%d/%y", "F": "%Y-%m-%d", "T": "%H:%M:%S", "X": "%H:%M:%S", "R": "%H:%M",
    "r": "%I:%M:%S %p", "t": "\t", "n": "\n", ".3f": ".%g", ".6f": ".%f", ".9f": ".%n",
}  # fmt: skip
_SHOWN: Final = {"f": "%n", "3f": "%g", "6f": "%f", "9f": "%n"}
_PARSED: Final = {"z": "%z", ".f": ".%f", ".9f": ".%n", ".6f": ".%f", ".3f": ".%g"}
_TEXTS: Final = frozenset(exp.DataType.TEXT_TYPES)
_MOMENTS: Final = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)
_ZONED: Final = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)
_PARTS: Final = ("DATE_PART", "DATEPART")


def format_of(function: str, node: Node, *, parses: bool = False) -> Node:
    """A format of chrono, Rust's library of times, in DuckDB's letters; PredicateError for what DuckDB has not."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise PredicateError(f"{function} takes its format as a text that is written out")
    table = _SPELLED | (_PARSED if parses else _SHOWN)

    def spell(match: re.Match[str]) -> str:
        unpadded, letter = match[1], match[2]
        if (unpadded and letter in _UNPADDED) or (not unpadded and letter in _SAME):
            return match[0]
        if unpadded or letter not in table:
            raise PredicateError(f"{function}: {match[0]!r} in the format {node.name!r} is not known here")
        return table[letter]

    return exp.Literal.string(_SPECIFIER.sub(spell, node.name))


def parse_moment(function: str, value: Node, formats: Sequence[Node]) -> Node:
    """A text as the moment that one of the formats reads, in UTC."""
    read = [format_of(function, one, parses=True) for one in formats]
    form = read[0] if len(read) == 1 else exp.Anonymous(this="LIST_VALUE", expressions=read)
    parsed = exp.Anonymous(this="STRPTIME", expressions=[value.copy(), form])
    return exp.cast(parsed, "timestamp", dialect=DuckDB)


def show_moment(value: Node, form: Node) -> Node:
    """`to_char`."""
    return exp.Anonymous(this="STRFTIME", expressions=[value.copy(), format_of("to_char", form)])


def bin_moment(node: Node) -> Node:
    """`date_bin`: bins begin in 1970; those of DuckDB in 2000."""
    origin = node.args.get("origin")
    if origin is None:
        origin = exp.cast(exp.Literal.string("1970-01-01"), "timestamp", dialect=DuckDB)
    return exp.Anonymous(this="TIME_BUCKET", expressions=[node.this.copy(), node.expression.copy(), origin.copy()])


def part_of(node: Node) -> Node:
    """`date_part` and `extract` of the parts that DuckDB has not, or not exactly."""
    if isinstance(node, exp.Extract):
        part, moment = node.name.lower(), node.expression
    elif len(node.expressions) == 2 and isinstance(node.expressions[0], exp.Literal):
        part, moment = node.expressions[0].name.lower(), node.expressions[1]
    else:
        return node
    if part == "epoch":
        micros = exp.cast(exp.Anonymous(this="EPOCH_US", expressions=[moment.copy()]), "double")
        return exp.Paren(this=exp.Div(this=micros, expression=exp.Literal.number("1000000e0")))
    if part in ("nanosecond", "nanoseconds"):
        part_of_second = exp.Anonymous(this="DATE_PART", expressions=[exp.Literal.string("microsecond"), moment.copy()])
        return exp.Paren(this=exp.Mul(this=part_of_second, expression=exp.Literal.number(1000)))
    return node


def place_in_zones(root: Node, kind_of: KindOf) -> None:
    """Let `at time zone` give moments of that zone.

    Their parts and dates are those of the zone's clocks; compared or stored they are moments. DuckDB gives a clock's
    time of a moment, and a moment of a clock's time.
    """
    for node in list(root.find_all(exp.AtTimeZone)):
        zoned = _is_zoned(node.this, kind_of)
        if zoned is None:
            raise PredicateError(f"at time zone is known here of columns and casts, not of {node.this.sql(DuckDB)!r}")
        above = _without_parentheses(node.parent)
        clock = node.copy() if zoned else node.this.copy()
        moment = node.this.copy() if zoned else node.copy()
        if _needs_clock(above):
            node.replace(clock)
        elif isinstance(above, exp.TimestampTrunc | exp.DateTrunc) and not _shows(_without_parentheses(above.parent)):
            node.replace(clock)
            above.replace(exp.AtTimeZone(this=above.copy(), zone=node.args["zone"].copy()))
        elif _shows(above) or isinstance(above, exp.TimestampTrunc | exp.DateTrunc):
            raise PredicateError("the text of a moment in a time zone is not known here; use to_char")
        else:
            node.replace(moment)


def _without_parentheses(node: Node) -> Node:
    while isinstance(node, exp.Paren):
        node = node.parent
    return node


def _is_zoned(node: Node, kind_of: KindOf) -> bool | None:
    """Whether a value is a moment, not the time of a clock; None where that is not known."""
    if isinstance(node, exp.Paren):
        return _is_zoned(node.this, kind_of)
    if isinstance(node, exp.Column):
        return {"timestamp": True, "timestamp_ntz": False, "date": False}.get(kind_of(node) or "")
    if isinstance(node, exp.Cast):
        return True if node.to.this in _ZONED else False if node.to.this in _MOMENTS else None
    if isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and node.name.upper() == "NOW"):
        return True
    return False if isinstance(node, exp.UnixToTime | exp.AtTimeZone) else None


def _needs_clock(node: Node) -> bool:
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.TIME)
    return isinstance(node, exp.Extract | exp.ToChar) or (
        isinstance(node, exp.Anonymous) and node.name.upper() in (*_PARTS, "DATE_FORMAT", "TO_LOCAL_TIME", "TO_DATE")
    )


def _shows(node: Node) -> bool:
    is_text = isinstance(node, exp.Cast) and node.to.this in _TEXTS
    return is_text or isinstance(node, exp.DPipe | exp.Concat | exp.ConcatWs)


def keep_dates(node: Node, kind_of: KindOf) -> Node:
    """A date and an interval make a date; DuckDB makes a moment of them."""
    sides = (node.this, node.expression)
    if any(isinstance(one, exp.Interval) for one in sides) and any(_is_date(one, kind_of) for one in sides):
        return exp.cast(exp.Paren(this=node.copy()), "date")
    return node


def _is_date(node: Node, kind_of: KindOf) -> bool:
    if isinstance(node, exp.Paren):
        return _is_date(node.this, kind_of)
    if isinstance(node, exp.Cast):
        return bool(node.to.this == exp.DataType.Type.DATE)
    return isinstance(node, exp.CurrentDate) or (isinstance(node, exp.Column) and kind_of(node) == "date")
