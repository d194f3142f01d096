"""What the names of a query mean, what it is refused for before it runs, and what DataFusion says then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlglot import exp

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.operations.query_names import rust_name
from deltalakedb.operations.query_types import delta_name

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
Show: TypeAlias = Callable[[Node], str]
KindOf: TypeAlias = Callable[[Node], pa.DataType | None]

_CATALOG: Final = "datafusion"
_SCHEMAS: Final = ("public", "information_schema")
_NUMBERS: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Paren)
_UNGROUPED: Final = re.compile(r'column "?([^"\s]+)"? must appear in the GROUP BY clause or (must be part|be used)')


def check_tables(root: Node, tables: Mapping[str, Any]) -> None:
    """DeltaError for a table that is not registered; one that is may be called `public.t` too."""
    defined = {cte.alias for cte in root.find_all(exp.CTE)}
    for table in root.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or (table.name in defined and not table.db):
            continue
        catalog, schema = table.catalog or _CATALOG, table.db or "public"
        if schema not in _SCHEMAS or catalog != _CATALOG:
            raise DeltaError(f"Error during planning: failed to resolve schema: {schema}")
        if table.name not in tables or schema != "public":
            raise DeltaError(
                f"Error during planning: table '{catalog}.{schema}.{table.name}' not found; registered are "
                f"{', '.join(tables) or 'none'}"
            )
        table.set("db", None)
        table.set("catalog", None)
    for column in root.find_all(exp.Column):
        if column.db == "public":
            column.set("db", None)
            column.set("catalog", None)


def check_unique(items: Sequence[Node], names: Sequence[str], show: Show) -> None:
    """DeltaError for two columns of one name."""
    for place, name in enumerate(names):
        first = names.index(name)
        if first < place:
            shown = [_shown_with_name(items[one], show) for one in (first, place)]
            raise DeltaError(
                "Error during planning: Projections require unique expression names but the expression "
                f'"{shown[0]}" at position {first} and "{shown[1]}" at position {place} have the same name. '
                'Consider aliasing ("AS") one of them.'
            )


def _shown_with_name(item: Node, show: Show) -> str:
    return f"{show(item.this)} AS {item.alias}" if isinstance(item, exp.Alias) else show(item)


def check_condition(where: Node, show: Show, kind_of: KindOf) -> None:
    """DeltaError for a `where` whose value is known to be a number, a text or a time."""
    if where is None:
        return
    kind = _kind(where.this, kind_of)
    if kind is not None and kind != "Boolean":
        raise DeltaError(
            "Error during planning: Cannot create filter with non-boolean predicate "
            f"'{show(where.this)}' returning {kind}"
        )


def _kind(node: Node, kind_of: KindOf) -> str | None:
    """What Arrow calls the type of a value; None where it is not known."""
    if isinstance(node, exp.Column):
        kind = kind_of(node)
        return None if kind is None else rust_name(kind)
    if isinstance(node, exp.Literal):
        return "Utf8" if node.is_string else "Int64" if node.is_int else "Float64"
    if isinstance(node, _NUMBERS):
        kinds = {_kind(one, kind_of) for one in node.iter_expressions()}
        if kinds <= {"Int8", "Int16", "Int32", "Int64"}:
            return "Int64"
        return "Float64" if kinds <= {"Int8", "Int16", "Int32", "Int64", "Float32", "Float64"} else None
    return None


def check_order(select: Node, width: int) -> None:
    """DeltaError for `order by 5` of an answer with fewer columns."""
    for item in select.args["order"].expressions if select.args.get("order") is not None else ():
        place = item.this
        if isinstance(place, exp.Literal) and place.is_int and not 1 <= int(place.this) <= width:
            raise DeltaError(
                f"Error during planning: Order by column out of bounds, specified: {place.this}, max: {width}"
            )


def grouped_values(select: Node, show: Show) -> str:
    """What a select with groups may show beside other columns: the values it groups by, and aggregates."""
    group = select.args.get("group")
    parts = [] if group is None else list(group.expressions)
    aggregates = [one for item in select.expressions for one in item.find_all(exp.AggFunc)]
    return ", ".join(dict.fromkeys(map(show, [*parts, *aggregates]))).replace("count(*)", "count(Int64(1))")


def ungrouped_column(message: str, select: Node, grouped: str, show: Show) -> str | None:
    """What DataFusion says of a column that is neither grouped by nor aggregated; None for another message."""
    match = _UNGROUPED.search(message)
    if match is None:
        return None
    in_select = any(one.name == match[1] for item in select.expressions for one in item.find_all(exp.Column))
    stars = any(item.find(exp.Star) is not None for item in select.expressions)
    clause = "HAVING" if match[2] == "be used" else "SELECT" if in_select or stars else "ORDER BY"
    return (
        f"Error during planning: Column in {clause} must be in GROUP BY or an aggregate function: While expanding "
        f'wildcard, column "{show(exp.column(match[1]))}" must appear in the GROUP BY clause or must be part of an '
        f'aggregate function, currently only "{grouped}" appears in the SELECT clause satisfies this requirement'
    )


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer, or of a table that a query reads."""

    name: str
    nullable: bool = True
    kind: pa.DataType | None = None
    """The type where it is a column of a table as it is; None where DuckDB tells it."""
    notes: Mapping[bytes, bytes] | None = None
    """What the table's schema notes on it, such as a comment."""
    plain: bool = False
    """Whether the texts in its lists and structs are no views: those of literals and of maps."""


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
            matches = [] if column is None else [(node.table, column)]
        else:
            matches = [(alias, columns[node.name]) for alias, columns in self.sources.items() if node.name in columns]
        if not matches and self.outer is not None:
            return self.outer.find(node)
        return matches[0] if len(matches) == 1 or (matches and node.name in self.shared) else None

    def kind_of(self, node: Node) -> pa.DataType | None:
        match = self.find(node)
        return None if match is None else match[1].kind

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
