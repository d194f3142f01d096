"""Watches the source of a running capture: its publication, its slot, and changes of tables that no row reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.apply.batches import commit_tables
from deltalakedb.cdc.evolve.evolution import follow, stop_table
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.run.opening import add_tables
from deltalakedb.cdc.run.report import record_slot
from deltalakedb.cdc.run.status import describe_limit, is_close_to_limit
from deltalakedb.cdc.source.postgres import find_unsent, flush_lsn, translate_errors
from deltalakedb.cdc.source.publication import look_at_publication, read_columns, take_out
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.cdc.source.source_catalog import SourceRelation, catalog_mark, has_struct, read_relations
from deltalakedb.cdc.source_names import resnapshot_command
from deltalakedb.exceptions import CaptureSetupError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.decode.messages import Relation
    from deltalakedb.cdc.run.following import ChangeFollower
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source.postgres import Connection

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 15.0
_MOST_RECOPIES: Final = 3
_RECOPY_SECONDS: Final = 3600.0
"""A stopped table is copied again by policy at most _MOST_RECOPIES times within this time."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What the capture must follow: tables that left the publication, and columns that changed without a message."""

    departed: bool = False
    unseen: Unseen | None = None

    def __bool__(self) -> bool:
        return self.departed or bool(self.unseen)


NO_DIFFERENCES: Final = Differences()


class SourceWatch:
    """Adds new tables, finds what else has changed, and warns of a slot that is close to being lost."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._due_at = time.monotonic() + _INTERVAL_SECONDS
        self._quiet_at: tuple[str, Mapping[str, CapturedTable]] | None = None
        """The mark of the source's catalog, and our tables, at the last check that found nothing to do."""
        self._recopied: dict[str, list[float]] = {}
        """When stopped tables were copied again by policy."""
        self._warning: str | None = None
        self._is_slot_close = False

    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def look(self, follower: ChangeFollower, settings: CaptureSettings) -> Differences:
        """Check the tables and the slot; add new tables, and return what else has changed."""
        differences = self._look_at_tables(follower, settings)
        self._look_at_slot(follower, settings)
        self._due_at = time.monotonic() + _INTERVAL_SECONDS
        return differences

    def _look_at_tables(self, follower: ChangeFollower, settings: CaptureSettings) -> Differences:
        """Each table costs a query or two, so they are checked only if the source's catalog or our tables changed."""
        mark, tables = catalog_mark(follower.conn), follower.capture.tables
        if self._quiet_at is not None and mark == self._quiet_at[0] and tables is self._quiet_at[1]:
            return NO_DIFFERENCES
        departed = self._look_at_publication(follower, settings)
        differences = Differences(departed, look_for_changes(follower.conn, follower.capture, settings))
        is_quiet = not differences and follower.capture.tables is tables
        self._quiet_at = (mark, tables) if is_quiet else None
        return differences

    def _look_at_publication(self, follower: ChangeFollower, settings: CaptureSettings) -> bool:
        """Add new tables of the publication; returns whether tables have left it."""
        try:
            follower.use(add_tables(self._catalog, follower.conn, follower.capture, settings))
            published = look_at_publication(follower.conn, settings, follower.capture).sources
        except CaptureSetupError as error:
            # A table that the settings name is missing: the others continue, and the next start refuses.
            if str(error) != self._warning:
                self._warning = str(error)
                _log.warning("%s", error)
            return False
        self.copy_stopped(follower, settings, published)
        tables = follower.capture.tables.values()
        return any(table.stage != "stopped" and table.source not in published for table in tables)

    def copy_stopped(self, follower: ChangeFollower, settings: CaptureSettings, published: frozenset[str]) -> bool:
        """Mark stopped tables for a new copy if the policy says so; returns whether there are any.

        A table that stops again and again is not copied again.
        """
        if settings.resnapshot == "never":
            return False
        recopied = []
        for table in follower.capture.tables.values():
            if table.stage == "stopped" and table.source in published and self._may_recopy(table.source):
                _log.warning("%s is copied anew: %s", table.source, table.reason)
                recopied.append(table.to_copy_again())
        if recopied:
            message = f"new copies of {', '.join(table.source for table in recopied)}"
            follower.use(commit_tables(self._catalog, follower.capture, recopied, message))
        return bool(recopied)

    def _may_recopy(self, source: str) -> bool:
        """Whether a stopped table may be copied again; counts it if so."""
        now = time.monotonic()
        recent = [copied_at for copied_at in self._recopied.get(source, ()) if copied_at >= now - _RECOPY_SECONDS]
        if len(recent) >= _MOST_RECOPIES:
            return False
        self._recopied[source] = [*recent, now]
        return True

    def _look_at_slot(self, follower: ChangeFollower, settings: CaptureSettings) -> None:
        """Record the state of the slot in the metrics; log a warning if it is close to being lost."""
        slot = find_slot(follower.conn, settings.slot)
        if slot is None or slot.is_lost:  # the next batch reports it
            return
        record_slot(slot, flush_lsn(follower.conn))
        if is_close_to_limit(slot) and not self._is_slot_close:
            _log.warning("%s", describe_limit(slot))
        self._is_slot_close = is_close_to_limit(slot)


