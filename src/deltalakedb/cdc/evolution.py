"""Schema change: a source table whose columns have changed, and what becomes of its two tables in the lake."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from deltalakedb.cdc.batches import commit_tables, commit_until_won
from deltalakedb.cdc.buckets import BUCKET
from deltalakedb.cdc.control import begin_batch, note_progress, save_tables
from deltalakedb.cdc.decision import Decision, NotFollowedError, decide
from deltalakedb.cdc.lake_columns import change_columns, fill_columns, is_mapped
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.exceptions import InvalidCommitError, SchemaMismatchError
from deltalakedb.log.types import parse_schema
from deltalakedb.names import parse_table_name
from deltalakedb.steps import reached

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.messages import Relation
    from deltalakedb.cdc.server import Connection
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable
    from deltalakedb.log.actions import Metadata
    from deltalakedb.transactions.transaction import CatalogTransaction

_log = logging.getLogger(__name__)

_MOST_FORMER: Final = 16
"""So often the columns of a table may change within one transaction."""
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
    """Let the lake's tables have the columns that `relation` has, from the transaction at `lsn` on; or stop the table.

    `source` and `lsn` are those of the `RelationChanged`. Everything before `lsn` must be committed first (the range
    is read up to there, then from there again): columns change where the source changed them, and rows of the same
    transaction that came before its ALTER TABLE are still read, by `CapturedTable.former`. `numbers` are those of the
    relation's columns, where they are known.
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
    """Leave a table alone from the transaction at `lsn` on; the others go on. A new copy of it starts it again."""
    table = capture.tables[source]
    if table.stage == "stopped":
        return capture
    told = reason if "resnapshot" in reason else f"{reason}: dl cdc resnapshot {source} copies it anew"
    stopped = replace(table, stage="stopped", reason=told, stopped_lsn=lsn)
    return commit_tables(catalog, capture, [stopped], f"{source} stops at {format_lsn(lsn)}")


def _with_former(table: CapturedTable, decision: Decision, lsn: int) -> CapturedTable:
    """The table as it is now, and what it was for rows of the same transaction that came before."""
    again = table.changed_lsn == lsn
    if again and (decision.is_rekeyed or len(table.former) >= _MOST_FORMER or not table.former):
        raise NotFollowedError(
            "its columns or its key were changed in the middle of a transaction that also changed rows"
        )
    former = (*table.former, table.columns) if again else (table.columns,)
    missing = {column.number: column.missing for column in table.columns} if again else {}
    columns = (
        replace(column, missing=column.missing or missing.get(column.number)) for column in decision.table.columns
    )
    return replace(
        decision.table,
        columns=tuple(columns),
        changed_lsn=lsn,
        # An old row that was sent by another key cannot be found by the one of now.
        former=() if decision.is_rekeyed else former,
        notes=decision.table.notes[-_MOST_NOTES:],
    )


def _change_lake(tx: CatalogTransaction, table: CapturedTable, decision: Decision) -> None:
    change = decision.change
    metadata = _metadata(tx, table.current)
    if change.renamed and not is_mapped(metadata):
        old, new = next(iter(change.renamed.items()))
        raise NotFollowedError(
            f"its column {old} is called {new} now, and without column mapping {table.current} cannot rename a column "
            "(column_mapping in the capture's settings, before the table is copied)"
        )
    if metadata.partition_columns and (decision.is_rekeyed or not change.widened.keys().isdisjoint(table.key)):
        raise NotFollowedError(f"its key has changed, and {table.current} is partitioned by it ({BUCKET})")
    # A column of that name may be there, which the source had dropped and the lake could not: its values are no more.
    there = set(parse_schema(metadata.schema_string).names)
    again = {column.name: pa.scalar(None) for column in change.added if column.name in there}
    tx.run(table.current, partial(change_columns, change=change, nested=False))
    tx.run(table.changes, partial(change_columns, change=change, nested=True))
    values = decision.values if is_mapped(metadata) else {**again, **decision.values}
    if values:
        tx.run(table.current, partial(fill_columns, values=values))


def _metadata(tx: CatalogTransaction, name: str) -> Metadata:
    draft = tx.find_draft(parse_table_name(name))
    if draft is None:
        raise NotFollowedError(f"the lake has no table {name} any more")
    return draft.snapshot().metadata
