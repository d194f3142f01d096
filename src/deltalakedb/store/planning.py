"""Plans a read: finds, inside the database, the live files that may hold a row which satisfies a predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.predicates.atoms import Column, Predicate
from deltalakedb.log.predicates.pruning import may_match
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, NEWEST_FIRST
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.statistics.bounds import Bound
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.store.candidates import Candidates, PlanStep, name_alternatives
from deltalakedb.store.connection import Connection
from deltalakedb.store.dialects.pruner import Part
from deltalakedb.store.kept_versions import require_version
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import OpenTable

PAGE_ROWS = 20_000
"""How many files of an older version are held in memory at a time."""

FIRST_FILES = 256
"""How many files are read first for a limit of rows: most limits are small."""

_NUMBERS = ("num_records", "file_id", "version")
PLAN_SCHEMA = pa.schema([*FILES_SCHEMA, *(pa.field(name, pa.int64()) for name in _NUMBERS)])
"""The columns that a plan can return."""


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """The files that may hold a matching row."""

    files: pa.Table
    num_files: int
    num_pruned: int
    described: Sequence[PlanStep] | Callable[[], Sequence[PlanStep]] = ()
    """How each condition was used, or what describes it."""

    @property
    def steps(self) -> list[PlanStep]:
        """How each condition was used."""
        return list(self.described() if callable(self.described) else self.described)

    def explain(self) -> str:
        total = self.num_files + self.num_pruned
        return "\n".join([f"kept {self.num_files} of {total} files, pruned {self.num_pruned}", *map(str, self.steps)])


def plan(
    conn: Connection,
    opened: OpenTable,
    predicate: Predicate,
    *,
    version: int | None = None,
    columns: Sequence[str] | None = None,
    explain: bool = False,
) -> PlannedFiles:
    """Returns the files of the head, or of an older version, that may hold a row for which the predicate is true.

    `columns` selects from PLAN_SCHEMA; `explain` also counts what each condition keeps by itself.
    """
    names = list(FILES_SCHEMA.names if columns is None else columns)
    schema = pa.schema([PLAN_SCHEMA.field(name) for name in names])
    if version is not None and version != opened.head.current_version:
        require_version(conn, opened.table, version)
    if not predicate.disjuncts:
        total = opened.head.num_files if version is None else _count(conn, opened, version)
        return PlannedFiles(schema.empty_table(), 0, total, [PlanStep("", predicate.text, "can never be true")])
    if version is not None and version != opened.head.current_version:
        return _plan_older(conn, opened, predicate, version, schema)
    candidates = _find_candidates(conn, opened, predicate)
    fetched = dict.fromkeys([*schema.names, *NEWEST_FIRST])
    statement = candidates.statement(", ".join(f"f.{name}" for name in fetched))
    rows = conn.sql_arrow(statement.text, **statement.parameters)
    num_files = opened.head.num_files
    steps = candidates.explained(num_files, counted=True) if explain else candidates.steps
    return _planned([rows], schema, num_files, steps)


def _planned(
    pages: Sequence[pa.Table],
    schema: pa.Schema,
    num_files: int,
    described: Sequence[PlanStep] | Callable[[], Sequence[PlanStep]],
) -> PlannedFiles:
    """Puts the files of a plan, out of `num_files`, in order."""
    files = schema.empty_table()
    if pages:
        files = pa.concat_tables(pages).sort_by(list(NEWEST_FIRST.items())).select(schema.names).cast(schema)
    return PlannedFiles(files, files.num_rows, max(num_files - files.num_rows, 0), described)


def first_files(conn: Connection, opened: OpenTable, num_records: int, columns: Sequence[str]) -> pa.Table:
    """Files of the head with at least so many rows in all; every file if they have fewer.

    Files whose rows are not counted are returned only if the others do not suffice.
    """
    schema = pa.schema([PLAN_SCHEMA.field(name) for name in columns])
    names = list(dict.fromkeys([*columns, "num_records"]))
    text = named_queries()["plan_first_live_files"].replace(
        "{columns}", ", ".join(f"f.{name}" for name in names if name != "file_id")
    )
    counted: list[pa.Table] = []
    uncounted: list[pa.Table] = []
    last_id, max_rows, missing = -1, FIRST_FILES, num_records
    while missing > 0:
        page = conn.sql_arrow(text, table_id=opened.table.table_id, after_file_id=last_id, max_rows=max_rows)
        rows = page.column("num_records")
        uncounted.append(page.filter(pc.is_null(rows)))
        known = page.filter(pc.is_valid(rows))
        sums = pc.cumulative_sum(known.column("num_records").cast(pa.int64()))
        enough = pc.sum(pc.less(sums, missing).cast(pa.int64())).as_py() or 0
        known = known.slice(0, enough + 1)
        counted.append(known)
        missing -= pc.sum(known.column("num_records")).as_py() or 0
        if page.num_rows < max_rows:
            break
        last_id, max_rows = page.column("file_id")[-1].as_py(), PAGE_ROWS
    pages = counted if missing <= 0 else [*counted, *uncounted]
    return pa.concat_tables(pages).select(schema.names).cast(schema) if pages else schema.empty_table()


def files_with_vectors(conn: Connection, opened: OpenTable, max_files: int, columns: Sequence[str]) -> pa.Table:
    """Files of the head that have deletion vectors, up to `max_files`."""
    schema = pa.schema([PLAN_SCHEMA.field(name) for name in columns])
    text = named_queries()["plan_live_vectors"].replace("{columns}", ", ".join(f"f.{name}" for name in columns))
    return conn.sql_arrow(text, table_id=opened.table.table_id, max_rows=max_files).select(schema.names).cast(schema)


def plan_statement(conn: Connection, opened: OpenTable, predicate: Predicate) -> Part:
    """The SQL that plans the paths of the head, for looking at its query plan."""
    return _find_candidates(conn, opened, predicate).statement("f.path")


def _find_candidates(conn: Connection, opened: OpenTable, predicate: Predicate) -> Candidates:
    scope = {"table_id": opened.table.table_id, "epoch": opened.head.bounds_epoch}
    return Candidates(conn, predicate.disjuncts, scope)


# ---- older versions: their bounds are deleted, their statistics are kept


def _plan_older(
    conn: Connection, opened: OpenTable, predicate: Predicate, version: int, schema: pa.Schema
) -> PlannedFiles:
    pages: list[pa.Table] = []
    total = 0
    names = list(dict.fromkeys([*schema.names, *NEWEST_FIRST]))
    for page in _pages(conn, opened, version, {*names, "stats", "partition_values"}):
        total += page.num_rows
        pages.append(files_that_may_match(page, opened.metadata, predicate).select(names))
    steps = [
        PlanStep(name, str(atom), "held against the statistics of each file, as the version is not the newest")
        for name, atoms in zip(name_alternatives(predicate.disjuncts), predicate.disjuncts, strict=True)
        for atom in atoms
    ]
    return _planned(pages, schema, total, steps)


def files_that_may_match(files: pa.Table, metadata: Metadata, predicate: Predicate) -> pa.Table:
    """The files (with `stats` and `partition_values`) whose statistics do not rule out the predicate."""
    if files.num_rows == 0:
        return files
    columns = _bounds_of_predicate(metadata, predicate)
    places = {column.physical_path: place for place, column in enumerate(columns)}
    (batch,) = files.select(["stats", "partition_values"]).combine_chunks().to_batches()
    rows = [bounds.to_pydict() for bounds in compute_bounds_of_batch(columns, batch).columns]
    keep = [may_match(predicate, _BoundsAt(places, rows, number)) for number in range(files.num_rows)]
    return files.filter(pa.array(keep, pa.bool_()))


class _BoundsAt:
    """The bounds of one file of a page, by column."""

    __slots__ = ("_number", "_places", "_rows")

    def __init__(self, places: Mapping[tuple[str, ...], int], rows: Sequence[Mapping[str, Any]], number: int) -> None:
        self._places = places
        self._rows = rows
        self._number = number

    def __call__(self, column: Column) -> Bound | None:
        place = self._places.get(column.physical_path)
        if place is None:
            return None
        return Bound(*(values[self._number] for values in self._rows[place].values()))


def _bounds_of_predicate(metadata: Metadata, predicate: Predicate) -> list[BoundsColumn]:
    keys = {(column.physical_path, column.kind) for column in predicate.columns}
    columns = bounds_columns(parse_schema(metadata.schema_string), metadata.partition_columns, metadata.configuration)
    return [column for column in columns if (column.physical_path, column.kind) in keys]


def _pages(conn: Connection, opened: OpenTable, version: int, names: Iterable[str]) -> Iterator[pa.Table]:
    query, key = _cheaper_side(conn, opened, version)
    column_list = ", ".join(f"f.{name}" for name in sorted(set(names) - set(key)))
    text = named_queries()[query].replace("{columns}", column_list)
    last_key = (-1, -1)
    while True:
        page = conn.sql_arrow(
            text,
            table_id=opened.table.table_id,
            version=version,
            after_1=last_key[0],
            after_2=last_key[1],
            max_rows=PAGE_ROWS,
        )
        if page.num_rows:
            yield page
        if page.num_rows < PAGE_ROWS:
            return
        last_key = tuple(page.column(name)[-1].as_py() for name in key)


def _cheaper_side(conn: Connection, opened: OpenTable, version: int) -> tuple[str, tuple[str, str]]:
    """Chooses the rows added up to the version, or those removed after it, whichever are fewer."""
    row = require_version(conn, opened.table, version)
    head_row = require_version(conn, opened.table, opened.head.current_version)
    if row["total_added"] <= head_row["total_added"] - row["total_closed"]:
        return "plan_page_added", ("version", "ordinal")
    return "plan_page_removed", ("removed_version", "file_id")


def _count(conn: Connection, opened: OpenTable, version: int) -> int:
    row = conn.one("count_files_at", table_id=opened.table.table_id, version=version)
    return int(row["num_files"]) if row else 0
