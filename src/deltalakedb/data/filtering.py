"""Owns the filtering of rows by a predicate, exactly: DuckDB judges SQL, pyarrow the filters of `deltalake`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.data.arrow_expressions import expression_columns
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicate import Filters
from deltalakedb.log.types import StructType, to_arrow_type

RowPredicate: TypeAlias = str | Filters | pc.Expression
"""SQL, `deltalake`'s lists of filters (an outer list means "or"), or an expression of pyarrow."""

_OPERATORS: Final[dict[str, Any]] = {"=": eq, "==": eq, "!=": ne, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class RowFilter:
    """A predicate on rows of a table; `columns` are those it looks at."""

    def __init__(self, predicate: RowPredicate, schema: StructType) -> None:
        self._sql = ""
        self._expression: pc.Expression | None = None
        if isinstance(predicate, str):
            # What parses and judges SQL takes long to load, and most reads have no predicate.
            from deltalakedb.log.predicate_sql import to_duckdb

            condition, names = to_duckdb(predicate)
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
        try:
            kept = pa.Table.from_batches([batch]).filter(self._expression).combine_chunks().to_batches()
        except pa.ArrowException as error:
            raise _cannot_judge(error) from error
        return kept[0] if kept else batch.slice(0, 0)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        # The rows stay Arrow's: DuckDB says which, so no type takes a way through its types and back.
        from deltalakedb.data.engine import Engine

        names = self.columns or batch.schema.names[:1]
        with Engine() as engine:  # a cursor of the process's own database, which costs next to nothing
            engine.register("batch", batch.select(names))
            try:
                return engine.table(self._sql).column(0).combine_chunks()
            except PredicateError as error:
                raise _cannot_judge(error) from error


def _cannot_judge(error: Exception) -> PredicateError:
    return PredicateError(f"the predicate cannot judge the rows: {str(error).partition(chr(10))[0]}")


def _from_filters(filters: Filters, schema: StructType) -> tuple[pc.Expression, set[str]]:
    alternatives: Any = [filters] if filters and isinstance(filters[0], tuple) else filters
    names: set[str] = set()
    found = []
    for conjunct in alternatives:
        parts = [_comparison(schema, *item) for item in conjunct]
        names.update(item[0] for item in conjunct)
        found.append(reduce(and_, parts, pc.scalar(True)))
    return reduce(or_, found, pc.scalar(not found)), names


def _comparison(schema: StructType, name: str, operator: str, value: Any) -> pc.Expression:
    item = schema.field(name)
    if item is None:
        raise PredicateError(f"the table has no column {name!r}; it has {', '.join(schema.names)}")
    column, kind = pc.field(item.name), to_arrow_type(item.type)
    folded = operator.strip().lower()
    if folded in ("in", "not in"):
        chosen = column.isin(pa.array(_values(value, kind), kind))
        return chosen if folded == "in" else ~chosen & column.is_valid()
    if folded not in _OPERATORS:
        raise PredicateError(f"unknown operator {operator!r} in a filter on {name!r}")
    if value is None:
        return column.is_null() if _OPERATORS[folded] is eq else column.is_valid()
    comparison: pc.Expression = _OPERATORS[folded](column, pa.scalar(_values([value], kind)[0], kind))
    return comparison


def _values(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """Values as the column has them; text stands for what it spells, as in partition filters."""
    try:
        return [pa.scalar(value).cast(kind).as_py() for value in values]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PredicateError(f"a filter's value is no {kind}: {error}") from error
