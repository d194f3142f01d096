"""Reads the rows of a table with exact filters, and converts the forms of predicates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.schema.types import StructType, parse_schema, to_arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

Filter = tuple[str, str, Any]
FilterDnf = Sequence[Filter] | Sequence[Sequence[Filter]]
FilterLiteralType = Filter
FilterConjunctionType = list[FilterLiteralType]
FilterDNFType = list[FilterConjunctionType]
FilterType = FilterConjunctionType | FilterDNFType
PartitionFilterType = list[tuple[str, str, str | list[str]]]
FilePruningPredicateType = str | FilterType
"""The last six have the names that `deltalake.table` gives them."""
PredicateLike = str | FilterDnf
RowFilter = Any
"""SQL text, the filter lists of `deltalake`, or a pyarrow expression."""


def read_rows(
    files: pa.Table,
    metadata: Metadata,
    location: str,
    options: Mapping[str, str] | None,
    *,
    columns: Sequence[str] | None,
    filters: RowFilter | None,
) -> pa.RecordBatchReader:
    """Return a stream of the rows of these files for which `filters` is true."""
    from deltalakedb.data import read_files
    from deltalakedb.storage.location import open_storage

    schema = parse_schema(metadata.schema_string)
    return read_files(
        files,
        storage=open_storage(location, options),
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        columns=columns,
        predicate=None if filters is None else to_row_predicate(filters, schema),
    )


def is_expression(filters: RowFilter) -> bool:
    """Return whether it is a pyarrow expression, which filters rows but cannot be inspected."""
    import pyarrow.compute as pc

    return isinstance(filters, pc.Expression)


def to_row_predicate(filters: RowFilter, schema: StructType) -> str | pc.Expression:
    """Return the row filter for the data layer; filter lists become an expression with values of the column types."""
    if isinstance(filters, str) or is_expression(filters):
        return filters
    alternatives = [filters] if all(isinstance(item, tuple) for item in filters) else filters
    return reduce(or_, (reduce(and_, (_condition(item, schema) for item in conjunct)) for conjunct in alternatives))


def _condition(item: tuple[str, str, Any], schema: StructType) -> pc.Expression:
    """Return one filter as an expression. For pyarrow, a NaN is in a list only if it has the same bits."""
    import pyarrow.dataset as ds
    from pyarrow.parquet import filters_to_expression

    name, operator, value = typed = _cast_filter(item, schema)
    expression = filters_to_expression([[typed]])
    if operator not in ("in", "not in") or not any(map(_is_nan, value)):
        return expression
    field = ds.field(name)
    is_nan = field.is_nan()
    return expression | is_nan if operator == "in" else expression & (~is_nan | field.is_null())


def _is_nan(value: Any) -> bool:
    number = value.as_py() if hasattr(value, "as_py") else value
    return isinstance(number, float) and number != number


def _cast_filter(item: tuple[str, str, Any], schema: StructType) -> tuple[str, str, Any]:
    """Cast the value to the column's type: dates and numbers may be given as text, as in partition filters."""
    name, operator, value = item
    field = schema.field(name)
    if field is None:
        return item
    arrow = to_arrow_type(field.type)
    cast: Callable[[Any], Any] = lambda one: _cast(one, arrow)  # noqa: E731  applied to one value or to each
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
    """Return the predicate that selects files, from either argument; `deltalake` has deprecated `filters`."""
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
