"""Plans a read: finds, inside the database, the live files that may hold a row which satisfies a predicate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from deltalakedb.log.predicates.atoms import Atom, Column, Predicate, Unknown, Within
from deltalakedb.log.predicates.pruning import may_match
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import to_json, to_sql_text
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, NEWEST_FIRST, newest_first
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.statistics.bounds import Bound
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.dialects.pruner import PRUNERS, Part, Pruner
from deltalakedb.store.kept_versions import require_version
from deltalakedb.store.probes import IndexedAtom
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import OpenTable

COUNT_CAPS = (256, 4096, 65_536)
"""Limits up to which candidates are counted to choose a plan's driver; the next limit is used if all reach this one."""

PAGE_ROWS = 20_000
"""How many files of an older version are held in memory at a time."""

PLAN_SCHEMA = pa.schema([*FILES_SCHEMA, pa.field("num_records", pa.int64()), pa.field("file_id", pa.int64())])
"""The columns that a plan can return."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """How one condition was used, in one of the predicate's alternatives."""

    alternative: str
    condition: str
    action: str
    kept: int | None = None
    pruned: int | None = None

    def __str__(self) -> str:
        counts = "" if self.kept is None else f" (alone it keeps {self.kept}, prunes {self.pruned})"
        start = f"{self.alternative}: " if self.alternative else ""
        return f"{start}{self.condition}: {self.action}{counts}"


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """The files that may hold a matching row."""

    files: pa.Table
    num_files: int
    num_pruned: int
    steps: list[PlanStep] = field(default_factory=list)

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
    return _HeadPlan(conn, opened, predicate, explain=explain).run(schema)


def plan_statement(conn: Connection, opened: OpenTable, predicate: Predicate) -> Part:
    """The SQL that plans the paths of the head, for looking at its query plan."""
    return _HeadPlan(conn, opened, predicate, explain=False).statement(["path"])


@dataclass(slots=True)
class _Conjunct:
    """The atoms of one alternative. The driver finds candidates; those of `listed` atoms are intersected with them."""

    number: int
    items: list[IndexedAtom]
    driver: IndexedAtom | None = None
    listed: list[IndexedAtom] = field(default_factory=list)


