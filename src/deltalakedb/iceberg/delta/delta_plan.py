"""Plans scans of Delta tables for Iceberg clients, from the rows of their files.

The head is planned by the index of bounds, as for Delta readers; older versions and tasks by the statistics of each
file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import (
    DeltaProtocolError,
    MissingFileError,
    PlanTaskNotFoundError,
    PredicateError,
    StorageError,
)
from deltalakedb.iceberg.delta.delta_files import COLUMNS, DeltaFile, FileShape
from deltalakedb.iceberg.delta.delta_tables import DeltaState
from deltalakedb.iceberg.delta.vectors import VectorFiles
from deltalakedb.iceberg.planning.bounds import column_key
from deltalakedb.iceberg.planning.plan_rows import INLINE_FILES, TASK_FILES, PlanRows, task_names
from deltalakedb.iceberg.planning.requests import (
    PlanRequest,
    bind_filter,
    parse_request,
    schemas_to_bind,
    snapshots_to_scan,
)
from deltalakedb.iceberg.planning.schema import TableSchema, TableShape
from deltalakedb.iceberg.planning.types import Primitive, to_json_value
from deltalakedb.log.predicates.atoms import TRUE, Atom, Column, Dnf, IsNotNull, IsNull, Predicate, Unknown, Within
from deltalakedb.log.predicates.predicate import resolve_column
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.log.schema.types import leaf_columns, parse_schema
from deltalakedb.store.connection import Connection, Row, select_columns
from deltalakedb.store.iceberg_delta import VectorCopy
from deltalakedb.store.names import TableName
from deltalakedb.store.planning import files_that_may_match, plan
from deltalakedb.store.registry import OpenTable

PartitionOf: TypeAlias = Callable[[Sequence[Primitive], DeltaFile], list[Any]]
"""Returns the partition values of a file in JSON."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """One version of a scan, with the predicate in the terms of its columns."""

    opened: OpenTable
    version: int
    shape: FileShape
    predicate: Predicate
    only_added: bool


class DeltaPlans:
    """Plans scans of the Delta tables of a catalog."""

    def __init__(self, catalog: Catalog, *, inline_files: int = INLINE_FILES, task_files: int = TASK_FILES) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._rows = PlanRows(catalog.store)
        self._inline_files = inline_files
        self._task_files = task_files

    def plan(
        self, name: TableName, state: DeltaState, request: Mapping[str, Any], *, for_pyiceberg: bool = False
    ) -> dict[str, Any]:
        """Plan a scan: a completed answer, or a failed one if the table's own files cannot be read.

        PyIceberg does not parse partition values in plans, which other clients do: it gets them as numbers.

        Raises PredicateError for a malformed request, VersionNotFoundError for an unknown snapshot.
        """
        parsed = parse_request(request)
        snapshots = snapshots_to_scan(state.metadata, parsed)
        scans = self._scans(state, parsed, snapshots)
        with self._store.read() as conn:
            tables = [self._find(conn, scan) for scan in scans]
        total = sum(table.num_rows for table in tables)
        plan_id = self._rows.new_id()
        ranges: list[tuple[int, int, int]] = []
        try:
            if total <= self._inline_files:
                pages = [self._page(scan, table) for scan, table in zip(scans, tables, strict=True)]
                if parsed.min_rows is not None and len(pages) == 1 and scans[0].predicate.disjuncts == TRUE:
                    pages[0] = pages[0].first_rows(parsed.min_rows)
                answer = _tasks(pages, parsed.filter, _raw_partition if for_pyiceberg else _partition_json)
            else:
                ranges = [item for n, table in enumerate(tables) for item in self._ranges(n, table)]
                answer = task_names(plan_id, len(ranges))
        except (DeltaProtocolError, MissingFileError, PredicateError, StorageError) as error:
            return {"status": "failed", "error": {"message": str(error), "type": "ServerErrorException", "code": 500}}
        context = {
            "versions": [scan.version for scan in scans],
            "name": list(name.key),
            "metadata": _parts_of(state.metadata),
            "snapshots": [{"snapshot-id": item["snapshot-id"], "schema-id": item["schema-id"]} for item in snapshots],
            "for-pyiceberg": for_pyiceberg,
            "ranges": ranges,
        }
        counts = {"data-files": state.opened.head.num_files, "kept": total}
        self._rows.save(plan_id, state.opened.table.table_id, {**request, "filter": parsed.filter}, context, counts)
        return {"status": "completed", "plan-id": plan_id, **answer}

    def fetch(self, state: DeltaState, plan_id: str) -> dict[str, Any]:
        """The answer of a plan again; PlanNotFoundError if there is no such plan, or none any more."""
        row = self._rows.require(plan_id)
        if row["plan_status"] == "cancelled":
            return {"status": "cancelled"}
        context = orjson.loads(row["tasks"])
        if context["ranges"]:
            return {"status": "completed", "plan-id": plan_id, **task_names(plan_id, len(context["ranges"]))}
        parsed, scans = self._planned(state, row, context)
        with self._store.read() as conn:
            tables = [self._find(conn, scan) for scan in scans]
        pages = [self._page(scan, table) for scan, table in zip(scans, tables, strict=True)]
        return {"status": "completed", "plan-id": plan_id, **_tasks(pages, parsed.filter, _partitions_for(context))}

    def tasks(self, name: TableName, state: DeltaState, plan_task: str) -> dict[str, Any]:
        """The files of a plan task; PlanTaskNotFoundError if there is no such task, or none any more."""
        row, context, number = self._rows.task(name, plan_task)
        parsed, scans = self._planned(state, row, context)
        place, first_id, last_id = context["ranges"][number]
        scan = scans[place]
        with self._store.read() as conn:
            if conn.one("select_version", table_id=state.opened.table.table_id, version=scan.version) is None:
                raise PlanTaskNotFoundError("a version of the scan has expired; plan the scan again")
            text = select_columns(list(COLUMNS), "select_files_of_version_between")
            rows = conn.sql_arrow(
                text,
                table_id=state.opened.table.table_id,
                version=scan.version,
                first_file_id=first_id,
                last_file_id=last_id,
            )
        if scan.only_added:
            rows = _added_in(rows, scan.version)
        return _tasks([self._page(scan, _matching(rows, scan))], parsed.filter, _partitions_for(context))

    # -- finding files

    def _planned(self, state: DeltaState, row: Row, context: Mapping[str, Any]) -> tuple[PlanRequest, list[_Scan]]:
        """A plan's request and scans, by the table's shape at that time."""
        parsed = parse_request(json.loads(row["request"]))
        then = replace(state, metadata=context["metadata"])
        return parsed, self._scans(then, parsed, context["snapshots"], context["versions"])

    def _scans(
        self,
        state: DeltaState,
        request: PlanRequest,
        snapshots: Sequence[Mapping[str, Any]],
        versions: Sequence[int] | None = None,
    ) -> list[_Scan]:
        if not snapshots:
            return []
        shape = TableShape(state.metadata)
        schemas = schemas_to_bind(shape, request, snapshots)
        plain = TableShape({**state.metadata, "partition-specs": [{"spec-id": 0, "fields": []}]})
        predicate = bind_filter(request, plain, schemas, nan_has_bounds=False)
        numbers = versions or [int(item["summary"]["delta.version"]) for item in snapshots]
        return [
            self._scan(state, shape, predicate, snapshot.get("schema-id"), version, request.is_incremental)
            for snapshot, version in zip(snapshots, numbers, strict=True)
        ]

    def _scan(
        self,
        state: DeltaState,
        shape: TableShape,
        predicate: Dnf,
        schema_id: int | None,
        version: int,
        only_added: bool,
    ) -> _Scan:
        with self._store.read(single=True) as conn:
            row = conn.one("select_metadata", table_id=state.opened.table.table_id, version=version)
        assert row is not None, "a kept version has metadata"
        metadata = metadata_from_row(row)
        opened = replace(state.opened, metadata=metadata)
        columns = _columns_by_key(shape.schema_of(schema_id), metadata)
        disjuncts = tuple(tuple(_on_delta(atom, columns) for atom in atoms) for atoms in predicate)
        files = FileShape(
            state.opened.table.location,
            metadata,
            state.ids,
            options=self._catalog.storage_options_of(state.opened.table),
        )
        return _Scan(opened, version, files, Predicate("", disjuncts), only_added)

    def _find(self, conn: Connection, scan: _Scan) -> pa.Table:
        if not scan.only_added:
            return plan(conn, scan.opened, scan.predicate, version=scan.version, columns=COLUMNS).files
        text = select_columns(list(COLUMNS), "select_files_added_in")
        rows = conn.sql_arrow(text, table_id=scan.opened.table.table_id, version=scan.version)
        return _matching(rows, scan)

    def _ranges(self, place: int, table: pa.Table) -> list[tuple[int, int, int]]:
        """Ranges of file ids that hold as many files of the plan as a task has."""
        ids = sorted(table.column("file_id").to_pylist())
        pages = [ids[start : start + self._task_files] for start in range(0, len(ids), self._task_files)]
        return [(place, page[0], page[-1]) for page in pages]

    def _page(self, scan: _Scan, rows: pa.Table) -> _Page:
        files = scan.shape.files(rows)
        table = scan.opened.table
        vectors = VectorFiles(
            self._store,
            table.table_id,
            table.location,
            scan.shape.client_location,
            self._catalog.storage_options_of(table),
        )
        return _Page(scan.shape, files, vectors.copies(files), scan.version)


def _matching(rows: pa.Table, scan: _Scan) -> pa.Table:
    return files_that_may_match(rows, scan.opened.metadata, scan.predicate) if scan.predicate.disjuncts else rows[:0]


def _added_in(rows: pa.Table, version: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column("version"), version))


def _parts_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What the tasks of a plan are planned by: the table's shape at that time."""
    return {key: metadata[key] for key in ("schemas", "current-schema-id", "partition-specs")}


