"""Owns the SQL of queries: what DataFusion means by a text, said in DuckDB's SQL.

DuckDB runs the queries of `QueryBuilder`, and DataFusion those of `deltalake`. Where the two differ the text is
changed: the place of nulls in an order, the types of literals, casts and functions, the names of columns that have
none. What the columns of an answer are called and may hold is told beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError

from deltalakedb.data.engine_values import translate_values
from deltalakedb.log.predicates.predicate_sql import DataFusion
from deltalakedb.operations.query_checks import (
    AnswerColumn,
    Columns,
    Scope,
    check_condition,
    check_order,
    check_tables,
    check_unique,
    grouped_values,
    ungrouped_column,
)
from deltalakedb.operations.query_names import function_name, show
from deltalakedb.operations.query_types import (
    TypeChanges,
    compare_alike,
    is_constant,
    is_widened,
    result_kind,
)

Node: TypeAlias = Any
"""A node of sqlglot's tree; the library's own names for its types change between releases."""
IsNull: TypeAlias = Callable[[str], bool]

_IS_QUERY: Final = re.compile(r"(\s|--[^\n]*\n|\()*(select|with|values|from)\b", re.IGNORECASE)
_NEVER_NULL: Final = frozenset(
    (
        "count",
        "row_number",
        "rank",
        "dense_rank",
        "ntile",
        "approx_distinct",
        "percent_rank",
        "cume_dist",
        "regr_count",
        "grouping",
    )
)
_ALIKE: Final = (
    exp.Binary, exp.Unary, exp.Paren, exp.Between, exp.In, exp.Cast, exp.Upper, exp.Lower, exp.Concat, exp.Length,
    exp.Round, exp.Abs, exp.Floor, exp.Ceil, exp.Trim, exp.Substring, exp.Replace, exp.Array, exp.AtTimeZone,
)  # fmt: skip
"""What is null only if a part of it is."""


_OF_MAPS: Final = ("map_keys", "map_values", "map_entries")
_CLAUSES: Final = ("where", "group", "having", "order", "qualify")


class QueryDialect(DataFusion):
    """DataFusion's SQL, with nulls sorted as if they were the largest values."""

    NULL_ORDERING = "nulls_are_large"


