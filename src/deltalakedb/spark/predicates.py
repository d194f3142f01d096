"""Conditions on rows: for the plan in SQL, and as the filter that Spark applies to rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.schema.types import StructType
from deltalakedb.spark.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

    from deltalakedb.tables.filters import PredicateLike


@dataclass(frozen=True, slots=True)
class Where:
    """A condition for the planner and for Spark, and the top-level columns that it uses."""

    planned: PredicateLike
    condition: Column | str
    """As `DataFrame.where` takes it: a text takes one JVM call, a Column many."""
    columns: frozenset[str]

    @property
    def rows(self) -> Column:
        return F.expr(self.condition) if isinstance(self.condition, str) else self.condition


def read_where(where: PredicateLike, schema: StructType) -> Where:
    """Parse a condition in Spark's SQL, or the filter lists of `deltalake`."""
    if isinstance(where, str):
        return _from_sql(where, schema)
    if not isinstance(where, list | tuple):
        raise PredicateError(
            "where is a condition in SQL, or filter lists such as [('day', '=', '2026-01-02')]; rows can be filtered "
            f"by any other means on the DataFrame that comes back, here is a {type(where).__name__}"
        )
    groups: Sequence[Any] = [where] if all(isinstance(item, tuple) for item in where) else where
    rows = _any([_all([_filter(item, schema) for item in group]) for group in groups])
    columns = {_column_name(item[0], schema) for group in groups for item in group}
    return Where(where, rows, frozenset(columns))


def _from_sql(text: str, schema: StructType) -> Where:
    """Translate Spark's SQL for the planner: a double-quoted text is a string in Spark, a name in the planner."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        root = sqlglot.parse_one(text, dialect="spark")
        planned = root.sql(dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        places = getattr(error, "errors", None)
        detail = places[0]["description"] if places else "it ends early or nests too deep"
        raise PredicateError(f"sql parser error: {detail}: {text[:200]!r}") from error
    columns = {_column_name(node.parts[0].name, schema) for node in root.find_all(exp.Column)}
    return Where(planned, text, frozenset(columns))


def _column_name(name: str, schema: StructType) -> str:
    item = schema.field(name) or schema.field(name.partition(".")[0])
    return name if item is None else item.name


def _filter(item: Any, schema: StructType) -> Column:
    name, operator, value = item
    column = F.col(quoted(name) if schema.field(name) is not None else ".".join(map(quoted, name.split("."))))
    values = (
        [element for element in value if element is not None]
        if isinstance(value, list | tuple | set | frozenset)
        else []
    )
    match " ".join(str(operator).lower().split()):
        case "in":
            is_in = column.isin(values)
            return is_in | column.isNull() if len(values) < len(value) else is_in
        case "not in":
            return ~column.isin(values)
        case "=" | "==":
            return column.isNull() if value is None else column == F.lit(value)
        case "!=" | "<>":
            return column.isNotNull() if value is None else column != F.lit(value)
        case "<":
            return column < F.lit(value)
        case "<=":
            return column <= F.lit(value)
        case ">":
            return column > F.lit(value)
        case ">=":
            return column >= F.lit(value)
        case other:
            raise PredicateError(f"unknown operator {other!r} in a filter")


def _all(parts: list[Column]) -> Column:
    return reduce(lambda left, right: left & right, parts, F.lit(True))


def _any(parts: list[Column]) -> Column:
    return reduce(lambda left, right: left | right, parts) if parts else F.lit(True)