# ---- predicates


def _columns_by_key(schema: TableSchema, metadata: Metadata) -> dict[str, Column]:
    """The table's columns by the keys of the atoms that Iceberg's expressions are bound to."""
    delta = parse_schema(metadata.schema_string)
    partitions = frozenset(name.casefold() for name in metadata.partition_columns)
    columns: dict[str, Column] = {}
    paths = {".".join(path): path for path in _paths(metadata)}
    for field in schema.fields:
        if field.type is not None and field.has_bounds and field.name in paths:
            key = column_key(field.field_id, field.type)
            columns[key] = resolve_column(delta, paths[field.name], partitions, exact=True)
    return columns


def _paths(metadata: Metadata) -> Sequence[tuple[str, ...]]:
    return [leaf.path for leaf in leaf_columns(parse_schema(metadata.schema_string))]


def _on_delta(atom: Atom, columns: Mapping[str, Column]) -> Atom:
    """An atom on the table's own column; unknown where its bounds say nothing."""
    if isinstance(atom, Unknown):
        return atom
    column = columns.get(atom.column.physical_path[0])
    if column is None or column.kind is None:
        return Unknown(f"{atom.column.name} has no bounds")
    if isinstance(atom, IsNull | IsNotNull):
        return replace(atom, column=column)
    assert isinstance(atom, Within)
    return Unknown(column.unprunable) if column.unprunable else replace(atom, column=column)


