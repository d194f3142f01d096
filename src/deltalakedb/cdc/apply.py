"""Layer 2: the rows of a table as they are after a batch, by the statements every other writer uses."""

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

from deltalakedb.cdc.buckets import BUCKET, add_buckets, buckets_of
from deltalakedb.cdc.control import Capture, progress_of
from deltalakedb.cdc.keyless import apply_keyless
from deltalakedb.cdc.layers import AFTER, INSERT, OP
from deltalakedb.cdc.lookups import ALIVE, RowLookup
from deltalakedb.cdc.net import COLUMNS, NetEffect
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.data import read_files
from deltalakedb.exceptions import CaptureError
from deltalakedb.log.actions import AddFile
from deltalakedb.log.rows import adds_to_batch
from deltalakedb.log.stats import parse_stats
from deltalakedb.names import parse_table_name
from deltalakedb.operations.ahead import read_ahead
from deltalakedb.operations.change_data import feeds_changes
from deltalakedb.operations.delete import delete
from deltalakedb.operations.engines import open_engine
from deltalakedb.operations.expressions import quoted
from deltalakedb.operations.merge import merge
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.target import Done, Target
from deltalakedb.operations.write import WriteMode, WriteRequest, write
from deltalakedb.operations.written_files import WrittenFiles
from deltalakedb.transaction import CommitProperties

if TYPE_CHECKING:
    from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)

_MANY: Final = 10_000
"""New rows from which on it pays to write them beside the merge, and several files at a time."""
_WORKERS: Final = max(2, os.cpu_count() or 1)
_AHEAD_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch did to the rows of a table, in sum."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    truncated: bool = False


def apply_changes(
    tx: CatalogTransaction,
    capture: Capture,
    table: CapturedTable,
    files: Sequence[AddFile],
    lsn: int,
    settings: CaptureSettings,
) -> Applied:
    """Bring the table of current rows to where the changes in `files` lead; its version carries the progress `lsn`.

    The files lie in the folder of the table of changes, and need not be committed yet.
    """
    return apply_to_tables(tx, capture, [(table, files)], lsn, settings).get(table.source, Applied())


def apply_to_tables(
    tx: CatalogTransaction,
    capture: Capture,
    changes: Iterable[tuple[CapturedTable, Sequence[AddFile]]],
    lsn: int,
    settings: CaptureSettings,  # noqa: ARG001  what it decides is written in the tables
) -> dict[str, Applied]:
    """The same of several tables, side by side; by their names in the source."""
    batches = {table.current: _batch_of(tx, table, files) for table, files in changes if files}
    noted = CommitProperties(app_transactions=[progress_of(capture, lsn)])
    verbs = {name: partial(apply_batch, batch=batch) for name, batch in batches.items()}
    done = tx.run_all(verbs, noted) if len(verbs) > 1 else {n: tx.run(n, verb, noted) for n, verb in verbs.items()}
    return {batches[name].table.source: Applied(**counts) for name, counts in done.items()}


