"""MERGE: joins the rows of a source with the table, and applies clauses to matched and unmatched rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.predicates.atoms import ALWAYS
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.evolution import Definition
from deltalakedb.operations.find import TouchedFile, touched_files
from deltalakedb.operations.merge_files import Reach, find_reach
from deltalakedb.operations.merge_request import MergeRequest
from deltalakedb.operations.merge_rows import MergeRows, load_source, source_schema
from deltalakedb.operations.merge_values import Names, evolve_for, read_values
from deltalakedb.operations.merge_writing import MergeWriter, Written
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target, open_engine

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine


@dataclass(frozen=True, slots=True)
class _MergePlan:
    """What a merge will do."""

    rows: MergeRows
    reach: Reach
    looked_at: pa.Table
    """The files (FILES_SCHEMA) that may hold a row the merge needs."""
    files: int
    """How many files the table has."""
    scanned: int
    """How many of them count as scanned."""
    touched: tuple[TouchedFile, ...]
    places: Sequence[int]
    """The indexes of the touched files in `looked_at`."""
    source_rows: int
    updated: int
    deleted: int
    inserted: int

    @property
    def read(self) -> ReadSet:
        return WHOLE_TABLE if self.reach.is_everything else ReadSet(predicates=(self.reach.predicate,))


def merge(target: Target, request: MergeRequest) -> Done:
    """Run a merge. Nothing is written if several source rows would change the same target row."""
    watch = _Watch()
    source = source_schema(request.source.schema)
    names = Names(target.name, target.schema, source, request.target_alias, request.source_alias)
    definition = evolve_for(target, request, names)
    values = read_values(target, request, names, definition.schema)
    with open_engine(
        target,
        memory_limit=request.max_spill_size,
        max_temp_size=request.max_temp_directory_size,
        joins_as_written=True,
    ) as engine:
        plan = _find(target, request, names, engine)
        watch.scanned()
        if not (plan.touched or plan.inserted or definition.actions):
            return Done(None, _metrics(plan, Written(), watch), plan.read)
        if plan.touched:
            refuse_changed_rows(target.metadata, target.name, "updated or deleted")
        places = dict(zip((file.add.key for file in plan.touched), plan.places, strict=True))
        writer = MergeWriter(target, definition, request, values, plan.rows, places)
        written = writer.write(plan.touched, updates=bool(plan.updated), inserts=bool(plan.inserted))
    metrics = _metrics(plan, written, watch, len(definition.actions))
    return Done(_commit(request, names, plan, definition, written, metrics), metrics)


def _find(target: Target, request: MergeRequest, names: Names, engine: Engine) -> _MergePlan:
    """Find the matching rows and the clause that applies to each; only the columns that decide this are read."""
    rows = MergeRows(engine, request, names)
    count = load_source(engine, request.source, names.source_schema)
    rows.check(names.target_schema)
    reach = find_reach(target, request, names, engine)
    looked_at = target.plan(reach.predicate)
    if looked_at.num_rows and request.clauses:
        rows.match(target.read(looked_at, rows.columns_to_match(target.schema), positions=True))
    else:
        rows.match_nothing()
    changed_rows = rows.taken()
    if changed_rows.twice is not None and not request.deletes_every_match:
        raise _matched_twice(target, looked_at, *changed_rows.twice)
    touched = changed_rows.touched
    files = looked_at.num_rows if reach.is_everything else target.snapshot.files_table(["size"]).num_rows
    return _MergePlan(
        rows=rows,
        reach=reach,
        looked_at=looked_at,
        files=files,
        scanned=files if reach.scanned.disjuncts == ALWAYS.disjuncts else target.plan(reach.scanned).num_rows,
        touched=touched_files(looked_at, touched),
        places=list(touched),
        source_rows=count,
        updated=changed_rows.counts["update"],
        deleted=changed_rows.counts["delete"],
        inserted=rows.find_unmatched() if request.of_kind("not_matched") else 0,
    )


def _matched_twice(target: Target, files: pa.Table, place: int, row: int) -> DeltaError:
    path = add_from_row(files.slice(place, 1).to_pylist()[0]).path
    return DeltaError(
        "MERGE matched a target row with multiple source rows that satisfy duplicate relevant WHEN MATCHED clauses "
        f"(file: {path}, row ordinal in file: {row + 1}); make the source's keys unique, or narrow the condition or "
        f"the clauses. Nothing was written to {target.name}, which is at version {target.snapshot.version}."
    )


def _metrics(plan: _MergePlan, written: Written, watch: _Watch, changes: int = 0) -> dict[str, Any]:
    """Return the metrics with the names of `deltalake`, which counts all actions but removes as files added."""
    return {
        "num_source_rows": plan.source_rows,
        "num_target_rows_inserted": plan.inserted,
        "num_target_rows_updated": plan.updated,
        "num_target_rows_deleted": plan.deleted,
        "num_target_rows_copied": written.copied_rows,
        "num_output_rows": plan.inserted + plan.updated + written.copied_rows,
        "num_target_files_scanned": plan.scanned,
        "num_target_files_skipped_during_scan": plan.files - plan.scanned,
        "num_target_files_added": len(written.adds) + len(written.changes) + changes,
        "num_target_files_removed": written.gone_files,
        **watch.to_metrics(),
    }


def _commit(
    request: MergeRequest,
    names: Names,
    plan: _MergePlan,
    definition: Definition,
    written: Written,
    metrics: dict[str, Any],
) -> ProposedCommit:
    by_source_clauses = request.of_kind("not_matched_by_source")
    target_predicate = {} if plan.reach.on_target is None or by_source_clauses else {"predicate": plan.reach.on_target}
    return ProposedCommit(
        actions=(*definition.actions, *written.actions),
        operation="MERGE",
        operation_parameters={**request.to_parameters(lambda text: names.read(text).text), **target_predicate},
        operation_metrics=metrics,
        read=plan.read,
    )


class _Watch:
    """The times in a merge's metrics."""

    def __init__(self) -> None:
        self._started = self._scanned = time.perf_counter()

    def scanned(self) -> None:
        self._scanned = time.perf_counter()

    def to_metrics(self) -> dict[str, int]:
        now = time.perf_counter()
        return {
            "execution_time_ms": round((now - self._started) * 1000),
            "scan_time_ms": round((self._scanned - self._started) * 1000),
            "rewrite_time_ms": round((now - self._scanned) * 1000),
        }