class _HeadPlan:
    """One plan of the head: indexed atoms, a driver per disjunct, one statement for all."""

    def __init__(self, conn: Connection, opened: OpenTable, predicate: Predicate, *, explain: bool) -> None:
        self._conn = conn
        self._pruner: Pruner = PRUNERS[conn.dialect.name]
        self._head = opened.head
        self._scope = {"table_id": opened.table.table_id, "epoch": opened.head.bounds_epoch}
        self._explain = explain
        self._steps: list[PlanStep] = []
        self._names = _alternatives(predicate)
        rows = conn.all("select_bounds_columns", table_id=opened.table.table_id) if predicate.columns else []
        self._indexed = {(row["column_path"], row["kind"]): row for row in rows}
        self._conjuncts = [_Conjunct(n, self._index(n, atoms)) for n, atoms in enumerate(predicate.disjuncts)]

    def run(self, schema: pa.Schema) -> PlannedFiles:
        statement = self.statement([*schema.names, *NEWEST_FIRST])
        rows = self._conn.sql_arrow(statement.text, **statement.parameters)
        files = newest_first(rows).select(schema.names).cast(schema)
        pruned = max(self._head.num_files - files.num_rows, 0)
        return PlannedFiles(files, files.num_rows, pruned, self._explained())

    def statement(self, columns: Sequence[str]) -> Part:
        column_list = ", ".join(f"f.{name}" for name in columns)
        if all(conjunct.items for conjunct in self._conjuncts):
            self._choose_drivers()
            candidates = self._candidates()
            text = self._pruner.fetch(column_list, candidates.text)
            return Part(text, {**self._scope_of(text), **candidates.parameters})
        # Some alternative may be true of any file.
        text = named_queries()["plan_live_files"].replace("f.file_id", column_list)
        return Part(text, self._scope_of(text))

    # -- which atoms have bounds

    def _index(self, number: int, atoms: Iterable[Atom]) -> list[IndexedAtom]:
        items: list[IndexedAtom] = []
        for atom in atoms:
            if isinstance(atom, Unknown):
                self._steps.append(PlanStep(self._names[number], "not used", atom.reason))
                continue
            row = self._row_of(atom.column)
            if row is None:
                reason = f"{atom.column.name} has no bounds, nothing is pruned"
                self._steps.append(PlanStep(self._names[number], str(atom), reason))
                continue
            classes = tuple(json.loads(row["width_classes"]))
            items.append(IndexedAtom(atom, row["column_id"], row["first_file_id"], classes))
        return items

    def _row_of(self, column: Column) -> Row | None:
        path = to_sql_text(to_json(list(column.physical_path)))
        row = self._indexed.get((path, column.kind))
        return row if row is not None and row["first_file_id"] < LIVE else None

    # -- choosing the driver

    def _choose_drivers(self) -> None:
        """Makes the atom with the fewest candidates find the files; the others filter them."""
        contested: list[tuple[_Conjunct, list[IndexedAtom]]] = []
        for conjunct in self._conjuncts:
            probes = [item for item in conjunct.items if item.is_probe]
            conjunct.driver = probes[0] if probes else None
            if len(probes) > 1 and self._pruner.counts_first:
                contested.append((conjunct, probes))
        for cap in COUNT_CAPS:
            if not contested:
                return
            counts = iter(self._count_candidates([item for _, probes in contested for item in probes], cap))
            undecided = []
            for conjunct, probes in contested:
                counted = sorted((next(counts), place) for place in range(len(probes)))
                fewest, driver = counted[0]
                conjunct.driver = probes[driver]
                if fewest >= cap:
                    undecided.append((conjunct, probes))
                elif cap > COUNT_CAPS[0]:
                    limit = min(cap - 1, fewest * self._pruner.lookup_cost)
                    conjunct.listed = [probes[place] for count, place in counted[1:] if count <= limit]
            contested = undecided

    def _count_candidates(self, items: Sequence[IndexedAtom], cap: int) -> list[int]:
        template = named_queries()["plan_count"]
        parts = [self._pruner.candidates(item, f"n{place}_") for place, item in enumerate(items)]
        counted = [template.replace("{candidates}", part.text) + f" as n{place}" for place, part in enumerate(parts)]
        parameters = {name: value for part in parts for name, value in part.parameters.items()}
        text = f"select {', '.join(counted)}"
        (row,) = self._conn.sql(text, **self._scope_of(text), **parameters, cap=cap)
        return [int(row[f"n{place}"]) for place in range(len(items))]

    # -- the statement

    def _candidates(self) -> Part:
        parts = [self._conjunct_part(conjunct) for conjunct in self._conjuncts]
        parameters = {name: value for part in parts for name, value in part.parameters.items()}
        # `union` without `all`: a file that several alternatives keep is returned once
        return Part(" union ".join(part.text for part in parts), parameters)

    def _conjunct_part(self, conjunct: _Conjunct) -> Part:
        prefix = f"d{conjunct.number}"
        finders = [conjunct.driver, *conjunct.listed] if conjunct.driver is not None else []
        candidates = [self._pruner.candidates(item, f"{prefix}_f{place}_") for place, item in enumerate(finders)]
        candidates = candidates or [Part(named_queries()["plan_live_files"])]
        filters = [item for item in conjunct.items if not any(item is finder for finder in finders)]
        conditions = [self._pruner.condition(item, f"{prefix}_{place}_") for place, item in enumerate(filters)]
        file_ids = " intersect ".join(f"select c.file_id from ({part.text}) c" for part in candidates)
        where = " and ".join(condition.text for condition in conditions)
        text = f"select c.file_id from ({file_ids}) c" + (f" where {where}" if where else "")
        for item in conjunct.items:
            action = _describe(item, finds=any(item is finder for finder in finders))
            self._steps.append(PlanStep(self._names[conjunct.number], str(item.atom), action))
        return Part(
            text, {name: value for part in [*candidates, *conditions] for name, value in part.parameters.items()}
        )

    def _scope_of(self, text: str) -> dict[str, int]:
        return {name: value for name, value in self._scope.items() if f":{name}" in text}

    # -- explain

    def _explained(self) -> list[PlanStep]:
        self._steps.sort(key=lambda step: self._names.index(step.alternative))
        if not self._explain:
            return self._steps
        items = [item for conjunct in self._conjuncts for item in conjunct.items if item.is_probe]
        if not items:
            return self._steps
        counts = self._count_candidates(items, max(self._head.num_files, 1))
        by_condition = {str(item.atom): count for item, count in zip(items, counts, strict=True)}
        return [self._with_count(step, by_condition.get(step.condition)) for step in self._steps]

    def _with_count(self, step: PlanStep, kept: int | None) -> PlanStep:
        if kept is None:
            return step
        return replace(step, kept=kept, pruned=max(self._head.num_files - kept, 0))


def _alternatives(predicate: Predicate) -> list[str]:
    total = len(predicate.disjuncts)
    return [f"alternative {number + 1} of {total}" for number in range(total)] if total > 1 else [""]


def _describe(item: IndexedAtom, *, finds: bool) -> str:
    if finds:
        return f"finds the files by the bounds of {item.atom.column.name}"
    if isinstance(item.atom, Within) and item.atom.nan:
        return "only drops files of nothing but nulls: NaN is above every number, and statistics leave it out"
    return f"filters what was found by the bounds of {item.atom.column.name}"


# ---- older versions: their bounds are deleted, their statistics are kept


def _plan_older(
    conn: Connection, opened: OpenTable, predicate: Predicate, version: int, schema: pa.Schema
) -> PlannedFiles:
    pages: list[pa.Table] = []
    total = 0
    names = [*schema.names, *NEWEST_FIRST]
    for page in _pages(conn, opened, version, {*names, "stats", "partition_values"}):
        total += page.num_rows
        pages.append(files_that_may_match(page, opened.metadata, predicate).select(names))
    files = newest_first(pa.concat_tables(pages)).select(schema.names).cast(schema) if pages else schema.empty_table()
    steps = [
        PlanStep(name, str(atom), "held against the statistics of each file, as the version is not the newest")
        for name, atoms in zip(_alternatives(predicate), predicate.disjuncts, strict=True)
        for atom in atoms
    ]
    return PlannedFiles(files, files.num_rows, total - files.num_rows, steps)


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
