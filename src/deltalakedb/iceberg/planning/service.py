"""Answers requests for scan plans of Iceberg tables: whole where they are small, in tasks where they are large.

A plan is a row that says which snapshots, schema and ranges of files it is about. Its tasks are planned again from SQL
rows, which never change, so that any process can answer them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import (
    MalformedLogError,
    MissingFileError,
    PlanTaskNotFoundError,
    StorageError,
)
from deltalakedb.iceberg.metadata_files import is_own_or_free
from deltalakedb.iceberg.planning.answers import Page, Scan, read_page, tasks_json
from deltalakedb.iceberg.planning.indexing import index_snapshot
from deltalakedb.iceberg.planning.plan_rows import INLINE_FILES, TASK_FILES, PlanRows, no_such_plan, task_names
from deltalakedb.iceberg.planning.reading import CheckedFiles, ReadFile, StoredFiles
from deltalakedb.iceberg.planning.requests import (
    PlanRequest,
    bind_filter,
    parse_request,
    schemas_to_bind,
    snapshots_to_scan,
)
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.log.predicates.atoms import TRUE
from deltalakedb.rights import current_access
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.iceberg_files import SnapshotSize, list_key, snapshot_size
from deltalakedb.store.iceberg_plan import FileRange, SnapshotPlan
from deltalakedb.store.names import TableName
from deltalakedb.store.registry import TableRow, table_by_id


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A snapshot of a scan whose files are in SQL."""

    snapshot: Mapping[str, Any]
    size: SnapshotSize


