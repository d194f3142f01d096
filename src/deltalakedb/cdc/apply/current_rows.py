"""Layer 2: applies the changes of a batch to the tables of current rows, by the verbs that every writer uses."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.apply.buckets import BUCKET, add_buckets, buckets_of
from deltalakedb.cdc.apply.keyless import apply_keyless
from deltalakedb.cdc.apply.net import ALIVE, COLUMNS, NetEffect, RowLookup
from deltalakedb.cdc.captured_table import CapturedTable, TableTroubleError, tables_own_trouble
from deltalakedb.cdc.control import Capture, progress_of
from deltalakedb.cdc.layers import AFTER, INSERT, OP, changes_schema
from deltalakedb.cdc.source_names import resnapshot_command
from deltalakedb.data import read_files
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.statistics.stats import parse_stats
from deltalakedb.operations.ahead import read_ahead
from deltalakedb.operations.change_data import feeds_changes
from deltalakedb.operations.delete import delete
from deltalakedb.operations.expressions import quoted
from deltalakedb.operations.merge import merge
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.target import Done, Target, WrittenFiles, open_engine
from deltalakedb.operations.write import WriteMode, WriteRequest, write
from deltalakedb.store.names import parse_table_name
from deltalakedb.transaction import CommitProperties

if TYPE_CHECKING:
    from deltalakedb.log.schema.types import StructType
    from deltalakedb.storage.interface import Storage
    from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)

_MANY: Final = 10_000
"""From this number of new rows on they are written apart from the merge, and in several files at a time."""
_WORKERS: Final = max(2, os.cpu_count() or 1)
_AHEAD_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Applied:
    """The row counts of a batch applied to a table."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    truncated: bool = False


def apply_to_tables(
    tx: CatalogTransaction,
    capture: Capture,
    changes: Iterable[tuple[CapturedTable, Sequence[AddFile]]],
    lsn: int,
) -> dict[str, Applied]:
    """Apply the changes of several tables in parallel; returns the counts by source table.

    New versions carry the progress `lsn`. The files are in the folders of the tables of changes, and need not be
    committed yet.
    """
    batches = {table.current: _batch_of(tx, table, files) for table, files in changes if files and table.keeps_current}
    properties = CommitProperties(app_transactions=[progress_of(capture, lsn)])
    for name, batch in batches.items():
        if tx.find_draft(parse_table_name(name)) is None:
            raise TableTroubleError(batch.table.source, f"its table {name} is gone from the lake")
    verbs = {name: partial(_apply, batch=batch) for name, batch in batches.items()}
    metrics = (
        tx.run_all(verbs, properties)
        if len(verbs) > 1
        else {n: tx.run(n, verb, properties) for n, verb in verbs.items()}
    )
    return {batches[name].table.source: Applied(**counts) for name, counts in metrics.items()}


def _apply(target: Target, batch: Batch) -> Done:
    with tables_own_trouble(batch.table.source):
        return apply_batch(target, batch)


