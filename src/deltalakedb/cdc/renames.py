"""Which column of a relation message is which: the message has names alone, and only the number outlives a rename."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deltalakedb.cdc.messages import Relation
from deltalakedb.cdc.source_catalog import Attribute
from deltalakedb.cdc.tables import CapturedTable

_ENOUGH = 2
"""With so many ways to read a message it is ambiguous; further ones are not looked for."""


def number_columns(
    relation: Relation, table: CapturedTable, attributes: Sequence[Attribute], sent: Collection[int]
) -> tuple[int, ...] | None:
    """The numbers of a relation's columns, or None where there is no single answer.

    The message is older than the catalog, which may have moved on. What is sure: columns are sent in the order of their
    numbers, a number that is gone does not come back, a new column has a higher one than all before, and a column that
    is sent now (`sent`) was sent then, if it was there. A name is explained by the table as it was captured or by the
    catalog; a name that neither knows can only be that of a column which was dropped since.
    """
    search = _Search(
        [column.name for column in relation.columns],
        {column.number: column.name for column in table.columns},
        {one.number: one.name for one in attributes if not one.is_dropped},
        frozenset(one.number for one in attributes if one.is_dropped),
        frozenset(sent),
    )
    for guesses in (False, True):
        found = search.solve(guesses)
        if found:
            return found[0] if len(found) == 1 else None
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    names: Sequence[str]
    captured: Mapping[int, str]
    live: Mapping[int, str]
    dropped: frozenset[int]
    sent: frozenset[int]
    _numbers: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        newest = max(self.captured, default=0)
        known = {*self.captured, *self.live, *(number for number in self.dropped if number > newest)}
        object.__setattr__(self, "_numbers", tuple(sorted(known)))

    def solve(self, guesses: bool) -> list[tuple[int, ...]]:
        """Up to two ways to number the columns; `guesses`: a dropped column may have had any name."""
        found: list[tuple[int, ...]] = []
        # A way is a list of numbers so far; one name at a time, so that no message is too long for the stack.
        ways: list[tuple[int, ...]] = [()]
        while ways:
            way = ways.pop()
            if len(way) == len(self.names):
                found += [way] if self._is_whole(way) else []
                if len(found) == _ENOUGH:
                    break
                continue
            ways += [(*way, number) for number in self._next(way, guesses)]
        return found

    def _is_whole(self, way: tuple[int, ...]) -> bool:
        """Whether no column is missing at the end that was there before and is there now."""
        last = way[-1] if way else 0
        return not any(number > last and number in self.captured for number in self.sent)

    def _next(self, way: tuple[int, ...], guesses: bool) -> Iterator[int]:
        name = self.names[len(way)]
        last = way[-1] if way else 0
        for number in self._numbers:
            if number <= last:
                continue
            named = name in (self.captured.get(number), self.live.get(number))
            if named or (guesses and number in self.dropped):
                yield number
            if number in self.sent:
                return  # it is there now, so it was there then: no column after it comes before it
