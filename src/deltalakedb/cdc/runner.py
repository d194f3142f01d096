"""The runner of a capture: one at a time, from its start until somebody stops it, through lost connections."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.control import Capture, CaptureChangedError
from deltalakedb.cdc.copying import Progress, copy_tables
from deltalakedb.cdc.following import ChangeFollower, StopRequested, Tally
from deltalakedb.cdc.metrics import LagMeter, record_failure
from deltalakedb.cdc.opening import add_tables, open_capture, stop_departed
from deltalakedb.cdc.presence import RunnerPresence
from deltalakedb.cdc.publication import look_at_publication
from deltalakedb.cdc.quiet import Unseen, look_for_changes, settle_changes, written_lsn
from deltalakedb.cdc.report import BatchDone, CaptureReport
from deltalakedb.cdc.server import connect, flush_lsn
from deltalakedb.cdc.source import register
from deltalakedb.cdc.streaming import ChangeStream
from deltalakedb.exceptions import (
    CaptureRunningError,
    CaptureSetupError,
    NotADatabaseError,
    OutcomeUnknownError,
    SchemaVersionError,
    SourceUnavailableError,
    StoreError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_DISCOVERY_SECONDS: Final = 15.0
"""How often the publication is looked at for tables that came or went."""
_BACKLOG_BATCHES: Final = 2
_LONGEST_WAIT_SECONDS: Final = 30.0
_OWN_LOCK_SECONDS: Final = 120.0
"""After a connection broke the server may take so long to see it, and to let go of our own lock."""
# Nothing is wrong with the capture: the source or the catalog does not answer, or somebody has asked for a new copy.
_PASSING: Final = (SourceUnavailableError, StoreError, OutcomeUnknownError, CaptureChangedError)
_FINAL: Final = (SchemaVersionError, NotADatabaseError)


class Runner:
    """Runs one capture with one Spark session, until `stop` is set; the batch in flight ends first."""

    def __init__(
        self,
        catalog: Catalog,
        settings: CaptureSettings,
        spark: SparkSession,
        stop: threading.Event,
        *,
        progress: Progress | None = None,
        on_batch: Callable[[BatchDone], None] | None = None,
    ) -> None:
        self._catalog, self._settings, self._spark = catalog, settings, spark
        self._progress, self._on_batch = progress, on_batch
        self._stop = stop
        self._tally = Tally()
        self._lag = LagMeter(settings.slot)
        self._capture: Capture | None = None
        self._presence: RunnerPresence | None = None
        self._began = time.monotonic()
        self._has_worked = False
        self._failures = 0
        self._failing_since: float | None = None
        self._warned: str | None = None
        self._look_at = self._began + _DISCOVERY_SECONDS

    def run(self, *, once: bool = False) -> CaptureReport:
        """Capture until somebody wants it to stop, or, once, what the source had committed when this began."""
        register(self._spark)
        while not self._stop.is_set():
            try:
                self._run_connected(once)
                break
            except StopRequested:
                break
            except (*_PASSING, CaptureRunningError) as error:
                record_failure(self._settings.slot, error)
                if once or not self._is_passing(error):
                    raise
                self._wait(error)
        return self._report()

    def _run_connected(self, once: bool) -> None:
        settings, catalog = self._settings, self._catalog
        with RunnerPresence(settings.source, settings.slot) as presence, closing(connect(settings.source)) as conn:
            self._presence = presence
            capture = open_capture(catalog, conn, settings)
            self._has_worked, self._failures, self._failing_since = True, 0, None
            target = written_lsn(conn)
            self._capture = capture = add_tables(catalog, conn, capture, settings)
            follower = ChangeFollower(
                catalog,
                settings,
                self._spark,
                conn,
                capture,
                self._tally,
                should_stop=self._should_stop,
                on_batch=self._on_batch,
            )
            try:
                self._copy_pending(follower)
                if once:
                    follower.drain(target)
                    self._settle(follower, look_for_changes(conn, follower.capture, settings))
                    follower.use(stop_departed(catalog, conn, follower.capture, settings))
                    return
                while not self._should_stop():
                    self._catch_up(follower)
                    self._stream(follower)
                    self._copy_pending(follower)
            finally:
                self._capture = follower.capture

    # -- copying

    def _copy_pending(self, follower: ChangeFollower) -> None:
        pending = [table.source for table in follower.capture.tables.values() if table.stage == "pending"]
        if not pending:
            return
        self._end_if_asked()

        def drain(capture: Capture, lsn: int) -> Capture:
            follower.use(capture)
            return follower.drain(lsn)

        copied = copy_tables(
            self._spark,
            self._catalog,
            follower.capture,
            self._settings,
            drain=drain,
            progress=self._progress,
            check=self._end_if_asked,
        )
        follower.use(copied)
        self._tally.copied += [source for source in pending if copied.tables[source].stage == "streaming"]

    # -- streaming

    def _catch_up(self, follower: ChangeFollower) -> None:
        """A backlog is read ahead of what is committed, which a query of Spark's does not do."""
        flushed = flush_lsn(follower.conn)
        if flushed - follower.at > _BACKLOG_BATCHES * self._settings.batch_bytes:
            follower.drain(flushed)

    def _stream(self, follower: ChangeFollower) -> None:
        """Stream until it is to stop, or until the tables are others than the query was told."""
        departed, unseen = False, None
        with ChangeStream(follower) as stream:
            while not self._should_stop() and not follower.tables_changed:
                stream.check()
                self._measure(follower)
                if follower.lock.acquire(blocking=False):
                    try:
                        follower.note_if_due()
                        if time.monotonic() >= self._look_at:
                            follower.heed_requests()
                            departed = self._look_at_publication(follower)
                            unseen = look_for_changes(follower.conn, follower.capture, self._settings)
                            self._look_at = time.monotonic() + _DISCOVERY_SECONDS
                    finally:
                        follower.lock.release()
                if departed or unseen:
                    break
                time.sleep(_POLL_SECONDS)
        stream.check()
        if unseen:
            self._settle(follower, unseen)
        if departed:
            follower.drain(flush_lsn(follower.conn))
            follower.use(stop_departed(self._catalog, follower.conn, follower.capture, self._settings))

    def _settle(self, follower: ChangeFollower, unseen: Unseen) -> None:
        """Take in columns that changed without a row that told of it."""
        if unseen:
            follower.drain(unseen.lsn)
            follower.use(settle_changes(self._catalog, follower.conn, follower.capture, self._settings, unseen))

    def _look_at_publication(self, follower: ChangeFollower) -> bool:
        """Take in tables that came; whether some have gone."""
        try:
            follower.use(add_tables(self._catalog, follower.conn, follower.capture, self._settings))
            published = look_at_publication(follower.conn, self._settings, follower.capture).sources
        except CaptureSetupError as error:
            # A table that was asked for by name is not there: the others go on, and the next start refuses.
            if str(error) != self._warned:
                self._warned = str(error)
                _log.warning("%s", error)
            return False
        known = follower.capture.tables.values()
        return any(table.stage != "stopped" and table.source not in published for table in known)

    def _measure(self, follower: ChangeFollower) -> None:
        """Tell the metrics how late it is, also while a batch is under way."""
        if self._lag.is_due() and self._presence is not None:
            flushed = self._presence.flushed_lsn()
            if flushed is not None:
                self._lag.record(flushed_lsn=flushed, lsn=follower.at)

    # -- the end, and starting over

    def _should_stop(self) -> bool:
        if not self._stop.is_set() and self._presence is not None and self._presence.should_stop():
            self._stop.set()
        return self._stop.is_set()

    def _end_if_asked(self) -> None:
        if self._should_stop():
            raise StopRequested

    def _is_passing(self, error: BaseException) -> bool:
        """Whether to try again. What fails before it ever worked was set up wrong."""
        if not self._has_worked or isinstance(error, _FINAL):
            return False
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return not isinstance(error, CaptureRunningError) or now - self._failing_since < _OWN_LOCK_SECONDS

    def _wait(self, error: BaseException) -> None:
        seconds = min(_LONGEST_WAIT_SECONDS, 0.5 * 2**self._failures) * random.uniform(0.7, 1.0)
        self._failures = min(self._failures + 1, 16)
        _log.warning("%s; trying again in %.1f s", error, seconds)
        self._stop.wait(seconds)

    def _report(self) -> CaptureReport:
        capture = self._capture
        tables = () if capture is None else tuple(capture.tables.values())
        return CaptureReport(
            slot=self._settings.slot,
            control=self._settings.control_table,
            lsn=0 if capture is None else capture.lsn,
            batches=self._tally.batches,
            transactions=self._tally.transactions,
            changes=self._tally.changes,
            copied=tuple(self._tally.copied),
            stopped={table.source: table.reason or "" for table in tables if table.stage == "stopped"},
            seconds=time.monotonic() - self._began,
        )
