"""Watches the source of a running capture: its publication, its tables and its slot, every 15 seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.apply.batches import commit_tables
from deltalakedb.cdc.evolve.quiet import Unseen, look_for_changes
from deltalakedb.cdc.run.metrics import record_slot
from deltalakedb.cdc.run.opening import add_tables
from deltalakedb.cdc.run.status import is_close_to_limit
from deltalakedb.cdc.source.publication import look_at_publication
from deltalakedb.cdc.source.server import flush_lsn
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.cdc.source.source_catalog import catalog_mark
from deltalakedb.exceptions import CaptureSetupError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.run.following import ChangeFollower
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable

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
                recopied.append(replace(table, stage="pending", reason=None, stopped_lsn=None))
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
            remaining = (
                "" if slot.safe_wal_size is None else f", {slot.safe_wal_size >> 20} MB of log before it is lost"
            )
            _log.warning("the slot %s is close to its end (%s%s)", slot.name, slot.wal_status, remaining)
        self._is_slot_close = is_close_to_limit(slot)
