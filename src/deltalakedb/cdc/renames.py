"""Which column of a relation message is which: the message has names alone, and only the number outlives a rename."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deltalakedb.cdc.messages import Relation
from deltalakedb.cdc.source_catalog import Attribute
from deltalakedb.cdc.tables import CapturedTable

_ENOUGH = 2
"""With so many ways to read a message it is ambiguous; further ones are not looked for."""


def number_columns(
    relation: Relation, table: CapturedTable, attributes: Sequence[Attribute], sent: Collection[int]
) -> tuple[int, ...] | None:
    """The numbers of a relation's columns, or None where there is no single answer.

    The message may be older than the catalog. What is sure: columns are sent in the order of their numbers, a number
    that is gone does not come back, a new column has a higher one than all before, and a column that is sent now
    (`sent`) was sent then, if it was there. A name that the table as it was captured or the catalog knows is that
    column's, or one's that came and went since; a name that neither knows may be anybody's, before a rename.
    """
    search = _Search(
        [column.name for column in relation.columns],
        {column.number: column.name for column in table.columns},
        {one.number: one.name for one in attributes if not one.is_dropped},
        frozenset(one.number for one in attributes if one.is_dropped),
        frozenset(sent),
        max([table.newest, *(column.number for column in table.columns)]),
    )
    found = search.solve()
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class _Search:
    names: Sequence[str]
    captured: Mapping[int, str]
    live: Mapping[int, str]
    dropped: frozenset[int]
    sent: frozenset[int]
    newest: int
    """What has a higher number came after the table was captured."""

    def solve(self) -> list[tuple[int, ...]]:
        """Up to two ways to number the columns."""
        known = {*self.captured.values(), *self.live.values()}
        numbers = sorted({*self.captured, *self.live, *(one for one in self.dropped if one > self.newest)})
        found: list[tuple[int, ...]] = []
        # A way is a list of numbers so far; one name at a time, so that no message is too long for the stack.
        ways: list[tuple[int, ...]] = [()]
        while ways and len(found) < _ENOUGH:
            way = ways.pop()
            if len(way) == len(self.names):
                found += [way] if self._is_whole(way) else []
                continue
            name = self.names[len(way)]
            ways += [(*way, number) for number in self._next(way, numbers, name if name in known else None)]
        return found

    def _is_whole(self, way: tuple[int, ...]) -> bool:
        """Whether no column is missing at the end that was there before and is there now."""
        last = way[-1] if way else 0
        return not any(number > last and number in self.captured for number in self.sent)

    def _next(self, way: tuple[int, ...], numbers: Sequence[int], name: str | None) -> Iterator[int]:
        last = way[-1] if way else 0
        for number in numbers:
            if number <= last:
                continue
            named = name is None or name in (self.captured.get(number), self.live.get(number))
            if named or (number in self.dropped and number > self.newest):
                yield number
            if number in self.sent:
                return  # it is there now, so it was there then: no column after it comes before it
