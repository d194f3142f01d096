"""Filters rows by a predicate, exactly: SQL with DuckDB, `deltalake`'s filters with pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.data.arrow_expressions import expression_columns
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.predicate import Filters, no_such_column, resolve_column
from deltalakedb.log.schema.types import StructType, to_arrow_type

RowPredicate: TypeAlias = str | Filters | pc.Expression
"""SQL, `deltalake`'s lists of filters (an outer list means "or"), or a pyarrow expression."""

_OPERATORS: Final[dict[str, Any]] = {"=": eq, "==": eq, "!=": ne, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class RowFilter:
    """A predicate on rows of a table; `columns` are those that it uses."""

    def __init__(self, predicate: RowPredicate, schema: StructType) -> None:
        self._sql = ""
        self._expression: pc.Expression | None = None
        if isinstance(predicate, str):
            condition, names = engine_sql(predicate, schema)
            self._sql = f"select coalesce(({condition})::boolean, false) from batch"
        elif isinstance(predicate, pc.Expression):
            self._expression, names = predicate, expression_columns(predicate, schema)
        else:
            self._expression, names = _from_filters(predicate, schema)
        folded = {name.casefold() for name in names}
        self.columns = [name for name in schema.names if name.casefold() in folded]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the predicate is true."""
        if not batch.num_rows:
            return batch
        if self._expression is None:
            return batch.filter(self._mask(batch))
        # What Arrow cannot compare it refuses with an error of its own, as it does when `deltalake` hands it filters.
        batches = pa.Table.from_batches([batch]).filter(self._expression).combine_chunks().to_batches()
        return batches[0] if batches else batch.slice(0, 0)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        # DuckDB only computes the mask and the rows stay in Arrow, so no value is converted to DuckDB's types and back.
        from deltalakedb.data.engine import Engine

        names = self.columns or batch.schema.names[:1]
        with Engine() as engine:  # a cursor of the process's own database, which costs almost nothing
            engine.register("batch", batch.select(names))
            try:
                return engine.table(self._sql).column(0).combine_chunks()
            except PredicateError as error:
                raise _cannot_judge(error) from error


def engine_sql(predicate: str, schema: StructType) -> tuple[str, set[str]]:
    """A condition in DuckDB's SQL with the meaning it has in DataFusion, and the columns it names."""
    # Loaded here because the SQL parser takes long to load, and most reads have no predicate.
    from deltalakedb.data.engine_values import translate_values

    def kind_of(column: Any) -> str | None:
        try:
            return resolve_column(schema, [part.name for part in column.parts]).type_name
        except PredicateError:
            return None

    return to_duckdb(predicate, lambda root: translate_values(root, kind_of))


def to_duckdb(text: str, translate: Callable[[Any], None] = lambda _: None) -> tuple[str, set[str]]:
    """A condition in DuckDB's SQL, for evaluation on rows, and the first part of each column name.

    `translate` changes what means something else to DuckDB, in place. A condition sees one row, so sub-queries are
    rejected.
    """
    from sqlglot import exp

    from deltalakedb.log.predicates.predicate_sql import parse_expression, spell

    root = exp.Paren(this=parse_expression(text))
    if root.find(exp.Query, exp.Subquery):
        raise PredicateError(f"a predicate on rows cannot hold a query: {text[:200]!r}")
    names = {node.parts[0].name for node in root.find_all(exp.Column)}
    translate(root)
    return spell(root.this), names


def check_condition(predicate: str, schema: StructType) -> None:
    """PredicateError for SQL that is not boolean, or that no row can be judged by: `id = 'x'` for a number."""
    from deltalakedb.data.engine import Engine

    condition, _ = engine_sql(predicate, schema)
    if condition.upper() == "NULL":
        return  # DuckDB types it as a number
    with Engine() as engine:
        engine.register("batch", _row_of_nulls(schema))
        kind = engine.types(f"select ({condition}) from batch")[0]
        try:
            engine.execute(f"select ({condition}) from batch")
        except PredicateError as error:
            raise _cannot_judge(error) from error
    if kind != "BOOLEAN":
        raise PredicateError(f"Cannot create filter with non-boolean predicate {predicate!r} returning {kind}")


def _row_of_nulls(schema: StructType) -> pa.Table:
    """One row whose values fail no function: what fails on it is a constant."""
    return pa.table({field.name: pa.nulls(1, field.type) for field in schema.to_arrow()})


def _cannot_judge(error: Exception) -> PredicateError:
    return PredicateError(f"the predicate cannot judge the rows: {str(error).partition(chr(10))[0]}")


def _from_filters(filters: Filters, schema: StructType) -> tuple[pc.Expression, set[str]]:
    alternatives: Any = [filters] if filters and isinstance(filters[0], tuple) else filters
    names: set[str] = set()
    conjunctions = []
    for conjunct in alternatives:
        parts = [_comparison(schema, *item) for item in conjunct]
        names.update(item[0] for item in conjunct)
        conjunctions.append(reduce(and_, parts, pc.scalar(True)))
    return reduce(or_, conjunctions, pc.scalar(not conjunctions)), names


def _comparison(schema: StructType, name: str, operator: str, value: Any) -> pc.Expression:
    item = schema.field(name)
    if item is None:
        raise no_such_column(name, schema.names)
    column, kind = pc.field(item.name), to_arrow_type(item.type)
    folded = operator.strip().lower()
    if folded in ("in", "not in"):
        matches = column.isin(pa.array(_values(value, kind), kind))
        return matches if folded == "in" else ~matches  # null is not in a list, as for every reader of `deltalake`
    if folded not in _OPERATORS:
        raise PredicateError(f"unknown operator {operator!r} in a filter on {name!r}")
    if value is None:
        return column.is_null() if _OPERATORS[folded] is eq else column.is_valid()
    comparison: pc.Expression = _OPERATORS[folded](column, pa.scalar(_values([value], kind)[0], kind))
    return comparison


def _values(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """Values in the column's type; text is parsed, as in partition filters."""
    try:
        return [pa.scalar(value).cast(kind).as_py() for value in values]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PredicateError(f"a filter's value is no {kind}: {error}") from error
