"""Schema changes: applies changed columns of a source table to its two tables in the lake, or stops the table."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from deltalakedb.cdc.apply.batches import commit_tables, commit_until_won
from deltalakedb.cdc.apply.buckets import BUCKET
from deltalakedb.cdc.control import begin_batch, note_progress, save_tables
from deltalakedb.cdc.evolve.decision import Decision, NotFollowedError, decide
from deltalakedb.cdc.evolve.lake_columns import ColumnChange, change_columns, fill_columns, is_mapped
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source_names import resnapshot_command
from deltalakedb.exceptions import InvalidCommitError, SchemaMismatchError
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.runtime.steps import reached
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.decode.messages import Relation
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source.postgres import Connection
    from deltalakedb.log.protocol.actions import Metadata
    from deltalakedb.transactions.transaction import CatalogTransaction

_log = logging.getLogger(__name__)

_MOST_FORMER: Final = 16
"""How often the columns of a table may change within one transaction."""
_MOST_NOTES: Final = 40


def follow(
    catalog: Catalog,
    capture: Capture,
    settings: CaptureSettings,
    relation: Relation,
    conn: Connection,
    *,
    source: str,
    lsn: int,
    numbers: tuple[int, ...] | None = None,
) -> Capture:
    """Give the lake's tables the columns of `relation`, from the transaction at `lsn` on; or stop the table.

    `source` and `lsn` are those of the `RelationChanged`. Everything before `lsn` must be committed first (the range
    is read up to there, then again from there): columns change where the source changed them, and rows that the same
    transaction sent before its ALTER TABLE are still read, by `CapturedTable.former`. `numbers` are those of the
    relation's columns, if they are known.
    """
    table = capture.tables[source]
    try:
        decision = decide(conn, settings, table, relation, numbers)
        followed = _with_former(table, decision, lsn)
        commit = partial(_follow, catalog, capture, table, decision, followed)
        return commit_until_won(commit, f"the change of the columns of {source}")
    except (NotFollowedError, SchemaMismatchError, InvalidCommitError) as error:
        _log.warning("%s stops: %s", source, error)
        return stop_table(catalog, capture, source, str(error), lsn)


def _follow(
    catalog: Catalog, capture: Capture, table: CapturedTable, decision: Decision, followed: CapturedTable
) -> Capture:
    message = f"capture {capture.slot}: columns of {table.source} at {format_lsn(followed.changed_lsn or 0)}"
    with begin_batch(catalog, capture, message) as tx:
        _change_lake(tx, table, decision)
        changed = save_tables(tx, capture, [followed])
        reached("cdc.followed")
        return note_progress(tx, changed, capture.lsn)


def stop_table(catalog: Catalog, capture: Capture, source: str, reason: str, lsn: int) -> Capture:
    """Stop a table from the transaction at `lsn` on; the others continue. A new copy starts it again."""
    table = capture.tables[source]
    if table.stage == "stopped":
        return capture
    advice = reason if "resnapshot" in reason else f"{reason}: {resnapshot_command(source)} copies it anew"
    stopped = replace(table, stage="stopped", reason=advice, stopped_lsn=lsn, copy_id=None)
    return commit_tables(catalog, capture, [stopped], f"{source} stops at {format_lsn(lsn)}")


def _with_former(table: CapturedTable, decision: Decision, lsn: int) -> CapturedTable:
    """The changed table, with the former columns for rows that the same transaction sent before."""
    is_repeated = table.changed_lsn == lsn
    if is_repeated and (decision.is_rekeyed or len(table.former) >= _MOST_FORMER or not table.former):
        raise NotFollowedError(
            "its columns or its key were changed in the middle of a transaction that also changed rows"
        )
    former = (*table.former, table.sent) if is_repeated else (table.sent,)
    missing = {column.number: column.missing for column in table.columns} if is_repeated else {}
    columns = (
        replace(column, missing=column.missing or missing.get(column.number)) for column in decision.table.columns
    )
    return replace(
        decision.table,
        columns=tuple(columns),
        changed_lsn=lsn,
        # An old row that was sent with another key cannot be found by the new one.
        former=() if decision.is_rekeyed else former,
        notes=decision.table.notes[-_MOST_NOTES:],
    )


def _change_lake(tx: CatalogTransaction, table: CapturedTable, decision: Decision) -> None:
    change = decision.change
    for name in table.lake_tables:
        _check_renames(name, _metadata(tx, name), change)
    if table.keeps_changes:
        tx.run(table.changes, partial(change_columns, change=change, nested=True))
    if table.keeps_current:
        _change_current(tx, table, decision)


def _change_current(tx: CatalogTransaction, table: CapturedTable, decision: Decision) -> None:
    change, metadata = decision.change, _metadata(tx, table.current)
    _check_partitions(table, decision, metadata.partition_columns)
    # The lake may still have a column of that name that the source had dropped: its values are removed.
    names = set(parse_schema(metadata.schema_string).names)
    nulls = {column.name: pa.scalar(None) for column in change.added if column.name in names}
    tx.run(table.current, partial(change_columns, change=change, nested=False))
    values = decision.values if is_mapped(metadata) else {**nulls, **decision.values}
    if values:
        tx.run(table.current, partial(fill_columns, values=values))


def _check_renames(name: str, metadata: Metadata, change: ColumnChange) -> None:
    if change.renamed and not is_mapped(metadata):
        old, new = next(iter(change.renamed.items()))
        raise NotFollowedError(
            f"its column {old} is called {new} now, and without column mapping {name} cannot rename a column "
            "(column_mapping in the capture's settings, before the table is copied)"
        )


def _check_partitions(table: CapturedTable, decision: Decision, partitions: Sequence[str]) -> None:
    change = decision.change
    if BUCKET in partitions and (decision.is_rekeyed or not change.widened.keys().isdisjoint(table.key)):
        raise NotFollowedError(f"its key has changed, and {table.current} is partitioned by it ({BUCKET})")
    moved = {*change.renamed, *change.widened, *(column.name for column in change.dropped)}.intersection(partitions)
    if moved:
        raise NotFollowedError(f"its column {min(moved)} has changed, and {table.current} is partitioned by it")


def _metadata(tx: CatalogTransaction, name: str) -> Metadata:
    draft = tx.find_draft(parse_table_name(name))
    if draft is None:
        raise NotFollowedError(f"the lake has no table {name} any more")
    return draft.snapshot().metadata