def _batch_of(tx: CatalogTransaction, table: CapturedTable, files: Sequence[AddFile]) -> Batch:
    draft = tx.find_draft(parse_table_name(table.changes))
    if draft is None:
        raise CaptureError(f"{table.source}: its table of changes {table.changes} is gone; resnapshot {table.source}")
    return Batch(table, draft.to_target(WrittenFiles()), tuple(files))


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of one table that are not applied yet."""

    table: CapturedTable
    changes: Target
    files: tuple[AddFile, ...]

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        """The changes, file by file."""
        metadata = self.changes.metadata
        return read_files(
            adds_to_batch(self.files),
            storage=self.changes.storage,
            schema=self.changes.schema,
            partition_columns=metadata.partition_columns,
            configuration=metadata.configuration,
            columns=columns,
        )

    @property
    def num_rows(self) -> int:
        """How many changes there are, as far as the statistics of files tell."""
        known = (parse_stats(add.stats) for add in self.files)
        return sum(one.num_records or 0 for one in known if one is not None)

    def split(self, most: int) -> list[Batch]:
        """Batches of about as many bytes, at most so many; none has a part of a file."""
        parts: list[list[AddFile]] = [[] for _ in range(min(most, len(self.files)))]
        for add in sorted(self.files, key=lambda one: -one.size):
            min(parts, key=lambda part: sum(one.size for one in part)).append(add)
        return [replace(self, files=tuple(part)) for part in parts]

    @property
    def has_only_inserts(self) -> bool:
        """Whether the statistics of all files say so."""
        item = self.changes.schema.field(OP)
        name = OP if item is None else item.physical_name
        known = [parse_stats(add.stats) for add in self.files]
        return all(one is not None and one.min_values.get(name) == one.max_values.get(name) == INSERT for one in known)


def apply_batch(target: Target, batch: Batch) -> Done:
    """The verb: one version of the table of current rows, or none when nothing has become of all the changes."""
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
        done = _write(target, rows, alive, "overwrite") if alive.num_rows else delete(target)
        return Done(done.commit, {"inserted": alive.num_rows, "truncated": True}, done.read)
    new = alive.filter(born)
    if new.num_rows == alive.num_rows and not gone.num_rows:
        return _write(target, rows, alive, "append") if alive.num_rows else Done(None)
    changed = alive.filter(pc.invert(born))
    together = new.num_rows < _MANY or feeds_changes(target)
    done = _merge(target, rows, alive if together else changed, gone)
    _tell_missing(target, batch.table, changed.num_rows + gone.num_rows, done.metrics)
    return done if together else _joined(done, _write(target, rows, new, "append"))


def _merge(target: Target, rows: RowLookup, alive: pa.Table, gone: pa.Table) -> Done:
    done = merge(target, _merge_request(target, rows, rows.rows(alive, gone)))
    counts = {action: done.metrics[f"num_target_rows_{action}"] for action in ("inserted", "updated", "deleted")}
    return Done(done.commit, counts, done.read)


def _tell_missing(target: Target, table: CapturedTable, expected: int, counts: Mapping[str, int]) -> None:
    """Every row that the source changed is in the table, once, unless somebody else writes there."""
    found = counts["updated"] + counts["deleted"]
    if found != expected:
        logger.warning(
            "%s: of %d rows that the source changed or deleted %d were found in %s; somebody else has written there: "
            "dl cdc resnapshot copies %s anew",
            table.source, expected, found, target.name, table.source,
        )  # fmt: skip


def _joined(done: Done, appended: Done) -> Done:
    """A merge or an append, and another append, as one version."""
    counts = {**done.metrics, "inserted": done.metrics["inserted"] + appended.metrics["inserted"]}
    if done.commit is None or appended.commit is None:
        return Done(done.commit or appended.commit, counts, done.read)
    inserted = "num_added_rows" if done.commit.operation == "WRITE" else "num_target_rows_inserted"
    metrics = {**done.commit.operation_metrics, inserted: counts["inserted"]}
    actions = (*done.commit.actions, *appended.commit.actions)
    return Done(replace(done.commit, actions=actions, operation_metrics=metrics), counts)


def _append(target: Target, batch: Batch) -> Done:
    """Rows that nothing else happened to are new: their keys need not be looked for."""
    parts = batch.split(_WORKERS) if batch.num_rows >= _MANY else [batch]
    with ThreadPoolExecutor(len(parts), thread_name_prefix="deltalakedb-apply") as pool:
        first, *others = pool.map(partial(_append_part, target), parts)
    for other in others:
        first = _joined(first, other)
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

    struct = batch.changes.schema.to_arrow().field(AFTER).type
    schema = pa.schema([struct.field(name) for name in names])
    new = pa.RecordBatchReader.from_batches(schema, rows())
    buckets = buckets_of(target.metadata.configuration)
    # A column that the source has dropped may still be in the lake: it is left null.
    request = WriteRequest(schema_mode="merge")
    done = write(target, add_buckets(new, batch.table, buckets) if buckets else new, request)
    return Done(done.commit, {"inserted": count})


def _write(target: Target, rows: RowLookup, alive: pa.Table, mode: WriteMode) -> Done:
    """Rows that nothing of what the table has is needed for."""
    names, found = _columns(rows), rows.rows(alive)
    schema = pa.schema([found.schema.field(key).with_name(name) for name, key in names.items()])
    batches = (
        pa.RecordBatch.from_arrays([batch.column(key) for key in names.values()], schema=schema) for batch in found
    )
    request = WriteRequest(mode, schema_mode="merge")
    done = write(target, pa.RecordBatchReader.from_batches(schema, batches), request)
    return Done(done.commit, {"inserted": alive.num_rows}, done.read)


def _columns(rows: RowLookup) -> dict[str, str]:
    """The columns that a row is written with, and what `RowLookup` calls their values."""
    columns = {column.name: f"v{place}" for place, column in enumerate(rows.table.columns)}
    return {**columns, BUCKET: "new_bucket"} if rows.buckets else columns


def _merge_request(target: Target, rows: RowLookup, source: pa.RecordBatchReader) -> MergeRequest:
    """Each row is found by the key it had before the batch, and becomes what it is now, under whichever key."""
    same = [f"target.{quoted(name)} = source.k{place}" for place, name in enumerate(rows.table.key)]
    if rows.buckets:
        same.append(f"target.{BUCKET} = source.old_bucket")
    inserts = {name: f"source.{value}" for name, value in _columns(rows).items()}
    kept = {rows.table.columns[place].name: f"u{place}" for place in rows.left_out}
    updates = inserts | {
        name: f"case when source.{flag} then target.{quoted(name)} else {inserts[name]} end"
        for name, flag in kept.items()
    }
    # A column that the source has no more is null in every row that is written from then on.
    gone = {name: "null" for name in target.schema.names if name not in inserts}
    return MergeRequest(
        source=source,
        predicate=" and ".join(same),
        clauses=(
            Clause("matched", "delete", f"not source.{ALIVE}"),
            Clause("matched", "update", None, _quoted({**updates, **gone})),
            Clause("not_matched", "insert", f"source.{ALIVE}", _quoted(inserts)),
        ),
    )


def _quoted(values: dict[str, str]) -> dict[str, str]:
    return {quoted(name): expression for name, expression in values.items()}
