"""The expressions of a merge, over a row of the target and one of the source, and the values its clauses set."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.exceptions import DeltaError, PredicateError, SchemaMismatchError
from deltalakedb.log.predicates.predicate_sql import parse_expression
from deltalakedb.log.protocol.features import GENERATION_EXPRESSION, every_field
from deltalakedb.log.schema.types import DataType, StructField, StructType
from deltalakedb.operations.definition import with_schema
from deltalakedb.operations.evolution import Definition, partitions_last
from deltalakedb.operations.expressions import Expression, quoted
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    import pyarrow as pa


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


ClauseValues: TypeAlias = dict[int, dict[str, Expression]]
"""By clause number: the columns that the clause sets, and their expressions."""

logger = logging.getLogger(__name__)


def _refuse_generated(item: StructField, table: str) -> None:
    """Raise if a merge would add a generated column: existing rows would not have its values."""
    if any(GENERATION_EXPRESSION in field.metadata for _, field in every_field(StructType((item,)))):
        raise SchemaMismatchError(
            "Schema evolved fields cannot have generated expressions. Recreate the table to achieve this: the rows of "
            f"{table} have no value of the new column {item.name!r}"
        )


def evolve_for(target: Target, request: MergeRequest, names: Names) -> Definition:
    """Return the table's definition, with new columns of the source that clauses set."""
    if not request.merge_schema:
        return Definition.of(target)
    from deltalakedb.data import check_schema

    fields: dict[str, pa.Field] = {item.name.casefold(): item for item in target.schema.to_arrow()}
    for clause in request.clauses:
        for item in _set_fields(clause, names, target.name):
            _refuse_generated(item, target.name)
            fields[item.name.casefold()] = StructType((item,)).to_arrow().field(0)
    merged = check_schema(_schema(fields), target.schema, schema_mode="merge", table_name=target.name)
    if merged is target.schema:
        return Definition.of(target)
    merged = partitions_last(merged, target)
    return Definition.of(
        target, with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    )


def _schema(fields: dict[str, pa.Field]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(list(fields.values()))


def _set_fields(clause: Clause, names: Names, table: str) -> Iterator[StructField]:
    """Yield the source fields that a clause sets, if the target lacks them or nested fields of them."""
    if clause.values is None:
        yield from (item for item in _source_fields(clause, names) if _adds_to(names, item))
        return
    for text in clause.values:
        name = names.set_column(text)
        target_field = names.target_schema.field(name)
        item = names.source_schema.field(name)
        if item is None and target_field is None:
            raise DeltaError(
                f"merge into {table}: a clause sets {name!r}, which is a column neither of the target nor of the source"
            )
        if item is not None and _adds_to(names, item):
            yield item


def _source_fields(clause: Clause, names: Names) -> Iterator[StructField]:
    if clause.action == "delete":
        return
    yield from (item for item in names.source_schema.fields if item.name not in clause.except_columns)


def _adds_to(names: Names, item: StructField) -> bool:
    target_field = names.target_schema.field(item.name)
    return target_field is None or (target_field.type != item.type and isinstance(item.type, StructType))


def read_values(target: Target, request: MergeRequest, names: Names, schema: StructType) -> ClauseValues:
    """Parse the expressions of all clauses, for the columns of `schema`, the table's schema after the merge."""
    values: ClauseValues = {}
    for number, clause in enumerate(request.clauses):
        if clause.predicate is not None:
            names.read(clause.predicate)
        if clause.action != "delete":
            values[number] = _values(target, clause, names, schema)
    return values


def _values(target: Target, clause: Clause, names: Names, schema: StructType) -> dict[str, Expression]:
    values: dict[str, Expression] = {}
    if clause.values is None:
        for item in _source_fields(clause, names):
            column = schema.field(item.name)
            if column is not None:
                values[column.name] = names.read(f"{names.s}.{quoted(item.name)}")
        return values
    for text, expression in clause.values.items():
        name, parsed = names.set_column(text), names.read(expression)
        column = schema.field(name)
        if column is None:
            # `deltalake` ignores it too, without a warning.
            logger.warning(
                "merge into %s: it has no column %r; what a clause sets it to is left out", target.name, name
            )
        else:
            values.setdefault(column.name, parsed)
    return values