_FLUSH_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Unseen:
    """Tables that differ between the source's catalog and the capture."""

    relations: Mapping[str, tuple[Relation, tuple[int, ...]]]
    """The message that their next row will send, and the numbers of its columns, by source table."""
    reasons: Mapping[str, str]
    """Why some of them must stop."""
    marks: Mapping[str, str]
    """The new mark of the publication's options, for tables of which nothing else has changed."""
    lsn: int
    """The changes were committed before this LSN; once everything before it is captured, only the columns remain."""

    def __bool__(self) -> bool:
        return bool(self.relations or self.reasons or self.marks)


def look_for_changes(conn: Connection, capture: Capture, settings: CaptureSettings) -> Unseen:
    """Compare the captured tables with the source's catalog."""
    tables = capture.streaming
    source_relations = read_relations(conn, [table.oid for table in tables], settings.publication)
    relations: dict[str, tuple[Relation, tuple[int, ...]]] = {}
    reasons: dict[str, str] = {}
    followed: list[tuple[CapturedTable, SourceRelation]] = []
    marks: dict[str, str] = {}
    with translate_errors():
        unsent = find_unsent(conn, settings.publication)
    for table in tables:
        relation = source_relations.get(table.oid)
        if relation is None:
            reasons[table.source] = (
                f"the table was dropped: {take_out(table.source)}; if it is made again, "
                f"{resnapshot_command(table.source)} copies it"
            )
        elif relation.source != table.source:
            reasons[table.source] = (
                f"the table is called {relation.source} now, and if it is captured then by that name: "
                f"{take_out(table.source)}; if there is another {table.source}, "
                f"{resnapshot_command(table.source)} copies it"
            )
        elif relation.membership is None:
            continue  # tables that left the publication are handled elsewhere
        elif table.membership is not None and relation.membership != table.membership:
            reasons[table.source] = (
                f"it was not, or not as it is now, a table of the publication {settings.publication} for a while, and "
                "what was changed meanwhile is in no message"
            )
        elif unsent is not None:
            reasons[table.source] = unsent
        elif _was_silenced(table, relation):
            reasons[table.source] = (
                f"somebody has set the options of the publication {settings.publication} and set them back, and what "
                "it did not send meanwhile is in no message"
            )
        else:
            followed.append((table, relation))
    with translate_errors():
        columns = read_columns(conn, [(table.oid, table.source) for table, _ in followed], settings)
    for table, relation in followed:
        _compare(table, relation, columns[table.oid], relations, reasons)
        if relation.publishing is not None and relation.publishing != table.publishing:
            marks[table.source] = relation.publishing
    return Unseen(relations, reasons, marks, written_lsn(conn) if relations or reasons else 0)


def _was_silenced(table: CapturedTable, now: SourceRelation) -> bool:
    """Whether the publication may not have sent some kinds of changes for a while.

    Its options were set since, and are what they were: something was set and set back.
    """
    if table.publishing is None or now.publishing is None or table.publishing == now.publishing:
        return False
    return table.publishing.partition(" ")[2] == now.publishing.partition(" ")[2]


def apply_unseen_changes(
    catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings, unseen: Unseen
) -> Capture:
    """Follow the changes, or stop tables. Call it once everything before `unseen.lsn` is captured."""
    for source, reason in unseen.reasons.items():
        capture = stop_table(catalog, capture, source, reason, capture.lsn)
    for source, (relation, numbers) in unseen.relations.items():
        table = capture.tables[source]
        if table.stage == "streaming" and not relation.matches(table):  # otherwise a row has reported it meanwhile
            capture = follow(
                catalog, capture, settings, relation, conn, source=source, lsn=capture.lsn, numbers=numbers
            )
    marked = [
        replace(capture.tables[source], publishing=mark)
        for source, mark in unseen.marks.items()
        if capture.tables[source].stage == "streaming"
    ]
    if marked:
        capture = commit_tables(catalog, capture, marked, f"the options of the publication {settings.publication}")
    return capture


def _compare(
    table: CapturedTable,
    now: SourceRelation,
    columns: Sequence[SourceColumn],
    relations: dict[str, tuple[Relation, tuple[int, ...]]],
    reasons: dict[str, str],
) -> None:
    message = now.to_message(columns)
    if not message.matches(table):
        relations[table.source] = (message, tuple(column.number for column in columns))
        return
    # Rows since then were read with the columns, or the key, of before.
    recreated = [one.name for one, before in zip(columns, table.sent, strict=True) if one.number != before.number]
    if recreated:
        reasons[table.source] = f"its column {recreated[0]} was dropped and made anew"
        return
    reshaped = [
        one
        for one, before in zip(columns, table.sent, strict=True)
        if before.mask is None and (before.shape != one.shape or (has_struct(before.type) and before.type != one.type))
    ]
    if reshaped:
        reasons[table.source] = f"the type {reshaped[0].type_name} of its column {reshaped[0].name} has changed"
        return
    key = {column.number for column in table.columns if column.name in table.key}
    if now.identity == "f" and key and key != set(now.primary_key):
        reasons[table.source] = "its primary key has changed"


def written_lsn(conn: Connection) -> int:
    """The present end of the log, once it is flushed to the server's disk: it cannot be read before."""
    with translate_errors():
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    end = parse_lsn(str(row[0]))
    until = time.monotonic() + _FLUSH_SECONDS
    while (flushed := flush_lsn(conn)) < end and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    return min(end, flushed)
