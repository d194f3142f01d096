"""DELETE: the rows for which a predicate is true leave the table, or all rows."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deltalakedb.log.actions import Action
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.expressions import Expression
from deltalakedb.operations.find import Found, find_rows
from deltalakedb.operations.rewriting import remove_rows
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from deltalakedb.operations.parquet_options import Properties


def delete(
    target: Target,
    predicate: str | None = None,
    writer_properties: Properties | None = None,
    *,
    inserted: Iterable[pa.RecordBatch] = (),
) -> Done:
    """Delete the rows for which `predicate` is true; without one, all rows.

    `inserted` are rows that the same commit adds; they are read only if its change data feed has to tell of them.
    """
    started = time.perf_counter()
    refuse_changed_rows(target.metadata, target.name, "deleted")
    condition = None if predicate is None else Expression.parse(predicate, target.schema)
    found = find_rows(target, condition)
    scanned = time.perf_counter()
    metrics: dict[str, Any] = {"num_added_files": 0, "num_removed_files": 0}
    actions: tuple[Action, ...] = ()
    copied = 0
    if found.files:
        with _feed(target, found) as changes:
            gone = remove_rows(target, found.files, changes=changes, writer_properties=writer_properties)
            for batch in inserted if changes is not None else ():
                changes.write(batch, "insert")
            told = () if changes is None else changes.finish()
        actions, copied = (*gone.actions, *told), gone.copied_rows or 0
        metrics = {"num_added_files": gone.new_files, "num_removed_files": gone.gone_files}
    if found.matched is not None:
        metrics["num_deleted_rows"] = found.matched
    ended = time.perf_counter()
    rewrite_ms = int((ended - scanned) * 1000) if copied else 0
    metrics |= {
        "num_copied_rows": copied,
        "execution_time_ms": int((ended - started) * 1000),
        "scan_time_ms": int((scanned - started) * 1000),
        "rewrite_time_ms": rewrite_ms,
    }
    if not actions:
        return Done(None, metrics, found.read)
    parameters = {} if condition is None else {"predicate": condition.text}
    commit = ProposedCommit(actions, "DELETE", parameters, operation_metrics=metrics, read=found.read)
    return Done(commit, metrics)


def _feed(target: Target, found: Found) -> Any:
    """Where the rows that go are told; files that go whole tell it themselves."""
    if not feeds_changes(target) or all(file.is_whole for file in found.files):
        return nullcontext()
    return ChangeWriter(target)
