"""DELETE: deletes the rows for which a predicate is true, or all rows."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.expressions import Expression
from deltalakedb.operations.find import find_rows
from deltalakedb.operations.rewriting import remove_rows
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    from deltalakedb.operations.parquet_options import Properties


def delete(target: Target, predicate: str | None = None, writer_properties: Properties | None = None) -> Done:
    """Delete the rows for which `predicate` is true; without one, all rows."""
    started = time.perf_counter()
    refuse_changed_rows(target.metadata, target.name, "deleted")
    condition = None if predicate is None else Expression.parse(predicate, target.schema)
    matches = find_rows(target, condition)
    scanned = time.perf_counter()
    metrics: dict[str, Any] = {"num_added_files": 0, "num_removed_files": 0}
    actions: tuple[Action, ...] = ()
    copied = 0
    if matches.files:
        with change_feed(target, condition) as changes:
            removed = remove_rows(target, matches.files, changes=changes, writer_properties=writer_properties)
            cdc_actions = () if changes is None else changes.finish()
        actions, copied = (*removed.actions, *cdc_actions), removed.copied_rows or 0
        metrics = {"num_added_files": removed.new_files + len(cdc_actions), "num_removed_files": removed.gone_files}
    if matches.matched is not None:
        metrics["num_deleted_rows"] = matches.matched
    ended = time.perf_counter()
    rewrite_ms = int((ended - scanned) * 1000) if copied else 0
    metrics |= {
        "num_copied_rows": copied,
        "execution_time_ms": int((ended - started) * 1000),
        "scan_time_ms": int((scanned - started) * 1000),
        "rewrite_time_ms": rewrite_ms,
    }
    if not actions:
        return Done(None, metrics, matches.read)
    parameters = {} if condition is None else {"predicate": condition.text}
    commit = ProposedCommit(actions, "DELETE", parameters, operation_metrics=metrics, read=matches.read)
    return Done(commit, metrics)


def change_feed(target: Target, condition: Expression | None, schema: StructType | None = None) -> Any:
    """Return a context manager that gives a writer for deleted rows, or None if no change data is needed.

    None is needed if the table has no change data feed, or the condition is only about partitions: then whole files
    are removed, which readers of the feed interpret themselves.
    """
    by_partition = condition is None or condition.columns <= set(target.metadata.partition_columns)
    return nullcontext() if by_partition or not feeds_changes(target) else ChangeWriter(target, schema)
