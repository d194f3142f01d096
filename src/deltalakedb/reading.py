"""Reads the rows of a table, filtered exactly, and the forms in which predicates are given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .log.actions import Metadata
from .log.types import StructType, parse_schema, to_arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

Filter = tuple[str, str, Any]
FilterDnf = Sequence[Filter] | Sequence[Sequence[Filter]]
PredicateLike = str | FilterDnf
RowFilter = Any
"""SQL text, the filter lists of `deltalake`, or an expression of pyarrow."""


def read_rows(
    files: pa.Table,
    metadata: Metadata,
    location: str,
    options: Mapping[str, str] | None,
    *,
    columns: Sequence[str] | None,
    filters: RowFilter | None,
) -> pa.RecordBatchReader:
    """A stream over the rows of these files for which `filters` is true."""
    from .data import read_files
    from .storage import open_data_storage

    schema = parse_schema(metadata.schema_string)
    return read_files(
        files,
        storage=open_data_storage(location, options),
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        columns=columns,
        predicate=None if filters is None else to_row_predicate(filters, schema),
    )


def is_expression(filters: RowFilter) -> bool:
    """Whether it is an expression of pyarrow: it filters rows, but cannot be looked into."""
    import pyarrow.compute as pc

    return isinstance(filters, pc.Expression)


def to_row_predicate(filters: RowFilter, schema: StructType) -> str | pc.Expression:
    """What the data plane filters rows by; filter lists become an expression, their values of the columns' types."""
    if isinstance(filters, str) or is_expression(filters):
        return filters
    from pyarrow.parquet import filters_to_expression

    alternatives = [filters] if all(isinstance(item, tuple) for item in filters) else filters
    return filters_to_expression([[_typed(item, schema) for item in conjunct] for conjunct in alternatives])


def _typed(item: tuple[str, str, Any], schema: StructType) -> tuple[str, str, Any]:
    """A date or a number may be given as text, as partition filters always were."""
    name, operator, value = item
    field = schema.field(name)
    if field is None:
        return item
    arrow = to_arrow_type(field.type)
    cast: Callable[[Any], Any] = lambda one: _cast(one, arrow)  # noqa: E731  the operator decides how often
    many = isinstance(value, list | tuple | set | frozenset)
    return field.name, "==" if operator == "=" else operator, [cast(one) for one in value] if many else cast(value)


def _cast(value: Any, arrow: pa.DataType) -> Any:
    import pyarrow as pa

    if not isinstance(value, str) or pa.types.is_string(arrow):
        return value
    return pa.scalar(value).cast(arrow)


def one_predicate(
    filters: FilterDnf | None, predicate: PredicateLike | None, *, name: str = "partition_filters"
) -> PredicateLike | None:
    """What chooses files: the argument of today, or the one that `deltalake` has deprecated."""
    if filters is None:
        return predicate
    if predicate is not None:
        raise ValueError(f"`{name}` is deprecated; pass only `file_pruning_predicate`")
    warnings.warn(
        f"`{name}` is deprecated; pass the filters to `file_pruning_predicate` instead",
        DeprecationWarning,
        stacklevel=3,
    )
    return filters