@dataclass(frozen=True, slots=True)
class Query:
    """A query in DuckDB's SQL, and the columns of its answer; None where they are not known."""

    sql: str
    columns: Sequence[AnswerColumn] | None
    explain: Callable[[str], str | None] = lambda _: None
    """What DataFusion says where DuckDB says this; None where it does not matter."""
    casts_columns: bool = False
    """Whether a value of a row may be one that a cast refuses, so the query fails while its rows are read."""

    @property
    def plain(self) -> set[str]:
        """The columns with texts that are no views."""
        return {one.name for one in self.columns or () if one.plain}

    def describe(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the answer, of which DuckDB gives this one."""
        if self.columns is None or len(self.columns) != len(schema):
            return schema
        fields = zip(schema, self.columns, strict=True)
        return pa.schema([pa.field(c.name, c.kind or _with_items(f.type), c.nullable, c.notes) for f, c in fields])


def read_query(sql: str, tables: Mapping[str, pa.Schema], is_null: IsNull = lambda _: True) -> Query | None:
    """A query on tables of these names; None for a text that only DuckDB may understand.

    `is_null` tells whether the value of an expression without columns, in DuckDB's SQL, is null.
    """
    if not _IS_QUERY.match(sql):
        return None
    try:
        statements = [one for one in sqlglot.parse(sql, dialect=QueryDialect) if one is not None]
    except (SqlglotError, RecursionError):
        return None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query | exp.Values):
        return None
    root: Node = _select_of_values(statements[0]) if isinstance(statements[0], exp.Values) else statements[0]
    known = {
        name: {item.name: AnswerColumn(item.name, item.nullable, item.type, item.metadata) for item in schema}
        for name, schema in tables.items()
    }
    check_tables(root, known)
    casts = any(cast.find(exp.Column) is not None for cast in root.find_all(exp.Cast))
    reader = _Reader(sql, known, is_null)
    columns = reader.read(root, {})
    text = root.sql(dialect=DuckDB, unsupported_level=ErrorLevel.IGNORE)
    return Query(text, columns, reader.explain, casts or reader.casts_columns)


def _with_items(kind: pa.DataType) -> pa.DataType:
    """The type with the elements of its lists called as in DataFusion."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _with_items(kind.value_type), kind.value_field.nullable))
    return kind


class _Reader:
    """Changes selects to what DataFusion means, and tells their columns."""

    def __init__(self, text: str, tables: Mapping[str, Columns], is_null: IsNull) -> None:
        self._text = text
        self._tables = tables
        self._is_null = is_null
        self._types = TypeChanges(text)
        self.casts_columns = False
        """Whether texts of a table are compared with numbers, which they are cast to."""
        self._inner: dict[int, list[AnswerColumn] | None] = {}
        """The columns of queries inside of expressions."""
        self._last: tuple[Node, str, Scope] | None = None
        """The outermost select, with what it may show beside groups."""

    def explain(self, message: str) -> str | None:
        """What DataFusion says where DuckDB says this."""
        if self._last is None:
            return None
        select, grouped, scope = self._last
        return ungrouped_column(message, select, grouped, lambda one: self._show(one, scope))

    def read(
        self, node: Node, defined: Mapping[str, Columns | None], outer: Scope | None = None
    ) -> list[AnswerColumn] | None:
        """The columns of a query; `defined` are the names given by `with`, `outer` the tables of a query around it."""
        defined = dict(defined)
        for cte in node.ctes:
            columns = self._renamed(cte, self.read(cte.this, defined))
            if columns is not None and any(one.name == cte.alias for one in cte.this.find_all(exp.Table)):
                columns = [replace(one, nullable=True) for one in columns]  # a query that reads its own rows
            defined[cte.alias] = _by_name(columns)
        if isinstance(node, exp.Subquery):
            return self.read(node.this, defined, outer)
        if isinstance(node, exp.SetOperation):
            left, right = self.read(node.this, defined, outer), self.read(node.expression, defined, outer)
            if left is None or right is None or len(left) != len(right):
                return left
            either = isinstance(node, exp.Union)
            return [
                AnswerColumn(
                    one.name, one.nullable or (either and other.nullable), one.kind if one.kind == other.kind else None
                )
                for one, other in zip(left, right, strict=True)
            ]
        return self._select(node, defined, outer) if isinstance(node, exp.Select) else None

    def _renamed(self, node: Node, columns: list[AnswerColumn] | None) -> list[AnswerColumn] | None:
        names = node.alias_column_names
        if not names or columns is None:
            return columns
        return [replace(one, name=name) for one, name in zip(columns, names, strict=False)]

    # -- where a select reads from

    def _scope(self, node: Node, defined: Mapping[str, Columns | None], outer: Scope | None) -> Scope:
        scope = Scope(outer=outer)
        first = node.args.get("from_") or node.args.get("from")
        if first is not None:
            self._add(scope, first.this, defined)
        for join in node.args.get("joins") or ():
            before = list(scope.sources)
            self._add(scope, join.this, defined)
            side = join.side.upper()
            if side in ("RIGHT", "FULL"):
                scope.make_nullable(before)
            if side in ("LEFT", "FULL"):
                scope.make_nullable([alias for alias in scope.sources if alias not in before])
            scope.shared |= {name.name for name in join.args.get("using") or ()}
            if join.args.get("method"):
                scope.complete = False
        return scope

    def _add(self, scope: Scope, source: Node, defined: Mapping[str, Columns | None]) -> None:
        if isinstance(source, exp.Values):
            scope.add(source.alias, _by_name(self._values(source)))
            return
        if isinstance(source, exp.Subquery):
            inner = self._renamed(source, self.read(source.this, defined))
            scope.add(source.alias or _only_table(source) or "", _by_name(inner))
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.GenerateSeries):
            self._add_series(scope, source)
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            scope.add(source.alias_or_name, defined.get(source.name, self._tables.get(source.name)))
        else:
            scope.complete = False

    def _add_series(self, scope: Scope, source: Node) -> None:
        """`generate_series(1, 3)` and `range(1, 3)`, whose column is called `value`."""
        own = "range" if source.this.args.get("is_end_exclusive") else "generate_series"
        names = source.alias_column_names or ["value"]
        alias = source.alias or own
        columns = [exp.to_identifier(name, quoted=True) for name in names]
        source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns))
        bounds = [source.this.args.get(name) for name in ("start", "end", "step")]
        numbers = [one.this if isinstance(one, exp.Neg) else one for one in bounds if one is not None]
        if all(isinstance(one, exp.Literal) and not one.is_string for one in numbers):
            scope.add(alias, {names[0]: AnswerColumn(names[0], nullable=False, kind=pa.int64())})
        else:
            scope.complete = False

    def _values(self, node: Node) -> list[AnswerColumn] | None:
        """The columns of rows that a query spells out."""
        self._types.change(node, lambda _: None)
        names, rows = node.alias_column_names, [row.expressions for row in node.expressions]
        if any(len(row) != len(names) for row in rows):
            return None
        nulls = [any(isinstance(one, exp.Null) for one in column) for column in zip(*rows, strict=True)]
        return [AnswerColumn(name, nullable) for name, nullable in zip(names, nulls, strict=True)]

    # -- what a select gives

    def _select(
        self, node: Node, defined: Mapping[str, Columns | None], outer: Scope | None = None
    ) -> list[AnswerColumn] | None:
        scope = self._scope(node, defined, outer)

        def shown(one: Node) -> str:
            return self._show(one, scope)

        joined = [join.args.get("on") for join in node.args.get("joins") or ()]
        for part in (*node.expressions, *(node.args.get(name) for name in _CLAUSES), *joined):
            for inner in _queries_in(part):
                columns = self.read(inner, defined, scope)
                if columns is not None and _uses(inner, scope):
                    columns = [replace(one, nullable=True) for one in columns]
                self._inner[id(inner)] = columns
        for part in (*node.expressions, node.args.get("where")):
            for column in _columns_in(part):
                scope.check(column)
        check_condition(node.args.get("where"), shown, scope.kind_of)
        if outer is None:
            self._last = (node.copy(), grouped_values(node, shown), scope)
        answer: list[AnswerColumn] = []
        known = scope.complete
        check_unique(node.expressions, [self._full_name(item, scope) for item in node.expressions], shown)
        for item in list(node.expressions):
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                stars = self._stars(item, scope)
                known = known and stars is not None
                answer += stars or ()
            else:
                answer.append(self._projected(item, scope))
        if known:
            check_order(node, len(answer))
        for name in ("group", "having", "order", "qualify"):
            self._types.change(node.args.get(name), scope.kind_of)
        for part in (node.args.get("where"), *joined):
            if part is not None:
                self.casts_columns |= compare_alike(part, scope.kind_of)
                translate_values(part, scope.type_name)
        return answer if known else None

    def _show(self, node: Node, scope: Scope) -> str:
        """A value as DataFusion names it."""

        def column(one: Node) -> str:
            if isinstance(one, exp.Subquery):
                inner = self._inner.get(id(one.this))
                return inner[0].name if inner else str(one.sql(dialect=DuckDB))
            return _format_column(one, scope)

        return show(node, self._text, column)

    def _stars(self, item: Node, scope: Scope) -> list[AnswerColumn] | None:
        star = item if isinstance(item, exp.Star) else item.this
        left_out = {name.name for name in star.args.get("except_") or star.args.get("except") or ()}
        if star.args.get("rename") or (scope.shared and isinstance(item, exp.Column)):
            return None
        aliases = [item.table] if isinstance(item, exp.Column) else list(scope.sources)
        columns = [one for alias in aliases for one in scope.sources.get(alias, {}).values()]
        names = [one.name for one in columns]
        columns = [
            one for place, one in enumerate(columns) if one.name not in scope.shared or one.name not in names[:place]
        ]
        replaced = {one.alias: one.this for one in star.args.get("replace") or ()}
        made = [
            AnswerColumn(one.name, self._may_be_null(replaced[one.name], scope)) if one.name in replaced else one
            for one in columns
            if one.name not in left_out
        ]
        return made or None

    def _full_name(self, item: Node, scope: Scope) -> str:
        """What tells a column of the answer from the others."""
        if isinstance(item, exp.Alias):
            return str(item.alias)
        return self._show(item, scope)

    def _projected(self, item: Node, scope: Scope) -> AnswerColumn:
        value = item.this if isinstance(item, exp.Alias) else item
        match = scope.find(value) if isinstance(value, exp.Column) else None
        if match is not None:
            return replace(match[1], name=item.alias if isinstance(item, exp.Alias) else match[1].name)
        name = item.alias if isinstance(item, exp.Alias) else self._show(value, scope)
        nullable, constant = self._may_be_null(value, scope), is_constant(value)
        kind = result_kind(value, scope.kind_of)
        inner = self._inner.get(id(value.this)) if isinstance(value, exp.Subquery) else None
        if inner:
            nullable, kind = inner[0].nullable, inner[0].kind
        if not isinstance(item, exp.Alias):
            item = item.replace(exp.alias_(value.copy(), name, quoted=True))
        self._types.change(item, scope.kind_of)
        if constant:
            nullable = self._is_null(item.this.sql(dialect=DuckDB, unsupported_level=ErrorLevel.IGNORE))
        return AnswerColumn(name, nullable, kind, plain=constant or self._is_of_map(value))

    def _may_be_null(self, node: Node, scope: Scope) -> bool:
        if isinstance(node, exp.Is):
            return self._may_be_null_test(node, scope)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Exists) or _is_decided(node):
            return False
        if isinstance(node, exp.Column):
            match = scope.find(node)
            return match is None or match[1].nullable
        if isinstance(node, exp.Subquery):
            inner = self._inner.get(id(node.this))
            return inner is None or inner[0].nullable
        if isinstance(node, exp.Window | exp.Filter):
            return self._may_be_null(node.this, scope)
        if isinstance(node, exp.Func) and function_name(node, self._text) in _NEVER_NULL:
            return False
        if isinstance(node, exp.TryCast | exp.Null | exp.Interval):
            return not isinstance(node, exp.Interval)
        if isinstance(node, exp.Div | exp.IntDiv | exp.Mod):
            divides = isinstance(node.expression, exp.Literal) and float(node.expression.this) != 0
            return not divides or self._may_be_null(node.this, scope)
        if isinstance(node, exp.Case):
            values = [branch.args["true"] for branch in node.args["ifs"]]
            default = node.args.get("default")
            return default is None or any(self._may_be_null(one, scope) for one in (*values, default))
        if isinstance(node, exp.Nvl2):
            return any(self._may_be_null(one, scope) for one in (node.args["true"], node.args["false"]))
        if isinstance(node, exp.Coalesce):
            parts = (node.this, *node.expressions)
            return is_widened(parts, scope.kind_of) or all(self._may_be_null(one, scope) for one in parts)
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
            return self._may_be_null_test(node.this, scope)
        if isinstance(node, _ALIKE):
            return any(self._may_be_null(one, scope) for one in node.iter_expressions() if _is_value(one))
        return True

    def _is_of_map(self, node: Node) -> bool:
        return isinstance(node, exp.Func) and function_name(node, self._text) in _OF_MAPS

    def _may_be_null_test(self, node: Node, scope: Scope) -> bool:
        """Whether DataFusion takes a test for one that may be null: `x is true` if `x` may be."""
        return not isinstance(node.expression, exp.Null) and self._may_be_null(node.this, scope)