def _batch_of(tx: CatalogTransaction, table: CapturedTable, files: Sequence[AddFile]) -> Batch:
    name = table.changes if table.keeps_changes else table.current
    draft = tx.find_draft(parse_table_name(name))
    if draft is None:
        raise TableTroubleError(table.source, f"its table {name} is gone from the lake")
    target = draft.to_target(WrittenFiles())
    if table.keeps_changes:
        return Batch(table, target.storage, target.schema, target.metadata.configuration, tuple(files))
    return Batch(table, target.storage, changes_schema(table), {}, tuple(files))


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of one table that are not yet applied."""

    table: CapturedTable
    storage: Storage
    schema: StructType
    """The schema of the changes."""
    configuration: Mapping[str, str | None]
    files: tuple[AddFile, ...]

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Read the changes, file by file."""
        return read_files(
            adds_to_batch(self.files),
            storage=self.storage,
            schema=self.schema,
            partition_columns=(),
            configuration=self.configuration,
            columns=columns,
        )

    @property
    def num_rows(self) -> int:
        """The number of changes according to the files' statistics."""
        stats = (parse_stats(add.stats) for add in self.files)
        return sum(item.num_records or 0 for item in stats if item is not None)

    def split(self, most: int) -> list[Batch]:
        """At most `most` batches of about the same size in bytes; files are not split."""
        parts: list[list[AddFile]] = [[] for _ in range(min(most, len(self.files)))]
        for add in sorted(self.files, key=lambda one: -one.size):
            min(parts, key=lambda part: sum(one.size for one in part)).append(add)
        return [replace(self, files=tuple(part)) for part in parts]

    @property
    def has_only_inserts(self) -> bool:
        """Whether all changes are inserts, according to the statistics of all files."""
        item = self.schema.field(OP)
        name = OP if item is None else item.physical_name
        stats = [parse_stats(add.stats) for add in self.files]
        return all(
            file_stats is not None and file_stats.min_values.get(name) == file_stats.max_values.get(name) == INSERT
            for file_stats in stats
        )


def apply_batch(target: Target, batch: Batch) -> Done:
    """The verb: one version of the table of current rows, or none if the changes cancel each other out."""
    if batch.has_only_inserts:
        return _append(target, batch)
    if not batch.table.is_keyed:
        return apply_keyless(target, batch.table, batch.read(COLUMNS))
    buckets = buckets_of(target.metadata.configuration)
    with open_engine(target) as engine:
        net = NetEffect(engine, batch.table, batch.read(COLUMNS))
        alive, gone = net.alive(buckets), net.gone(buckets)
    rows = RowLookup(batch.table, batch.read, net.left_out, net.partly_sent, bool(buckets))
    born = alive.column("k0").is_null()
    if net.truncated:
        return overwrite(target, rows, alive)
    inserted = alive.filter(born)
    if inserted.num_rows == alive.num_rows and not gone.num_rows:
        return _write(target, rows, alive, "append") if alive.num_rows else Done(None)
    changed = alive.filter(pc.invert(born))
    together = inserted.num_rows < _MANY or feeds_changes(target)
    done = merge_rows(target, rows, alive if together else changed, gone)
    _warn_of_missing_rows(target, batch.table, changed.num_rows + gone.num_rows, done.metrics)
    return done if together else _join(done, _write(target, rows, inserted, "append"))


def overwrite(target: Target, rows: RowLookup, alive: pa.Table) -> Done:
    """Replace all rows of a truncated table by those that came afterwards."""
    done = _write(target, rows, alive, "overwrite") if alive.num_rows else delete(target)
    return Done(done.commit, {"inserted": alive.num_rows, "truncated": True}, done.read)


def merge_rows(target: Target, rows: RowLookup, alive: pa.Table, gone: pa.Table) -> Done:
    """Update, delete or insert the rows whose keys are in `alive` and `gone`."""
    done = merge(target, _merge_request(target, rows, rows.rows(alive, gone)))
    counts = {action: done.metrics[f"num_target_rows_{action}"] for action in ("inserted", "updated", "deleted")}
    return Done(done.commit, counts, done.read)


def _warn_of_missing_rows(target: Target, table: CapturedTable, expected: int, counts: Mapping[str, int]) -> None:
    """Warn if a changed row was not in the table exactly once, which means that somebody else writes there."""
    matched = counts["updated"] + counts["deleted"]
    if matched != expected:
        logger.warning(
            "%s: of %d rows that the source changed or deleted %d were found in %s; somebody else has written there: "
            "%s copies it anew",
            table.source, expected, matched, target.name, resnapshot_command(table.source),
        )  # fmt: skip


