"""read_table: files are planned in SQL and read by Spark's own Parquet scan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltalakedb.exceptions import MissingExtraError, PredicateError

try:
    import pyspark  # noqa: F401  only whether it is installed
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.spark", "spark") from None

from deltalakedb.catalog.instants import Instant
from deltalakedb.log.schema.types import StructField, StructType
from deltalakedb.schema import to_struct
from deltalakedb.spark.opening import CatalogLike, opened_table, storage_options_of
from deltalakedb.spark.predicates import Where, read_where
from deltalakedb.spark.scans import FILE_COLUMNS, Scan, scan_files
from deltalakedb.spark.schemas import quoted, without_void

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltalakedb.table import DeltaTable
    from deltalakedb.tables.filters import PredicateLike


def read_table(
    spark: SparkSession,
    name_or_uri: str | os.PathLike[str] | DeltaTable,
    where: PredicateLike | None = None,
    columns: Sequence[str] | None = None,
    version: int | None = None,
    timestamp: Instant | None = None,
    catalog: CatalogLike = None,
) -> DataFrame:
    """Read a table, or the rows of it that match `where`, at the newest or any other version.

    The catalog's database chooses the files: no log is read and nothing is listed. `where` is Spark's SQL or filter
    lists; it prunes files, and filters rows. It needs no jar and works in any Spark session.
    """
    with opened_table(name_or_uri, catalog, version, timestamp) as table:
        schema = without_void(to_struct(table.schema()))
        everything = where is None or (isinstance(where, list | tuple) and not where)
        condition = None if where is None or everything else read_where(where, schema)
        chosen = _choose_fields(schema, columns, table.name)
        needed = {item.name for item in chosen} | (condition.columns if condition else set())
        metadata = table.metadata()
        scan = Scan.of(
            spark,
            StructType(tuple(item for item in schema.fields if item.name in needed)),
            table=f"{table.name} version {table.version()}",
            location=table.table_uri,
            options=storage_options_of(table),
            partition_columns=metadata.partition_columns,
            configuration=metadata.configuration,
        )
        rows = scan_files(scan, _plan_files(table, condition))
    if condition is not None:
        rows = rows.where(condition.condition)
    # Spark analyses each step on a DataFrame, so a step that changes nothing is left out.
    return rows if chosen == list(scan.schema.fields) else rows.select(*(quoted(item.name) for item in chosen))


def _choose_fields(schema: StructType, columns: Sequence[str] | None, table: str) -> list[StructField]:
    if columns is None:
        return list(schema.fields)
    fields = []
    for name in columns:
        item = schema.field(name)
        if item is None:
            raise PredicateError(f"table {table} has no column {name!r}; it has {', '.join(schema.names)}")
        fields.append(item)
    return fields


def _plan_files(table: DeltaTable, condition: Where | None) -> pa.Table:
    if condition is None:
        return table.files(FILE_COLUMNS)
    return table.plan(condition.planned, columns=FILE_COLUMNS).files
