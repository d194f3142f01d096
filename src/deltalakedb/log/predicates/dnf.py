"""Builds the disjunctive normal form: `and`, `or`, and limits that keep it small without losing a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalakedb.log.predicates.atoms import FALSE, TRUE, Atom, Column, Conjunct, Dnf, IsNull, Unknown, Within
from deltalakedb.log.predicates.ranges import (
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
    product: Dnf = TRUE
    # Small parts first, so that the part which does not fit is the widest one.
    for part in sorted(parts, key=len):
        if len(product) * len(part) > MAX_DISJUNCTS:
            part = (_hull(part),)
        joined = (_join(left, right) for left in product for right in part)
        product = tuple(dict.fromkeys(conjunct for conjunct in joined if conjunct is not None))
    return product


def _join(left: Conjunct, right: Conjunct) -> Conjunct | None:
    """Both conjuncts at once; None if no value can satisfy both."""
    atoms: list[Atom] = list(left)
    for item in right:
        if item in atoms:
            continue
        position = None if isinstance(item, Unknown) else _on(item.column, atoms)
        if position is None:
            atoms.append(item)
            continue
        joined = _both(atoms[position], item)
        if joined is None:
            return None
        atoms[position] = joined
    return tuple(atoms)


def _on(column: Column, atoms: Sequence[Atom]) -> int | None:
    for position, item in enumerate(atoms):
        if not isinstance(item, Unknown) and item.column == column:
            return position
    return None


def _both(left: Atom, right: Atom) -> Atom | None:
    if isinstance(left, Within) and isinstance(right, Within):
        ranges = intersect(left, right)
        joined = Within(left.column, ranges, left.nan and right.nan, left.exact and right.exact)
        return joined if ranges or joined.nan else None
    if isinstance(left, IsNull) or isinstance(right, IsNull):
        return None  # the atoms differ, so the other one needs a value
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
    """Merges atoms on one column: `a = 1 or a = 2` becomes `a in (1, 2)`."""
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
    """One conjunct that each of these implies: the union of the ranges of every column that all of them restrict."""
    atoms: list[Atom] = []
    for item in conjuncts[0]:
        if not isinstance(item, Within):
            continue
        same = [other for c in conjuncts for other in c if isinstance(other, Within) and other.column == item.column]
        if len(same) == len(conjuncts):
            atoms.append(_unite(same))
    return (*atoms, Unknown(f"more than {MAX_DISJUNCTS} alternatives"))