def _join(done: Done, appended: Done) -> Done:
    """Join a merge or an append with another append into one version."""
    counts = {**done.metrics, "inserted": done.metrics["inserted"] + appended.metrics["inserted"]}
    if done.commit is None or appended.commit is None:
        return Done(done.commit or appended.commit, counts, done.read)
    inserted = "num_added_rows" if done.commit.operation == "WRITE" else "num_target_rows_inserted"
    metrics = {**done.commit.operation_metrics, inserted: counts["inserted"]}
    actions = (*done.commit.actions, *appended.commit.actions)
    return Done(replace(done.commit, actions=actions, operation_metrics=metrics), counts)


def _append(target: Target, batch: Batch) -> Done:
    """Append rows that were only inserted: their keys need no lookup."""
    parts = batch.split(_WORKERS) if batch.num_rows >= _MANY else [batch]
    with ThreadPoolExecutor(len(parts), thread_name_prefix="deltalakedb-apply") as pool:
        first, *others = pool.map(partial(_append_part, target), parts)
    for other in others:
        first = _join(first, other)
    return first


def _append_part(target: Target, batch: Batch) -> Done:
    names = [column.name for column in batch.table.columns]
    count = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for changes in read_ahead(batch.read([AFTER]), lambda one: one.nbytes, _AHEAD_BYTES):
            after = changes.column(0)
            count += changes.num_rows
            yield pa.RecordBatch.from_arrays([after.field(name) for name in names], schema=schema)

    struct = batch.schema.to_arrow().field(AFTER).type
    schema = pa.schema([struct.field(name) for name in names])
    new = pa.RecordBatchReader.from_batches(schema, rows())
    buckets = buckets_of(target.metadata.configuration)
    # A column that the source has dropped may still be in the lake; it stays null.
    request = WriteRequest(schema_mode="merge")
    done = write(target, add_buckets(new, batch.table, buckets) if buckets else new, request)
    return Done(done.commit, {"inserted": count})


def _write(target: Target, rows: RowLookup, alive: pa.Table, mode: WriteMode) -> Done:
    """Write rows that need no values from the table."""
    names, batches_of_rows = _columns(rows), rows.rows(alive)
    schema = pa.schema([batches_of_rows.schema.field(key).with_name(name) for name, key in names.items()])
    batches = (
        pa.RecordBatch.from_arrays([batch.column(key) for key in names.values()], schema=schema)
        for batch in batches_of_rows
    )
    request = WriteRequest(mode, schema_mode="merge")
    done = write(target, pa.RecordBatchReader.from_batches(schema, batches), request)
    return Done(done.commit, {"inserted": alive.num_rows}, done.read)


def _columns(rows: RowLookup) -> dict[str, str]:
    """The columns to write, and the names of their values in `RowLookup`."""
    columns = {column.name: f"v{place}" for place, column in enumerate(rows.table.columns)}
    return {**columns, BUCKET: "new_bucket"} if rows.buckets else columns


def _merge_request(target: Target, rows: RowLookup, source: pa.RecordBatchReader) -> MergeRequest:
    """A merge that finds each row by its key before the batch and gives it its new values, whichever key it has."""
    same = [f"target.{quoted(name)} = source.k{place}" for place, name in enumerate(rows.table.key)]
    if rows.buckets:
        same.append(f"target.{BUCKET} = source.old_bucket")
    inserts = {name: f"source.{value}" for name, value in _columns(rows).items()}
    flags = {rows.table.columns[place].name: f"u{place}" for place in rows.left_out}
    updates = inserts | {
        name: f"case when source.{flag} then target.{quoted(name)} else {inserts[name]} end"
        for name, flag in flags.items()
    }
    # A column that the source has dropped is null in every row written from then on.
    dropped = {name: "null" for name in target.schema.names if name not in inserts}
    return MergeRequest(
        source=source,
        predicate=" and ".join(same),
        clauses=(
            Clause("matched", "delete", f"not source.{ALIVE}"),
            Clause("matched", "update", None, _quote_names({**updates, **dropped})),
            Clause("not_matched", "insert", f"source.{ALIVE}", _quote_names(inserts)),
        ),
    )


def _quote_names(values: dict[str, str]) -> dict[str, str]:
    return {quoted(name): expression for name, expression in values.items()}
