"""Plans Iceberg tables for people: the files of a snapshot as Arrow, by a predicate in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import PredicateError
from deltalakedb.iceberg.planning.answers import Page, Scan, read_page
from deltalakedb.iceberg.planning.binding import Binder, without_nan
from deltalakedb.iceberg.planning.bounds import column_key
from deltalakedb.iceberg.planning.deletes import sequence_number
from deltalakedb.iceberg.planning.indexing import index_snapshot
from deltalakedb.iceberg.planning.reading import ReadFile, StoredFiles
from deltalakedb.iceberg.planning.requests import PlanRequest, snapshots_to_scan
from deltalakedb.iceberg.planning.schema import Field, TableSchema, TableShape
from deltalakedb.iceberg.planning.types import Primitive, is_decimal
from deltalakedb.log.predicates.atoms import TRUE, Column, Dnf, Kind
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.store import Store
from deltalakedb.store.candidates import PlanStep
from deltalakedb.store.iceberg_files import list_key
from deltalakedb.store.iceberg_plan import FileRange, SnapshotPlan
from deltalakedb.store.planning import PlannedFiles

PLAN_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("num_records", pa.int64()),
        pa.field("spec_id", pa.int32()),
        pa.field("partition_values", pa.string()),
        pa.field("sequence_number", pa.int64()),
        pa.field("delete_files", pa.list_(pa.string())),
    ]
)
"""`partition_values`: the values in the order of the spec's fields, as JSON; `delete_files`: deletes on the file."""

_TYPES: Final[dict[str, tuple[str, Kind | None]]] = {
    "boolean": ("boolean", "number"),
    "integer": ("long", "number"),
    "days": ("date", "date"),
    "text": ("string", "text"),
}


def plan_files(
    store: Store,
    table_id: int,
    metadata: Mapping[str, Any],
    predicate_sql: str | None = None,
    *,
    snapshot_id: int | None = None,
    read: ReadFile | None = None,
    explain: bool = False,
) -> PlannedFiles:
    """The data files of a snapshot that may hold a matching row, and how many were pruned.

    `explain` also counts what each condition keeps by itself. Column names ignore case, as in Spark.
    """
    shape = TableShape(metadata)
    snapshots = snapshots_to_scan(metadata, PlanRequest(snapshot_id=snapshot_id))
    if not snapshots:
        return PlannedFiles(PLAN_SCHEMA.empty_table(), 0, 0)
    schema = shape.schema if snapshot_id is None else shape.schema_of(snapshots[0].get("schema-id"))
    scan = Scan(table_id, shape, [schema], _predicate(predicate_sql, shape, schema), True)
    size = index_snapshot(store, table_id, shape, snapshots[0], read or StoredFiles())
    files = FileRange(list_key(snapshots[0]))
    with store.read() as conn:
        page = read_page(conn, scan, files, max_files=2**62, has_deletes=size.num_delete_files > 0)
        steps: list[PlanStep] = []
        if scan.predicate != TRUE:
            plan = SnapshotPlan(conn, table_id, scan.predicate, files)
            steps = plan.explained(size.num_data_files, counted=explain)
    rows = _to_arrow(page)
    return PlannedFiles(rows, rows.num_rows, size.num_data_files - rows.num_rows, steps)


def _to_arrow(page: Page) -> pa.Table:
    rows = page.rows
    columns: Sequence[Sequence[Any]] = [
        [row["file_path"] for row in rows],
        [row["size"] for row in rows],
        [row["num_records"] for row in rows],
        [row["spec_id"] for row in rows],
        [row["file_partition"] for row in rows],
        [sequence_number(row) for row in rows],
        [[item.file["file-path"] for item in deletes] for deletes in page.deletes],
    ]
    return pa.table(
        [pa.array(column, item.type) for column, item in zip(columns, PLAN_SCHEMA, strict=True)], PLAN_SCHEMA
    )


def _predicate(text: str | None, shape: TableShape, schema: TableSchema) -> Dnf:
    if text is None:
        return TRUE
    # sqlglot takes a third of a second to import, so it is imported only for predicates in SQL.
    from deltalakedb.log.predicates.predicate_sql import read_sql

    def resolve(path: Sequence[str]) -> Column:
        name = ".".join(path)
        try:
            return _column(schema.find(name, case_sensitive=False))
        except PredicateError:
            raise no_such_column(name, [field.name for field in schema.fields]) from None

    return Binder(shape, schema).with_partitions(without_nan(read_sql(text, resolve)))


def _column(field: Field) -> Column:
    """A column as predicates in SQL read it: literals are compared by Delta's name of its type."""
    if field.type is None or not field.has_bounds:
        return Column((field.name,), ("",), "nested", None)
    name, kind = _type_of(field.type)
    key = column_key(field.field_id, field.type)
    return Column((field.name,), (key,), name, kind, fuzzy_float=field.type.name == "float")


def _type_of(type_: Primitive) -> tuple[str, Kind | None]:
    if type_.family == "float":
        return type_.name, "number"
    if is_decimal(type_):
        return type_.name.replace(" ", ""), "number"
    if type_.family == "micros":
        return ("timestamp" if type_.name == "timestamptz" else "timestamp_ntz"), "timestamp"
    return _TYPES.get(type_.family, (type_.name, None))
