"""Finds the numbers of a relation message's columns: it has only names, and only the number survives a rename."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from deltalakedb.cdc.decode.messages import Relation
from deltalakedb.cdc.source.source_catalog import Attribute
from deltalakedb.cdc.tables import CapturedTable

_NOTHING: Final = 0
_NAME: Final = 1
_NAME_AND_TYPE: Final = 3
"""By how many parts of its form a column is matched."""
_ENOUGH = 2
"""With this many solutions a message is ambiguous; no more are searched."""


def number_columns(
    relation: Relation, table: CapturedTable, attributes: Sequence[Attribute], sent: Collection[int]
) -> tuple[int, ...] | None:
    """The numbers of a relation's columns, or None if there is no unique answer.

    The message may be older than the catalog. What is certain: columns are sent in the order of their numbers, the
    number of a dropped column is not used again, a new column has a higher number than all before, and a column that is
    sent now (`sent`) was sent then, if it existed. If that is ambiguous, names decide, which are rarely used twice: a
    name in the captured table or in the catalog is that column's, or that of one that was added and dropped since; a
    name in neither may be any column's, before a rename. If two columns had one name, one after the other, the type
    decides.
    """
    search = _Search(
        [_Form(column.name, column.type_oid, column.type_modifier) for column in relation.columns],
        {column.number: _Form(column.name, column.type_oid, column.type_modifier) for column in table.sent},
        {
            attribute.number: _Form(attribute.name, attribute.type_oid, attribute.type_modifier)
            for attribute in attributes
            if not attribute.is_dropped
        },
        frozenset(attribute.number for attribute in attributes if attribute.is_dropped),
        frozenset(sent),
        max([table.newest, *(column.number for column in table.sent)]),
    )
    solutions: list[tuple[int, ...]] = []
    for known_by in _NOTHING, _NAME, _NAME_AND_TYPE:
        solutions = search.solve(known_by)
        if len(solutions) <= 1:
            break
    return solutions[0] if len(solutions) == 1 else None


class _Form(NamedTuple):
    """A column as a message, the capture or the catalog describes it."""

    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class _Search:
    columns: Sequence[_Form]
    captured: Mapping[int, _Form]
    live: Mapping[int, _Form]
    dropped: frozenset[int]
    sent: frozenset[int]
    newest: int
    """Columns with higher numbers were added after the table was captured."""

    def solve(self, parts: int) -> list[tuple[int, ...]]:
        """Up to two ways to number the columns, matched by this many parts of their forms, or by their names."""
        owners = (*self.captured.values(), *self.live.values())
        known_forms = {form[:count] for form in owners for count in {parts, min(parts, _NAME)} if count}
        forms = [
            next((form[:count] for count in (parts, _NAME) if form[:count] in known_forms), None)
            for form in self.columns
        ]
        # From the last number to the first: `ways[i]` are the ways to number the columns from i on so far.
        ways: list[list[_Way]] = [*([] for _ in forms), [None]]
        for number in sorted({*self.captured, *self.live, *self.dropped}, reverse=True):
            if number not in self.captured and number not in self.live and number <= self.newest:
                continue  # it was dropped before
            must, ended = number in self.sent, number in self.sent and number in self.captured
            for place, form in enumerate(forms):
                extended = [(number, way) for way in ways[place + 1]] if self._may_be(number, form) else []
                ways[place] = [*extended, *([] if must else ways[place])][:_ENOUGH]
            if ended:
                ways[-1] = []
        return [tuple(_numbers(way)) for way in ways[0]]

    def _may_be(self, number: int, form: tuple[object, ...] | None) -> bool:
        """Whether a column may have had this form, a name or a name and a type; None is a form that nothing has."""
        if form is None or (number in self.dropped and number > self.newest):
            return True
        forms = (self.captured.get(number), self.live.get(number))
        return any(candidate is not None and candidate[: len(form)] == form for candidate in forms)


_Way: TypeAlias = "tuple[int, _Way] | None"
"""A number and those after it."""


def _numbers(way: _Way) -> Iterator[int]:
    while way is not None:
        number, way = way
        yield number
