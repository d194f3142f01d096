"""Compares a predicate with the bounds of one file: may one of its rows match, must every row match.

This is the definition of pruning. The store computes the same inside the database, and tests compare the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from deltalakedb.log.predicates.atoms import Atom, Column, IsNotNull, IsNull, Predicate, Within
from deltalakedb.log.predicates.ranges import NumberRange, TextRange
from deltalakedb.log.statistics.bounds import EMPTY, POINT, Bound

BoundsOf = Callable[[Column], Bound | None]
"""Returns a file's bound of a column; None if it is unknown."""


def may_match(predicate: Predicate, bounds_of: BoundsOf) -> bool:
    """False only if no row of the file satisfies the predicate."""
    return any(all(atom_may_match(atom, bounds_of) for atom in atoms) for atoms in predicate.disjuncts)


def must_match(predicate: Predicate, bounds_of: BoundsOf) -> bool:
    """True only if every row of the file satisfies the predicate."""
    return any(all(_must(atom, bounds_of) for atom in atoms) for atoms in predicate.disjuncts)


def atom_may_match(atom: Atom, bounds_of: BoundsOf) -> bool:
    if not isinstance(atom, Within | IsNull | IsNotNull):
        return True
    bound = bounds_of(atom.column)
    if bound is None:
        return True
    if isinstance(atom, IsNull):
        return bound.null_count != 0
    if bound.width_class == EMPTY:
        return False
    return isinstance(atom, IsNotNull) or _within(atom, bound)


def _within(atom: Within, bound: Bound) -> bool:
    if atom.nan:
        return True  # statistics omit NaN, so any file may hold one
    if atom.column.kind == "text":
        return bound.lower_text is None or _some_text(atom, bound.lower_text, bound.upper_text)
    return bound.lower is None or bound.upper is None or _some_number(atom, bound.lower, bound.upper)


def _some_number(atom: Within, lower: float, upper: float) -> bool:
    """Whether a range overlaps the bounds; ranges are sorted, so the first that does not end below the file decides."""
    position = bisect_left(atom.ranges, lower, key=lambda item: item.hi)
    return position < len(atom.ranges) and _number(atom.ranges[position]).keeps(lower, upper)


def _some_text(atom: Within, lower: str, upper: str | None) -> bool:
    ends = len(atom.ranges) if atom.ranges and atom.ranges[-1].hi is not None else len(atom.ranges) - 1
    position = bisect_left(atom.ranges, lower, hi=max(ends, 0), key=lambda item: item.hi)
    # The first range may be open and end at `lower` itself; then the next one decides.
    return any(_text(item).keeps(lower, upper) for item in atom.ranges[position : position + 2])


def _number(item: NumberRange | TextRange) -> NumberRange:
    assert isinstance(item, NumberRange)
    return item


def _text(item: NumberRange | TextRange) -> TextRange:
    assert isinstance(item, TextRange)
    return item


def _must(atom: Atom, bounds_of: BoundsOf) -> bool:
    if not isinstance(atom, Within | IsNull | IsNotNull):
        return False
    bound = bounds_of(atom.column)
    if bound is None:
        return False
    if isinstance(atom, IsNull):
        return bound.width_class == EMPTY
    if bound.null_count != 0 or bound.width_class == EMPTY:
        return False
    if isinstance(atom, IsNotNull):
        return True
    # A partition value is exact if both ends are equal; statistics may be loose or omit NaN.
    exact = atom.exact and atom.column.is_partition and bound.width_class == POINT
    return exact and _within(Within(atom.column, atom.ranges), bound)