class PlanService:
    """Plans scans of the Iceberg tables of a catalog."""

    def __init__(self, catalog: Catalog, *, inline_files: int = INLINE_FILES, task_files: int = TASK_FILES) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._rows = PlanRows(catalog.store)
        self._inline_files = inline_files
        self._task_files = task_files

    def plan(
        self, name: TableName, table_id: int, metadata: Mapping[str, Any], request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Plans a scan: a completed answer, or a failed one if the table's own files cannot be read.

        Raises PredicateError for a malformed request, VersionNotFoundError for an unknown snapshot.
        """
        parsed = parse_request(request)
        shape = TableShape(metadata)
        snapshots = snapshots_to_scan(metadata, parsed)
        scan = self._bind(table_id, shape, parsed, snapshots)
        try:
            indexed = self._index(table_id, shape, snapshots)
        except (MalformedLogError, MissingFileError, StorageError) as error:
            return _failed(error)
        plan_id = self._rows.new_id()
        with self._store.read() as conn:
            pages, ranges = self._find(conn, scan, parsed, indexed)
        answer = {"status": "completed", "plan-id": plan_id, **_answer(plan_id, scan, pages, ranges)}
        kept = sum(count for _, count in ranges) if pages is None else sum(len(page.rows) for page in pages)
        statistics = _statistics(indexed, kept)
        context = _context(name, metadata, snapshots, [files for files, _ in ranges])
        self._rows.save(plan_id, table_id, {**request, "filter": parsed.filter}, context, statistics)
        return answer

    def fetch(self, plan_id: str) -> dict[str, Any]:
        """The answer of a plan again; PlanNotFoundError if there is no such plan, or none any more."""
        row = self._rows.require(plan_id)
        if row["plan_status"] == "cancelled":
            return {"status": "cancelled"}
        context = orjson.loads(row["tasks"])
        ranges = [FileRange(*item) for item in context["ranges"]]
        scan = self._scan_of(row, context)
        pages = None
        if not context["in-tasks"]:
            with self._store.read() as conn:
                pages = [self._read(conn, scan, files) for files in ranges]
        return {
            "status": "completed",
            "plan-id": plan_id,
            **_answer(plan_id, scan, pages, [(files, 0) for files in ranges]),
        }

    def require_of(self, table_id: int, plan_id: str) -> None:
        """Raise PlanNotFoundError unless there is such a plan, of this table."""
        if self._rows.require(plan_id)["table_id"] != table_id:
            raise no_such_plan(plan_id)

    def cancel(self, plan_id: str) -> None:
        """Removes a plan's tasks; PlanNotFoundError if there is no such plan, or none any more."""
        self._rows.cancel(plan_id)

    def tasks(self, name: TableName, plan_task: str) -> dict[str, Any]:
        """The files of a plan task; PlanTaskNotFoundError if there is no such task, or none any more."""
        row, context, number = self._rows.task(name, plan_task)
        scan = self._scan_of(row, context)
        with self._store.read() as conn:
            page = self._read(conn, scan, FileRange(*context["ranges"][number]))
        return tasks_json([page], scan)

    # -- planning

    def _bind(
        self, table_id: int, shape: TableShape, request: PlanRequest, snapshots: Sequence[Mapping[str, Any]]
    ) -> Scan:
        schemas = schemas_to_bind(shape, request, snapshots)
        predicate = bind_filter(request, shape, schemas)
        names = request.stats_fields if request.case_sensitive else [item.lower() for item in request.stats_fields]
        stats_ids = {
            field.field_id
            for schema in schemas
            for field in schema.fields
            if (field.name if request.case_sensitive else field.name.lower()) in names
        }
        return Scan(table_id, shape, schemas, predicate, request.filter, stats_ids)

    def _index(self, table_id: int, shape: TableShape, snapshots: Sequence[Mapping[str, Any]]) -> list[_Snapshot]:
        if not snapshots:
            return []
        with self._store.read(single=True) as conn:
            row = table_by_id(conn, table_id)
        read: ReadFile = StoredFiles(None if row is None else self._catalog.storage_options_of(row))
        if row is not None and not current_access().is_trusted:
            read = self._own_files(row, read)
            for item in snapshots:
                if "manifest-list" in item:
                    read.check(str(item["manifest-list"]))  # also if a plan of others has put it into SQL
        return [_Snapshot(item, index_snapshot(self._store, table_id, shape, item, read)) for item in snapshots]

    def _own_files(self, table: TableRow, read: ReadFile) -> CheckedFiles:
        """The files that a caller may name who may do only what was granted."""
        options, config = self._catalog.storage_options_of(table), self._catalog.config
        return CheckedFiles(read, lambda folder: is_own_or_free(folder, table, self._store, options, config))

    def _find(
        self, conn: Connection, scan: Scan, request: PlanRequest, snapshots: Sequence[_Snapshot]
    ) -> tuple[list[Page] | None, list[tuple[FileRange, int]]]:
        """The pages of a small plan, and its ranges of files; of a large one only ranges, with their file counts."""
        parts = [(_files_of(item.snapshot, request.is_incremental), item.size) for item in snapshots]
        pages: list[Page] = []
        for files, size in parts:
            left = self._inline_files - sum(len(page.rows) for page in pages)
            deletes = size.num_delete_files > 0
            page = read_page(conn, scan, files, max_files=left + 1, has_deletes=deletes)
            if len(page.rows) > left:
                return None, [item for files, _ in parts for item in self._ranges(conn, scan, files)]
            pages.append(page)
        if request.min_rows is not None and scan.predicate == TRUE:
            pages = [_first_rows(page, request.min_rows) for page in pages[:1]] + pages[1:]
        return pages, [(files, 0) for files, _ in parts]

    def _ranges(self, conn: Connection, scan: Scan, files: FileRange) -> list[tuple[FileRange, int]]:
        """The ranges of files of plan tasks: each holds as many candidates as a task has files."""
        file_ids = iter(
            SnapshotPlan(conn, scan.table_id, scan.predicate, files).file_ids().column("file_id").to_pylist()
        )
        ranges = []
        while ids := list(islice(file_ids, self._task_files)):
            ranges.append((FileRange(files.list_key, files.added_in, ids[0], ids[-1]), len(ids)))
        return ranges

    def _read(self, conn: Connection, scan: Scan, files: FileRange) -> Page:
        size = snapshot_size(conn, scan.table_id, files.list_key)
        if size is None:
            raise PlanTaskNotFoundError("a snapshot of the scan has expired; plan the scan again")
        return read_page(conn, scan, files, max_files=2**62, has_deletes=size.num_delete_files > 0)

    def _scan_of(self, row: Row, context: Mapping[str, Any]) -> Scan:
        request = parse_request(json.loads(row["request"]))
        return self._bind(row["table_id"], TableShape(context["metadata"]), request, context["snapshots"])


def _files_of(snapshot: Mapping[str, Any], only_added: bool) -> FileRange:
    return FileRange(list_key(snapshot), int(snapshot["snapshot-id"]) if only_added else -1)


def _answer(
    plan_id: str, scan: Scan, pages: Sequence[Page] | None, ranges: Sequence[tuple[FileRange, int]]
) -> dict[str, Any]:
    if pages is not None:
        return tasks_json(pages, scan)
    return task_names(plan_id, len(ranges))


def _first_rows(page: Page, min_rows: int) -> Page:
    """The first files of a page with at least as many rows; all of them if deletes could take some away."""
    if any(page.deletes):
        return page
    rows, total = [], 0
    for row in page.rows:
        if total >= min_rows:
            break
        rows.append(row)
        total += row["num_records"]
    return Page(rows, page.deletes[: len(rows)])


def _failed(error: Exception) -> dict[str, Any]:
    code = 404 if isinstance(error, MissingFileError) else 500
    kind = "NotFoundException" if code == 404 else "ServerErrorException"
    return {"status": "failed", "error": {"message": str(error), "type": kind, "code": code}}


def _statistics(snapshots: Sequence[_Snapshot], kept: int) -> dict[str, int]:
    total = sum(item.size.num_data_files for item in snapshots)
    deletes = sum(item.size.num_delete_files for item in snapshots)
    return {"data-files": total, "delete-files": deletes, "kept": kept, "pruned": max(total - kept, 0)}


def _context(
    name: TableName,
    metadata: Mapping[str, Any],
    snapshots: Sequence[Mapping[str, Any]],
    ranges: Sequence[FileRange],
) -> dict[str, Any]:
    """What a plan's tasks are planned by: the table's shape at that time, and ranges of files."""
    shape = ("schema", "schemas", "current-schema-id", "partition-spec", "partition-specs")
    return {
        "name": list(name.key),
        "metadata": {key: metadata[key] for key in shape if key in metadata},
        "snapshots": [{"snapshot-id": item["snapshot-id"], "schema-id": item.get("schema-id")} for item in snapshots],
        "ranges": [[item.list_key, item.added_in, item.first_id, item.last_id] for item in ranges],
        "in-tasks": any(item.last_id != FileRange(0).last_id for item in ranges),
    }
