"""Owns the tables and columns that a select of a query sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.operations.query_types import delta_name

Node: TypeAlias = Any
"""A node of sqlglot's tree."""


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer, or of a table that a query reads."""

    name: str
    nullable: bool = True
    kind: pa.DataType | None = None
    """The type where it is a column of a table as it is; None where DuckDB tells it."""
    notes: Mapping[bytes, bytes] | None = None
    """What the table's schema notes on it, such as a comment."""


Columns: TypeAlias = dict[str, AnswerColumn]


@dataclass(slots=True)
class Scope:
    """The tables a select reads, by the names it calls them."""

    sources: dict[str, Columns] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    """Columns that a join makes one of."""
    complete: bool = True
    """Whether all of them are known."""
    outer: Scope | None = None
    """The tables of the query around it, whose columns it may use."""

    def add(self, alias: str, columns: Columns | None) -> None:
        if columns is None or alias in self.sources:
            self.complete = False
        else:
            self.sources[alias] = columns

    def make_nullable(self, aliases: Sequence[str]) -> None:
        for alias in aliases:
            columns = self.sources.get(alias, {})
            self.sources[alias] = {name: replace(one, nullable=True) for name, one in columns.items()}

    def find(self, node: Node) -> tuple[str, AnswerColumn] | None:
        """The table and the column that a name means; None where it means no column, or nobody knows which."""
        if node.table:
            column = self.sources.get(node.table, {}).get(node.name)
            found = [] if column is None else [(node.table, column)]
        else:
            found = [(alias, columns[node.name]) for alias, columns in self.sources.items() if node.name in columns]
        if not found and self.outer is not None:
            return self.outer.find(node)
        return found[0] if len(found) == 1 or (found and node.name in self.shared) else None

    def kind_of(self, node: Node) -> pa.DataType | None:
        found = self.find(node)
        return None if found is None else found[1].kind

    def type_name(self, node: Node) -> str | None:
        return delta_name(self.kind_of(node))

    def is_part(self, node: Node) -> bool:
        """Whether a name such as `s.a` means a part of the struct `s`."""
        return bool(node.table) and any(node.table in columns for columns in self.sources.values())

    def check(self, node: Node) -> None:
        """DeltaError for a name that means nothing."""
        named = any(node.name in columns for columns in self.sources.values())
        if not self.complete or not self.sources or self.is_part(node) or (named and not node.table):
            return
        if self.outer is not None and self.find(node) is None:
            self.outer.check(node)
            return
        if self.find(node) is None:
            names = [f"{alias}.{name}" for alias, columns in self.sources.items() for name in columns]
            raise no_such_column(f"{node.table}.{node.name}" if node.table else node.name, names)
