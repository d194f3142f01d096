"""Which column of a relation message is which: the message has names alone, and only the number outlives a rename."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    (`sent`) was sent then, if it was there. Where that leaves a choice, names decide, which hardly anybody gives twice:
    one that the table as it was captured or the catalog knows is that column's, or one's that came and went since; one
    that neither knows may be anybody's, before a rename.
    """
    search = _Search(
        [column.name for column in relation.columns],
        {column.number: column.name for column in table.columns},
        {one.number: one.name for one in attributes if not one.is_dropped},
        frozenset(one.number for one in attributes if one.is_dropped),
        frozenset(sent),
        max([table.newest, *(column.number for column in table.columns)]),
    )
    found = search.solve(by_name=False)
    if len(found) > 1:
        found = search.solve(by_name=True)
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

    def solve(self, by_name: bool) -> list[tuple[int, ...]]:
        """Up to two ways to number the columns."""
        known = {*self.captured.values(), *self.live.values()} if by_name else set()
        names = [name if name in known else None for name in self.names]
        # From the last number to the first: `ways[i]` are those to give the names from i on the numbers seen so far.
        ways: list[list[_Way]] = [*([] for _ in names), [None]]
        for number in sorted({*self.captured, *self.live, *self.dropped}, reverse=True):
            if number not in self.captured and number not in self.live and number <= self.newest:
                continue  # it was gone before
            must, ended = number in self.sent, number in self.sent and number in self.captured
            for place, name in enumerate(names):
                taken = [(number, way) for way in ways[place + 1]] if self._may_be(number, name) else []
                ways[place] = [*taken, *([] if must else ways[place])][:_ENOUGH]
            if ended:
                ways[-1] = []
        return [tuple(_numbers(way)) for way in ways[0]]

    def _may_be(self, number: int, name: str | None) -> bool:
        """Whether a column may have had a name; None is one that nobody knows."""
        known = name is None or name in (self.captured.get(number), self.live.get(number))
        return known or (number in self.dropped and number > self.newest)


_Way: TypeAlias = "tuple[int, _Way] | None"
"""A number and those after it."""


def _numbers(way: _Way) -> Iterator[int]:
    while way is not None:
        number, way = way
        yield number