def _is_decided(node: Node) -> bool:
    """Whether it is an `or` with a part that is true, or an `and` with one that is false."""
    if not isinstance(node, exp.Or | exp.And):
        return False
    parts = [one.this for one in node.flatten() if isinstance(one, exp.Boolean)]
    return isinstance(node, exp.Or) in parts


def _select_of_values(values: Node) -> Node:
    """A query for rows that are spelled out, its columns named as in DataFusion."""
    width = len(values.expressions[0].expressions)
    names = [exp.to_identifier(f"column{place}") for place in range(1, width + 1)]
    values.set("alias", exp.TableAlias(this=exp.to_identifier("v"), columns=names))
    return exp.select("*").from_(values)


def _by_name(columns: Sequence[AnswerColumn] | None) -> Columns | None:
    return None if columns is None else {one.name: one for one in columns}


def _only_table(source: Node) -> str | None:
    """The one table of a query without a name, which then stands for it."""
    tables = list(source.find_all(exp.Table))
    return tables[0].alias_or_name if len(tables) == 1 else None


def _format_column(node: Node, scope: Scope) -> str:
    """A column as messages and names show it."""
    match = scope.find(node)
    if match is not None:
        return f"{match[0]}.{node.name}"
    if scope.is_part(node):
        owner = next((alias for alias, columns in scope.sources.items() if node.table in columns), "")
        return f"{owner}.{node.table}[{node.name}]"
    return f"{node.table}.{node.name}" if node.table else str(node.name)


