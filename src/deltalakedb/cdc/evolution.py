"""Schema change: a source table whose columns have changed, and what becomes of its two tables in the lake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.cdc.control import begin_batch, note_progress, save_tables
from deltalakedb.cdc.lsn import format_lsn

if TYPE_CHECKING:
    import psycopg

    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.messages import Relation
    from deltalakedb.cdc.settings import CaptureSettings


def follow(
    catalog: Catalog,
    capture: Capture,
    settings: CaptureSettings,
    relation: Relation,
    conn: psycopg.Connection[Any],
    *,
    source: str,
    lsn: int,
) -> Capture:
    """Let the lake's tables have the columns that `relation` has, from the transaction at `lsn` on; or stop the table.

    `source` and `lsn` are those of the `RelationChanged`. Everything before `lsn` must be committed first (the range
    is read up to there, then from there again): columns change where the source changed them, and rows of the same
    transaction that came before its ALTER TABLE are still read, by `CapturedTable.former`.
    """
    return stop_table(catalog, capture, source, f"its columns have changed to {relation}", lsn)


def stop_table(catalog: Catalog, capture: Capture, source: str, reason: str, lsn: int) -> Capture:
    """Leave a table alone from the transaction at `lsn` on; the others go on. A new copy of it starts it again."""
    table = capture.tables[source]
    if table.stage == "stopped":
        return capture
    told = reason if "resnapshot" in reason else f"{reason}; dl cdc resnapshot {source} copies it anew"
    stopped = replace(table, stage="stopped", reason=told, stopped_lsn=lsn)
    with begin_batch(catalog, capture, f"capture {capture.slot}: {source} stops at {format_lsn(lsn)}") as tx:
        changed = save_tables(tx, capture, [stopped])
        return note_progress(tx, changed, capture.lsn)
