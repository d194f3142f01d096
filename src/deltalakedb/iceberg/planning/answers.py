"""Builds the JSON of scan tasks from the rows of a plan, with the deletes that apply to each file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from deltalakedb.iceberg.planning.bounds import IndexColumn, bound_of, column_of
from deltalakedb.iceberg.planning.deletes import DeleteFile, Deletes, sequence_number
from deltalakedb.iceberg.planning.manifests import stats_from_json
from deltalakedb.iceberg.planning.schema import TableSchema, TableShape
from deltalakedb.log.predicates.atoms import Column, Dnf, Predicate
from deltalakedb.log.predicates.pruning import BoundsOf, may_match
from deltalakedb.log.statistics.bounds import Bound
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.iceberg_plan import FileRange, SnapshotPlan

STATS: Final = (
    "column-sizes", "value-counts", "null-value-counts", "nan-value-counts", "lower-bounds", "upper-bounds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scan:
    """A bound request: what each page of its answer is made by."""

    table_id: int
    shape: TableShape
    schemas: Sequence[TableSchema]
    predicate: Dnf
    residual: Any
    stats_ids: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Some files of a plan with the deletes on them."""

    rows: list[Row]
    deletes: list[list[DeleteFile]]


def read_page(conn: Connection, scan: Scan, files: FileRange, *, max_files: int, has_deletes: bool) -> Page:
    """The files of a range that may match, and their deletes; an incremental scan returns no deletes."""
    plan = SnapshotPlan(conn, scan.table_id, scan.predicate, files)
    unindexed = _columns_without_index(scan, plan)
    with_stats = has_deletes or bool(unindexed) or bool(scan.stats_ids)
    rows = plan.files(max_files=max_files, with_stats=with_stats)
    if unindexed and len(rows) < max_files:
        rows = [row for row in rows if may_match(Predicate("", scan.predicate), _bounds_in(row, unindexed))]
    if not has_deletes or files.is_incremental:
        return Page(rows, [[] for _ in rows])
    deletes = Deletes.of(conn, scan.table_id, files.list_key, rows, scan.shape.schema)
    return Page(rows, [deletes.on(row) for row in rows])


def _columns_without_index(scan: Scan, plan: SnapshotPlan) -> Mapping[str, IndexColumn]:
    """The columns of the predicate whose bounds are only in the statistics of each file, by their keys."""
    columns = Predicate("", scan.predicate).columns
    missing = {column.physical_path[0] for column in columns if not column.is_partition and not plan.has_bounds(column)}
    if not missing:
        return {}
    fields = (field for schema in scan.schemas for field in schema.fields if field.type is not None)
    by_key = {column.key: column for column in map(column_of, fields)}
    return {key: by_key[key] for key in missing if key in by_key}


def _bounds_in(row: Row, columns: Mapping[str, IndexColumn]) -> BoundsOf:
    stats = stats_from_json(row["file_stats"])

    def bounds_of(column: Column) -> Bound | None:
        found = columns.get(column.physical_path[0])
        return None if found is None else bound_of(found, stats, row["num_records"])

    return bounds_of


# ---- JSON


def tasks_json(pages: Sequence[Page], scan: Scan) -> dict[str, Any]:
    """`file-scan-tasks`, and the `delete-files` that they refer to by their places."""
    places: dict[int, int] = {}
    delete_files: list[Mapping[str, Any]] = []

    def place_of(item: DeleteFile) -> int:
        if id(item) not in places:
            places[id(item)] = len(delete_files)
            delete_files.append(item.file)
        return places[id(item)]

    tasks = [
        _task(row, deletes, scan, place_of)
        for page in pages
        for row, deletes in zip(page.rows, page.deletes, strict=True)
    ]
    return {"file-scan-tasks": tasks} | ({"delete-files": delete_files} if delete_files else {})


def _task(row: Row, deletes: Sequence[DeleteFile], scan: Scan, place_of: Callable[[DeleteFile], int]) -> dict[str, Any]:
    task: dict[str, Any] = {"data-file": data_file_json(row, scan.stats_ids), "residual-filter": scan.residual}
    if deletes:
        task["delete-file-references"] = [place_of(item) for item in deletes]
    return task


def data_file_json(row: Row, stats_ids: Collection[int] = ()) -> dict[str, Any]:
    """A data file with what it inherits from its manifest; statistics of the columns that were asked for."""
    file: dict[str, Any] = orjson.loads(row["file"])
    if row["first_row_id"] is None:
        file.pop("first-row-id", None)
    else:
        if row["row_offset"] is not None:
            file["first-row-id"] = row["first_row_id"] + row["row_offset"]
        file["data-sequence-number"] = sequence_number(row)
    if stats_ids and row["file_stats"]:
        stats = orjson.loads(row["file_stats"])
        file |= {name: _selected(stats[name], stats_ids) for name in STATS if name in stats}
    return file


def _selected(pairs: Mapping[str, Sequence[Any]], ids: Collection[int]) -> dict[str, list[Any]]:
    selected = [(key, value) for key, value in zip(pairs["keys"], pairs["values"], strict=True) if key in ids]
    return {"keys": [key for key, _ in selected], "values": [value for _, value in selected]}
