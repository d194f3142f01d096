"""Building the disjunctive normal form: `and`, `or`, and how both are kept small without losing a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalakedb.log.atoms import FALSE, TRUE, Atom, Column, Conjunct, Dnf, IsNull, Unknown, Within
from deltalakedb.log.ranges import (
    MAX_RANGES,
    NumberRange,
    TextRange,
    intersect_numbers,
    intersect_texts,
    unite_numbers,
    unite_texts,
)

MAX_DISJUNCTS = 32


def atom(item: Atom) -> Dnf:
    if isinstance(item, Within) and not item.ranges and not item.nan:
        return FALSE
    return ((item,),)


def unknown(reason: str) -> Dnf:
    return ((Unknown(reason),),)


def any_of(parts: Iterable[Dnf]) -> Dnf:
    conjuncts = dict.fromkeys(conjunct for part in parts for conjunct in part)
    if () in conjuncts:
        return TRUE
    merged = _unite_single_columns(list(conjuncts))
    if len(merged) <= MAX_DISJUNCTS:
        return tuple(merged)
    return (_hull(merged),)


def all_of(parts: Iterable[Dnf]) -> Dnf:
    found: Dnf = TRUE
    # Small parts first: what does not fit in the end is the widest one.
    for part in sorted(parts, key=len):
        if len(found) * len(part) > MAX_DISJUNCTS:
            part = (_hull(part),)
        joined = (_join(left, right) for left in found for right in part)
        found = tuple(dict.fromkeys(conjunct for conjunct in joined if conjunct is not None))
    return found


def _join(left: Conjunct, right: Conjunct) -> Conjunct | None:
    """Both at once; None when no value can satisfy both."""
    atoms: list[Atom] = list(left)
    for item in right:
        if item in atoms:
            continue
        same = None if isinstance(item, Unknown) else _on(item.column, atoms)
        if same is None:
            atoms.append(item)
            continue
        both = _both(atoms[same], item)
        if both is None:
            return None
        atoms[same] = both
    return tuple(atoms)


def _on(column: Column, atoms: Sequence[Atom]) -> int | None:
    for at, item in enumerate(atoms):
        if not isinstance(item, Unknown) and item.column == column:
            return at
    return None


def _both(left: Atom, right: Atom) -> Atom | None:
    if isinstance(left, Within) and isinstance(right, Within):
        ranges = intersect(left, right)
        met = Within(left.column, ranges, left.nan and right.nan, left.exact and right.exact)
        return met if ranges or met.nan else None
    if isinstance(left, IsNull) or isinstance(right, IsNull):
        return None  # the two differ, so the other one asks for a value
    return left if isinstance(left, Within) else right


def intersect(left: Within, right: Within) -> tuple[NumberRange, ...] | tuple[TextRange, ...]:
    if left.column.kind == "text":
        return intersect_texts(_texts(left), _texts(right))
    return intersect_numbers(_numbers(left), _numbers(right))


def _unite(items: Sequence[Within]) -> Within:
    first = items[0]
    nan = any(item.nan for item in items)
    total = sum(len(item.ranges) for item in items)
    exact = total <= MAX_RANGES and all(item.exact for item in items)
    if first.column.kind == "text":
        return Within(first.column, unite_texts(r for item in items for r in _texts(item)), nan, exact)
    return Within(first.column, unite_numbers(r for item in items for r in _numbers(item)), nan, exact)


def _numbers(item: Within) -> list[NumberRange]:
    return [r for r in item.ranges if isinstance(r, NumberRange)]


def _texts(item: Within) -> list[TextRange]:
    return [r for r in item.ranges if isinstance(r, TextRange)]


def _unite_single_columns(conjuncts: list[Conjunct]) -> list[Conjunct]:
    """`a = 1 or a = 2` is one atom, as `a in (1, 2)` is."""
    by_column: dict[Column, list[Within]] = {}
    rest: list[Conjunct] = []
    for conjunct in conjuncts:
        if len(conjunct) == 1 and isinstance(conjunct[0], Within):
            by_column.setdefault(conjunct[0].column, []).append(conjunct[0])
        else:
            rest.append(conjunct)
    united: list[Conjunct] = [(items[0] if len(items) == 1 else _unite(items),) for items in by_column.values()]
    return united + rest


def _hull(conjuncts: Sequence[Conjunct]) -> Conjunct:
    """One conjunct that every one of these implies: per column that all of them bound, the union of the ranges."""
    atoms: list[Atom] = []
    for item in conjuncts[0]:
        if not isinstance(item, Within):
            continue
        same = [other for c in conjuncts for other in c if isinstance(other, Within) and other.column == item.column]
        if len(same) == len(conjuncts):
            atoms.append(_unite(same))
    return (*atoms, Unknown(f"more than {MAX_DISJUNCTS} alternatives"))
