"""Owns the parts of a parsed predicate: columns, atoms on them, and their disjunctive normal form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Literal

from deltalakedb.log.predicates.ranges import NumberRange, Ranges, TextRange, next_down, next_up

Kind = Literal["number", "date", "timestamp", "text"]
FLOATS = frozenset({"float", "double"})
"""The types whose values may be NaN."""


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column in a predicate; `kind` is how its bounds are stored, None if it has none."""

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    type_name: str
    kind: Kind | None
    is_partition: bool = False
    fuzzy_float: bool = False
    """Statistics may be in single precision: the column is, or once was, a `float`."""
    unprunable: str = ""
    """Why bounds cannot be used for this column (a collation, padding, a boolean), although its nulls are counted."""

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Within:
    """The value is not null and in one of the ranges (sorted, disjoint), or is NaN if `nan` is set."""

    column: Column
    ranges: Ranges
    nan: bool = False
    exact: bool = True
    """Whether every value in the ranges satisfies the atom; False if the ranges were widened."""

    def __str__(self) -> str:
        ranges = [_show(item, self.column) for item in self.ranges[:3]] + ["NaN"] * self.nan
        more = f" or {len(self.ranges) - 3} more" if len(self.ranges) > 3 else ""
        return f"{self.column.name} in {' or '.join(ranges)}{more}"


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column

    def __str__(self) -> str:
        return f"{self.column.name} is null"


@dataclass(frozen=True, slots=True)
class IsNotNull:
    column: Column

    def __str__(self) -> str:
        return f"{self.column.name} is not null"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that bounds cannot decide: it may be true for any file."""

    reason: str

    def __str__(self) -> str:
        return f"not used: {self.reason}"


Atom = Within | IsNull | IsNotNull | Unknown
Conjunct = tuple[Atom, ...]
Dnf = tuple[Conjunct, ...]

TRUE: Dnf = ((),)
FALSE: Dnf = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A row can satisfy the predicate only if it satisfies every atom of one of the disjuncts."""

    text: str
    disjuncts: Dnf

    @property
    def columns(self) -> tuple[Column, ...]:
        columns = {a.column: None for atoms in self.disjuncts for a in atoms if not isinstance(a, Unknown)}
        return tuple(columns)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why parts of the predicate do not prune."""
        reasons = {a.reason: None for atoms in self.disjuncts for a in atoms if isinstance(a, Unknown)}
        return tuple(reasons)


ALWAYS = Predicate("true", TRUE)


def _show(item: NumberRange | TextRange, column: Column) -> str:
    if isinstance(item, TextRange):
        if item.lo == item.hi:
            return repr(item.lo)
        left, right = "(" if item.lo_open else "[", ")" if item.hi_open else "]"
        return f"{left}{item.lo!r}, {'...' if item.hi is None else repr(item.hi)}{right}"
    if item.lo == item.hi:
        return _show_number(item.lo, column)
    # The range of `x > 5` begins at the double after 5; such an end is shown as open.
    lo_open = len(_brief(next_down(item.lo))) < len(_brief(item.lo))
    hi_open = len(_brief(next_up(item.hi))) < len(_brief(item.hi))
    low = _show_number(next_down(item.lo) if lo_open else item.lo, column)
    high = _show_number(next_up(item.hi) if hi_open else item.hi, column)
    return f"{'(' if lo_open else '['}{low}, {high}{')' if hi_open else ']'}"


def _show_number(value: float, column: Column) -> str:
    if abs(value) != inf and column.kind in ("date", "timestamp"):
        offset = timedelta(days=value) if column.kind == "date" else timedelta(microseconds=value)
        try:
            moment = datetime(1970, 1, 1) + offset  # noqa: DTZ001  only for display
        except OverflowError:
            return _brief(value)
        return moment.date().isoformat() if column.kind == "date" else moment.isoformat(" ")
    return _brief(value)


def _brief(value: float) -> str:
    return str(int(value)) if abs(value) < 1e16 and value == int(value) else repr(value)
