"""Tables whose columns changed and that nobody has written to since: the stream tells of a change with its next row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.evolution import follow, stop_table
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.publication import text_columns
from deltalakedb.cdc.server import flush_lsn, translate_errors
from deltalakedb.cdc.source_catalog import SourceRelation, read_relations
from deltalakedb.cdc.types import source_columns

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.messages import Relation
    from deltalakedb.cdc.server import Connection
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable

_FLUSH_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Unseen:
    """Tables that are others in the source's catalog than in the capture."""

    relations: Mapping[str, tuple[Relation, tuple[int, ...]]]
    """The message that their next row will bring, and the numbers of its columns, by source table."""
    reasons: Mapping[str, str]
    """Why some of them cannot go on."""
    lsn: int
    """What changed them was committed before; once all before it is captured, nothing but the columns is left to do."""

    def __bool__(self) -> bool:
        return bool(self.relations or self.reasons)


def look_for_changes(conn: Connection, capture: Capture, settings: CaptureSettings) -> Unseen:
    """Compare the captured tables with the source's catalog."""
    tables = capture.streaming
    found = read_relations(conn, [table.oid for table in tables], settings.publication)
    relations: dict[str, tuple[Relation, tuple[int, ...]]] = {}
    reasons: dict[str, str] = {}
    for table in tables:
        now = found.get(table.oid)
        if now is None:
            reasons[table.source] = "the table was dropped"
        elif now.source != table.source:
            reasons[table.source] = f"the table is called {now.source} now"
        elif now.membership is None:
            continue  # the publication is looked at elsewhere
        elif table.membership is not None and now.membership != table.membership:
            reasons[table.source] = (
                f"it was not, or not as it is now, a table of the publication {settings.publication} for a while, and "
                "what was changed meanwhile is in no message"
            )
        else:
            _compare(conn, table, now, settings, relations, reasons)
    return Unseen(relations, reasons, written_lsn(conn) if relations or reasons else 0)


def settle_changes(
    catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings, unseen: Unseen
) -> Capture:
    """Follow what was found, or stop tables. To be called once all before `unseen.lsn` is captured."""
    for source, reason in unseen.reasons.items():
        capture = stop_table(catalog, capture, source, reason, capture.lsn)
    for source, (relation, numbers) in unseen.relations.items():
        table = capture.tables[source]
        if table.stage == "streaming" and not relation.matches(table):  # else a row has told of it meanwhile
            capture = follow(
                catalog, capture, settings, relation, conn, source=source, lsn=capture.lsn, numbers=numbers
            )
    return capture


def _compare(
    conn: Connection,
    table: CapturedTable,
    now: SourceRelation,
    settings: CaptureSettings,
    relations: dict[str, tuple[Relation, tuple[int, ...]]],
    reasons: dict[str, str],
) -> None:
    with translate_errors():
        columns = source_columns(
            conn, table.oid, as_text=text_columns(settings, table.source), publication=settings.publication
        )
    message = now.to_message(columns)
    if not message.matches(table):
        relations[table.source] = (message, tuple(column.number for column in columns))
        return
    # Rows that came since were taken for rows of the columns, or of the key, that were there before.
    anew = [one.name for one, known in zip(columns, table.columns, strict=True) if one.number != known.number]
    if anew:
        reasons[table.source] = f"its column {anew[0]} was dropped and made anew"
        return
    key = {column.number for column in table.columns if column.name in table.key}
    if now.identity == "f" and key and key != set(now.primary_key):
        reasons[table.source] = "its primary key has changed"


def written_lsn(conn: Connection) -> int:
    """The end of the log as it is now, once it is on the server's disk: nothing of it can be read before."""
    with translate_errors():
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    end = parse_lsn(str(row[0]))
    until = time.monotonic() + _FLUSH_SECONDS
    while (flushed := flush_lsn(conn)) < end and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    return min(end, flushed)