def _own(node: Node) -> Iterator[Node]:
    """The parts of an expression, without queries in it and the bounds of windows."""
    if node is None:
        return iter(())
    nodes: Iterator[Node] = node.walk(prune=lambda one: isinstance(one, exp.Query | exp.WindowSpec | exp.DataType))
    return (one for one in nodes if not isinstance(one, exp.Query | exp.WindowSpec | exp.DataType))


def _queries_in(node: Node) -> list[Node]:
    """The queries inside of an expression, not those inside of them."""
    if node is None:
        return []
    nodes = node.walk(prune=lambda one: isinstance(one, exp.Query) and not isinstance(one, exp.Subquery))
    return [one for one in nodes if isinstance(one, exp.Query) and not isinstance(one, exp.Subquery)]


def _uses(inner: Node, scope: Scope) -> bool:
    """Whether a query uses tables of the one around it by their names."""
    own = {table.alias_or_name for table in inner.find_all(exp.Table)}
    return any(one.table in scope.sources and one.table not in own for one in inner.find_all(exp.Column))


def _columns_in(node: Node) -> Iterator[Node]:
    return (one for one in _own(node) if isinstance(one, exp.Column) and not isinstance(one.this, exp.Star))


def _is_value(node: Node) -> bool:
    return isinstance(node, exp.Condition | exp.Null | exp.Subquery | exp.AtTimeZone) and not isinstance(
        node, exp.DataType | exp.Identifier
    )
