"""Owns the expressions of a merge: over a row of the target and a row of the source, each under its alias."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.exceptions import DeltaError, PredicateError
from deltalakedb.log.predicate_sql import parse_expression
from deltalakedb.log.types import DataType, StructType
from deltalakedb.operations.expression_text import commit_text
from deltalakedb.operations.expressions import Expression, quoted

_PLAIN = re.compile(r'([A-Za-z_]\w*)\.(?:([A-Za-z_]\w*)|"([^"]+)")', re.ASCII)

Node = Any
"""A node of sqlglot's tree."""


@dataclass(frozen=True, slots=True)
class Key:
    """A part of the condition that says: this column of the target equals that of the source."""

    column: str
    source: Expression
    null_safe: bool


class Names:
    """The two tables of a merge as its expressions call them. Names are found without regard to case."""

    def __init__(
        self, table: str, target: StructType, source: StructType, target_alias: str | None, source_alias: str | None
    ) -> None:
        self._table = table
        self.target, self.source = target_alias or "target", source_alias or "source"
        if self.target.casefold() == self.source.casefold():
            raise DeltaError(
                f"merge into {table}: source and target are both called {self.target!r}; give them different aliases"
            )
        self.target_schema, self.source_schema = target, source
        self._schemas = {self.target: target, self.source: source}
        self._folded = {alias.casefold(): alias for alias in self._schemas}
        self._known: dict[str, Expression] = {}

    @property
    def t(self) -> str:
        """The target's alias as SQL writes it."""
        return quoted(self.target)

    @property
    def s(self) -> str:
        return quoted(self.source)

    def read(self, text: str) -> Expression:
        """An expression with its columns found; PredicateError where it cannot be read or names no column."""
        if text not in self._known:
            self._known[text] = self._read_plain(text) or self._parse(text)
        return self._known[text]

    def _parse(self, text: str) -> Expression:
        try:
            return Expression.parse(text, aliases=self._schemas)
        except PredicateError as error:
            raise PredicateError(f"merge into {self._table}: {error}") from error

    def _read_plain(self, text: str) -> Expression | None:
        """A column under its alias, as most values of a merge are: told without parsing SQL."""
        found = _PLAIN.fullmatch(text)
        alias = None if found is None else self._folded.get(found[1].casefold())
        item = None if found is None or alias is None else self._schemas[alias].field(found[2] or found[3])
        if alias is None or item is None:
            return None
        used = {one: frozenset({item.name}) if one == alias else frozenset[str]() for one in self._schemas}
        return Expression(text, f"({quoted(alias)}.{quoted(item.name)})", used[alias], used)

    def column_type(self, one: Expression) -> DataType | None:
        """The type of an expression that is a column of the source; None for any other."""
        found = _PLAIN.fullmatch(one.text)
        name = next(iter(self.looks_at(one, self.source)), None)
        is_plain = found is not None and name is not None and one.sql == f"({self.s}.{quoted(name)})"
        item = self.source_schema.field(name) if is_plain and name is not None else None
        return None if item is None else item.type

    def looks_at(self, one: Expression, alias: str) -> frozenset[str]:
        return one.by_alias.get(alias, frozenset())

    def set_column(self, text: str) -> str:
        """The column that a clause sets, without the target's alias, which it may carry."""
        try:
            tree = parse_expression(text)
        except PredicateError:
            return text
        parts = [part.name for part in tree.parts] if isinstance(tree, exp.Column) else [text]
        if len(parts) == 1:
            return parts[0]
        if parts[0].casefold() != self.target.casefold() or len(parts) > 2:
            raise DeltaError(
                f"merge into {self._table}: {text!r} cannot be set; a clause sets whole columns of the target, which "
                f"is called {self.target!r}"
            )
        return parts[1]

    # -- the condition, taken apart

    def conjuncts(self, text: str) -> Iterator[str]:
        """The parts of a condition that must all be true."""
        root = parse_expression(text).unnest()
        for part in root.flatten() if isinstance(root, exp.And) else [root]:
            yield part.unnest().sql(dialect=DuckDB)

    def on_target_alone(self, text: str) -> str | None:
        """A condition as one on the target's own columns; None when it looks at the source, or at no column."""
        one = self.read(text)
        if self.looks_at(one, self.source) or not self.looks_at(one, self.target) or not one.is_stable:
            return None
        root = exp.Paren(this=parse_expression(text))
        for node in list(root.find_all(exp.Column)):
            parts = node.parts
            if len(parts) > 1 and parts[0].name.casefold() == self.target.casefold():
                named = dict(zip(("this", "table", "db"), reversed(parts[1:]), strict=False))
                node.replace(exp.Column(**{place: part.copy() for place, part in named.items()}))
        return commit_text(root.this)

    def key(self, text: str) -> Key | None:
        """What a part of the condition says about equal columns; None when it says something else."""
        root = parse_expression(text)
        if not isinstance(root, exp.EQ | exp.NullSafeEQ):
            return None
        for mine, other in ((root.this, root.expression), (root.expression, root.this)):
            if not isinstance(mine.unnest(), exp.Column):
                continue
            left, right = self.read(mine.sql(dialect=DuckDB)), self.read(other.sql(dialect=DuckDB))
            column = next(iter(self.looks_at(left, self.target)), None)
            if column is None or not right.columns or self.looks_at(right, self.target) or not right.is_stable:
                continue
            if left.sql.strip("()") == f"{self.t}.{quoted(column)}":  # and no field inside it
                return Key(column, right, isinstance(root, exp.NullSafeEQ))
        return None
