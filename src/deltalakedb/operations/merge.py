"""Owns the merge: rows of a source joined with the table, and what clauses make of those that match and those that
do not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.rows import add_from_row
from deltalakedb.operations.engines import open_engine
from deltalakedb.operations.evolution import Definition
from deltalakedb.operations.find import TouchedFile, touched_file
from deltalakedb.operations.merge_files import Reach, find_reach
from deltalakedb.operations.merge_names import Names
from deltalakedb.operations.merge_request import MergeRequest
from deltalakedb.operations.merge_rows import MergeRows, load_source, source_schema
from deltalakedb.operations.merge_values import evolve_for, read_values
from deltalakedb.operations.merge_writing import MergeWriter, Written
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine


@dataclass(frozen=True, slots=True)
class _Found:
    """What a merge is going to do."""

    rows: MergeRows
    reach: Reach
    looked_at: pa.Table
    """The files (FILES_SCHEMA) that may hold a row it needs."""
    files: int
    """How many files the table has."""
    touched: tuple[TouchedFile, ...]
    places: Sequence[int]
    """Of the touched files among those looked at."""
    source_rows: int
    updated: int
    deleted: int
    inserted: int

    @property
    def read(self) -> ReadSet:
        return WHOLE_TABLE if self.reach.is_everything else ReadSet(predicates=(self.reach.predicate,))


def merge(target: Target, request: MergeRequest) -> Done:
    """One merge. Nothing is written when a row of the target would be changed by several rows of the source."""
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
        found = _find(target, request, names, engine)
        watch.scanned()
        if not (found.touched or found.inserted or definition.actions):
            return Done(None, _metrics(found, Written(), watch), found.read)
        if found.touched:
            refuse_changed_rows(target.metadata, target.name, "updated or deleted")
        places = dict(zip((file.add.key for file in found.touched), found.places, strict=True))
        writer = MergeWriter(target, definition, request, values, found.rows, places)
        written = writer.write(found.touched, updates=bool(found.updated), inserts=bool(found.inserted))
    metrics = _metrics(found, written, watch)
    return Done(_commit(request, names, found, definition, written, metrics), metrics)


def _find(target: Target, request: MergeRequest, names: Names, engine: Engine) -> _Found:
    """Which rows match, and which clause takes them; the columns that decide are all that is read."""
    rows = MergeRows(engine, request, names)
    count = load_source(engine, request.source, names.source_schema)
    rows.check(names.target_schema)
    reach = find_reach(target, request, names, engine)
    looked_at = target.plan(reach.predicate)
    if looked_at.num_rows and request.clauses:
        rows.match(_scan(target, looked_at, rows.columns_to_match(target.schema)))
    else:
        rows.match_nothing()
    taken = rows.taken()
    if taken.twice is not None and not request.deletes_every_match:
        raise _matched_twice(target, looked_at, *taken.twice)
    touched = taken.touched
    adds = map(add_from_row, looked_at.take(list(touched)).to_pylist()) if touched else ()
    return _Found(
        rows=rows,
        reach=reach,
        looked_at=looked_at,
        files=looked_at.num_rows if reach.is_everything else target.snapshot.files_table(["size"]).num_rows,
        touched=tuple(touched_file(add, numbers) for add, numbers in zip(adds, touched.values(), strict=True)),
        places=list(touched),
        source_rows=count,
        updated=taken.counts["update"],
        deleted=taken.counts["delete"],
        inserted=rows.find_unmatched() if request.of_kind("not_matched") else 0,
    )


def _scan(target: Target, files: pa.Table, columns: Sequence[str]) -> pa.RecordBatchReader:
    from deltalakedb.data import read_files

    return read_files(
        files,
        storage=target.storage,
        schema=target.schema,
        partition_columns=target.metadata.partition_columns,
        configuration=target.metadata.configuration,
        columns=columns,
        positions=True,
    )


def _matched_twice(target: Target, files: pa.Table, place: int, row: int) -> DeltaError:
    path = add_from_row(files.slice(place, 1).to_pylist()[0]).path
    return DeltaError(
        f"merge into {target.name} at version {target.snapshot.version}: several rows of the source match one row of "
        f"the target (row {row} of {path}), and it is not known which of them is meant; make the source's keys "
        "unique, or narrow the condition or the clauses. Nothing was written."
    )


def _metrics(found: _Found, written: Written, watch: _Watch) -> dict[str, Any]:
    """What the caller is told, under the names of `deltalake`."""
    return {
        "num_source_rows": found.source_rows,
        "num_target_rows_inserted": found.inserted,
        "num_target_rows_updated": found.updated,
        "num_target_rows_deleted": found.deleted,
        "num_target_rows_copied": written.copied_rows,
        "num_output_rows": found.inserted + found.updated + written.copied_rows,
        "num_target_files_scanned": found.looked_at.num_rows,
        "num_target_files_skipped_during_scan": found.files - found.looked_at.num_rows,
        "num_target_files_added": len(written.adds),
        "num_target_files_removed": written.gone_files,
        **watch.to_metrics(),
    }


def _commit(
    request: MergeRequest,
    names: Names,
    found: _Found,
    definition: Definition,
    written: Written,
    metrics: dict[str, Any],
) -> ProposedCommit:
    by_source = request.of_kind("not_matched_by_source")
    on_target = {} if found.reach.on_target is None or by_source else {"predicate": found.reach.on_target}
    return ProposedCommit(
        actions=(*definition.actions, *written.actions),
        operation="MERGE",
        operation_parameters={**request.to_parameters(lambda text: names.read(text).text), **on_target},
        operation_metrics=metrics,
        read=found.read,
    )


class _Watch:
    """The times that a merge tells of."""

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
