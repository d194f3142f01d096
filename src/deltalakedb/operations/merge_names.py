"""The expressions of a merge, over a row of the target and a row of the source, each with its alias."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.exceptions import DeltaError, PredicateError
from deltalakedb.log.predicates.predicate_sql import parse_expression
from deltalakedb.log.schema.types import DataType, StructType
from deltalakedb.operations.expressions import Expression, quoted

_PLAIN = re.compile(r'([A-Za-z_]\w*)\.(?:([A-Za-z_]\w*)|"([^"]+)")', re.ASCII)

Node = Any
"""A node of sqlglot's tree."""


@dataclass(frozen=True, slots=True)
class Key:
    """A part of the condition that says that a target column equals an expression of the source."""

    column: str
    source: Expression
    null_safe: bool


class Names:
    """The two tables of a merge under their aliases; the case of an alias matters."""

    def __init__(
        self, table: str, target: StructType, source: StructType, target_alias: str | None, source_alias: str | None
    ) -> None:
        self._table = table
        self.target, self.source = target_alias or "target", source_alias or "source"
        if self.target.casefold() == self.source.casefold():
            raise DeltaError(
                f"Schema error: Schema contains duplicate qualified field name {self.target}."
                f"{next(iter(source.names), '')}: source and target of the merge into {table} have the same alias; "
                "give them different ones"
            )
        self.target_schema, self.source_schema = target, source
        self._schemas = {self.target: target, self.source: source}
        self._known: dict[str, Expression] = {}

    @property
    def t(self) -> str:
        """The target's alias, quoted for SQL."""
        return quoted(self.target)

    @property
    def s(self) -> str:
        return quoted(self.source)

    def read(self, text: str) -> Expression:
        """Parse an expression and resolve its columns; PredicateError if it is invalid or a column is unknown."""
        if text not in self._known:
            self._known[text] = self._read_plain(text) or self._parse(text)
        return self._known[text]

    def _parse(self, text: str) -> Expression:
        try:
            return Expression.parse(text, aliases=self._schemas)
        except PredicateError as error:
            raise PredicateError(f"merge into {self._table}: {error}") from error

    def _read_plain(self, text: str) -> Expression | None:
        """Read a plain column with its alias, as most values of a merge are, without parsing SQL."""
        match = _PLAIN.fullmatch(text)
        alias = None if match is None or match[1] not in self._schemas else match[1]
        item = None if match is None or alias is None else self._schemas[alias].field(match[2] or match[3])
        if match is None or alias is None or item is None or item.name != (match[2] or match[3]):
            return None
        used = {
            other_alias: frozenset({item.name}) if other_alias == alias else frozenset[str]()
            for other_alias in self._schemas
        }
        return Expression(text, text, f"({quoted(alias)}.{quoted(item.name)})", used[alias], used)

    def column_type(self, one: Expression) -> DataType | None:
        """Return the type of an expression that is a source column; None for any other."""
        match = _PLAIN.fullmatch(one.text)
        name = next(iter(self.looks_at(one, self.source)), None)
        is_plain = match is not None and name is not None and one.sql == f"({self.s}.{quoted(name)})"
        item = self.source_schema.field(name) if is_plain and name is not None else None
        return None if item is None else item.type

    def looks_at(self, one: Expression, alias: str) -> frozenset[str]:
        return one.by_alias.get(alias, frozenset())

    def set_column(self, text: str) -> str:
        """Return the column that a clause sets, without the target's alias if it has one."""
        try:
            tree = parse_expression(text)
        except PredicateError:
            return text
        parts = [part.name for part in tree.parts] if isinstance(tree, exp.Column) else [text]
        if len(parts) == 1:
            return parts[0]
        if parts[0] != self.target or len(parts) > 2:
            raise DeltaError(
                f"merge into {self._table}: {text!r} cannot be set; a clause sets whole columns of the target, which "
                f"is called {self.target!r}"
            )
        return parts[1]

    # -- parts of the condition

    def conjuncts(self, text: str) -> Iterator[str]:
        """Yield the parts of a condition that are joined by AND."""
        root = parse_expression(text).unnest()
        for part in root.flatten() if isinstance(root, exp.And) else [root]:
            yield part.unnest().sql(dialect=DuckDB)

    def on_target_alone(self, text: str) -> str | None:
        """Return a condition on target columns without the alias; None if it uses source columns, or no column."""
        expression = self.read(text)
        if (
            self.looks_at(expression, self.source)
            or not self.looks_at(expression, self.target)
            or not expression.is_stable
        ):
            return None
        root = exp.Paren(this=parse_expression(text))
        for node in list(root.find_all(exp.Column)):
            parts = node.parts
            if len(parts) > 1 and parts[0].name == self.target:
                name_parts = dict(zip(("this", "table", "db"), reversed(parts[1:]), strict=False))
                node.replace(exp.Column(**{key: part.copy() for key, part in name_parts.items()}))
        return str(root.this.sql(dialect=DuckDB))

    def key(self, text: str) -> Key | None:
        """Return the equality that a part of the condition states; None if it is something else."""
        root = parse_expression(text)
        if not isinstance(root, exp.EQ | exp.NullSafeEQ):
            return None
        for column_side, other_side in ((root.this, root.expression), (root.expression, root.this)):
            if not isinstance(column_side.unnest(), exp.Column):
                continue
            left, right = self.read(column_side.sql(dialect=DuckDB)), self.read(other_side.sql(dialect=DuckDB))
            column = next(iter(self.looks_at(left, self.target)), None)
            if column is None or not right.columns or self.looks_at(right, self.target) or not right.is_stable:
                continue
            if left.sql.strip("()") == f"{self.t}.{quoted(column)}":  # a whole column, not a nested field
                return Key(column, right, isinstance(root, exp.NullSafeEQ))
        return None