# ---- JSON


@dataclass(frozen=True, slots=True)
class _Page:
    """Files of a plan, with the copies of their vectors."""

    shape: FileShape
    files: Sequence[DeltaFile]
    copies: Mapping[str, VectorCopy]
    version: int

    def first_rows(self, min_rows: int) -> _Page:
        """The first files with at least as many rows; all of them if vectors could take some away."""
        if self.copies:
            return self
        kept, total = [], 0
        for file in self.files:
            if total >= min_rows:
                break
            kept.append(file)
            total += file.num_records
        return replace(self, files=kept)


def _tasks(pages: Sequence[_Page], residual: Any, partition_of: PartitionOf) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = []
    deletes: list[dict[str, Any]] = []
    for page in pages:
        for file in page.files:
            task: dict[str, Any] = {
                "data-file": data_file_json(page.shape, file, partition_of),
                "residual-filter": residual,
            }
            if file.vector is not None:
                task["delete-file-references"] = [len(deletes)]
                deletes.append(delete_file_json(page.shape, file, page.copies[file.vector_key], partition_of))
            tasks.append(task)
    return {"file-scan-tasks": tasks} | ({"delete-files": deletes} if deletes else {})


def data_file_json(shape: FileShape, file: DeltaFile, partition_of: PartitionOf) -> dict[str, Any]:
    """A data file as plans return it."""
    result = {
        "spec-id": shape.spec_id,
        "content": "data",
        "file-path": file.path,
        "file-format": "parquet",
        "partition": partition_of(shape.partition_types, file),
        "file-size-in-bytes": file.size,
        "record-count": file.num_records,
    }
    if file.first_row_id is not None:
        result |= {"first-row-id": file.first_row_id, "data-sequence-number": file.sequence_number}
    return result


def delete_file_json(shape: FileShape, file: DeltaFile, copy: VectorCopy, partition_of: PartitionOf) -> dict[str, Any]:
    """A deletion vector as plans return it."""
    assert file.vector is not None
    return {
        "spec-id": shape.spec_id,
        "content": "position-deletes",
        "file-path": copy.puffin_path,
        "file-format": "puffin",
        "partition": partition_of(shape.partition_types, file),
        "file-size-in-bytes": copy.puffin_size,
        "record-count": file.vector.cardinality,
        "referenced-data-file": file.path,
        "content-offset": copy.content_offset,
        "content-size-in-bytes": copy.content_size,
    }


def _partition_json(types: Sequence[Primitive], file: DeltaFile) -> list[Any]:
    return [to_json_value(type_, value) for type_, value in zip(types, file.partition, strict=True)]


def _raw_partition(types: Sequence[Primitive], file: DeltaFile) -> list[Any]:
    """Partition values as PyIceberg takes them; PredicateError for those that it cannot take."""
    for type_, value in zip(types, file.partition, strict=True):
        if value is None or isinstance(value, Decimal | bytes) or (isinstance(value, float) and not isfinite(value)):
            what = "null" if value is None else f"the {type_.name} {value!r}"
            raise PredicateError(
                f"PyIceberg cannot read {what} as a partition value in a plan of the server: set scan-planning-mode to "
                "client"
            )
    return [bool(v) if t.family == "boolean" else v for t, v in zip(types, file.partition, strict=True)]


def _partitions_for(context: Mapping[str, Any]) -> PartitionOf:
    return _raw_partition if context["for-pyiceberg"] else _partition_json
