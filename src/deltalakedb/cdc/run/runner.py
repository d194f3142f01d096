"""The runner of a capture: runs it from its start until it is stopped, and reconnects after lost connections."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.apply.batches import commit_tables
from deltalakedb.cdc.control import Capture, CaptureChangedError, load_capture
from deltalakedb.cdc.copy.copying import Progress, copy_tables
from deltalakedb.cdc.copy.incremental import SideCopier, begin_copies, choose_small, resume_copies
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.evolve.quiet import Unseen, look_for_changes, settle_changes, written_lsn
from deltalakedb.cdc.report import BatchDone, CaptureReport
from deltalakedb.cdc.run.following import ChangeFollower, StopRequested, Tally
from deltalakedb.cdc.run.metrics import LagMeter, record_failure, record_slot, record_tables
from deltalakedb.cdc.run.opening import add_tables, open_capture, stop_departed
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.run.sessions import how_java_ended
from deltalakedb.cdc.run.status import empty_publication, is_close_to_limit
from deltalakedb.cdc.run.streaming import ChangeStream, StreamEndedError
from deltalakedb.cdc.source.data_source import register
from deltalakedb.cdc.source.publication import look_at_coverage, look_at_publication
from deltalakedb.cdc.source.server import Connection, connect, flush_lsn
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.cdc.source.source_catalog import catalog_mark
from deltalakedb.exceptions import (
    CaptureError,
    CaptureRunningError,
    CaptureSetupError,
    NotADatabaseError,
    OutcomeUnknownError,
    SchemaVersionError,
    SlotLostError,
    SourceUnavailableError,
    SparkDiedError,
    StoreError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_DISCOVERY_SECONDS: Final = 15.0
"""How often the publication is checked for tables that were added or removed."""
_HEED_SECONDS: Final = 3.0
"""How often the lake is checked for requests while nothing is captured; after each batch it is checked anyway."""
_BACKLOG_BATCHES: Final = 2
_COPY_ROUNDS: Final = 20
_MOST_RECOPIES: Final = 3
_RECOPY_SECONDS: Final = 3600.0
"""A stopped table is copied again by policy at most _MOST_RECOPIES times within this time."""
_LONGEST_WAIT_SECONDS: Final = 30.0
_OWN_LOCK_SECONDS: Final = 120.0
"""How long the server may take to notice a broken connection and to release our own lock."""
# Retried: the source or the catalog does not answer, or a new copy was requested.
_PASSING: Final = (SourceUnavailableError, StoreError, OutcomeUnknownError, CaptureChangedError, StreamEndedError)
_BY_JOBS_SECONDS: Final = 60.0
"""How long the log is followed by plain jobs after Spark gave up a query."""
_FINAL: Final = (SchemaVersionError, NotADatabaseError)


class Runner:
    """Runs one capture with one Spark session until `stop` is set; the batch in flight ends first."""

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
        self._is_slot_close = False
        self._by_jobs_until = 0.0
        """No query is started before this time, because Spark has just given one up."""
        self._told_tables: Mapping[str, CapturedTable] = {}
        self._look_at = self._began + _DISCOVERY_SECONDS
        self._looked: tuple[str, Mapping[str, CapturedTable]] | None = None
        """The mark of the source's catalog, and our tables, at the last check that found nothing to do."""
        self._recopied: dict[str, list[float]] = {}
        """When stopped tables were copied again by policy."""
        self._moved: set[str] = set()
        """Tables that were changed during a copy while the stream waited: they are copied beside it."""

    def run(self, *, once: bool = False) -> CaptureReport:
        """Capture until asked to stop; with `once`, only what the source had committed at the start."""
        register(self._spark)
        while not self._stop.is_set():
            try:
                self._run_connected(once)
                break
            except StopRequested:
                break
            except Exception as error:  # the death of Java shows in many ways; other errors are raised below
                died = how_java_ended(error)
                if died is not None and self._stop.is_set():  # the signal that ended this process has ended Java too
                    break
                if died is not None:
                    record_failure(self._settings.slot, error)
                    raise SparkDiedError(f"{died}; what was not committed is captured again") from error
                if not isinstance(error, (*_PASSING, CaptureRunningError, SlotLostError)):
                    raise
                if not isinstance(error, CaptureChangedError):  # a request of a user is not a failure
                    record_failure(self._settings.slot, error)
                if once or not self._is_passing(error):
                    raise
                self._wait(error)
        return self._report()

    def _run_connected(self, once: bool) -> None:
        settings, catalog = self._settings, self._catalog
        with RunnerPresence(settings.source, settings.slot) as presence, closing(connect(settings.source)) as conn:
            self._presence = presence
            if self._has_worked:  # the choice may have been changed since then
                stored = load_capture(catalog, settings)
                self._settings = settings = settings if stored is None else settings.with_choice(stored.choice)
            capture = self._open(conn)
            self._has_worked, self._failures, self._failing_since = True, 0, None
            target = written_lsn(conn)
            self._capture = capture = add_tables(catalog, conn, capture, settings)
            self._tell_what_is_missing(conn, capture)
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
                follower.use_copies(*resume_copies(catalog, capture))
                if once:
                    self._run_to(follower, target)
                    return
                with SideCopier(self._spark.sparkContext, catalog, settings, self._progress) as copier:
                    while not self._should_stop():
                        self._copy_pending(follower)
                        self._copy_beside(follower, copier)
                        if follower.copies or _pending(follower.capture):  # a copy starts again
                            continue
                        self._catch_up(follower)
                        # A query takes seconds to start, on a busy machine a minute: not with outdated tables.
                        follower.heed_requests()
                        if self._should_stop() or _pending(follower.capture):
                            continue
                        if time.monotonic() < self._by_jobs_until:
                            self._stream_by_jobs(follower)
                        else:
                            self._stream(follower)
            finally:
                self._capture = follower.capture

    def _run_to(self, follower: ChangeFollower, target: int) -> None:
        """Capture everything before `target`, and changes of the tables themselves."""
        while True:
            self._copy_all(follower)
            follower.drain(target)
            self._settle(follower, look_for_changes(follower.conn, follower.capture, self._settings))
            follower.use(stop_departed(self._catalog, follower.conn, follower.capture, self._settings))
            published = look_at_publication(follower.conn, self._settings, follower.capture).sources
            if not self._copy_stopped(follower, published):
                return

    def _open(self, conn: Connection) -> Capture:
        try:
            return open_capture(self._catalog, conn, self._settings)
        except SlotLostError as error:
            if self._settings.resnapshot != "slot":
                raise
            _log.warning("%s; every table is copied anew", error)
            request_resnapshot(self._catalog, self._settings)
            return open_capture(self._catalog, conn, self._settings)

    def _tell_what_is_missing(self, conn: Connection, capture: Capture) -> None:
        """Log a warning at the start for each published table that is not captured."""
        coverage = look_at_coverage(conn, self._settings.publication)
        if coverage is None:
            return
        if not capture.tables and coverage.tables:
            _log.warning("the settings choose none of the tables of the publication %s", coverage.quoted)
        elif not capture.tables:
            _log.warning("%s", empty_publication(coverage.quoted))
        for source, reason in coverage.left_out.items():
            _log.warning("%s is not captured: %s", source, reason)

    # -- copying

    def _copy_stopped(self, follower: ChangeFollower, published: frozenset[str]) -> bool:
        """Mark stopped tables for a new copy if the policy says so; returns whether there are any.

        A table that stops again and again is not copied again.
        """
        if self._settings.resnapshot == "never":
            return False
        recopied = []
        for table in follower.capture.tables.values():
            if table.stage != "stopped" or table.source not in published:
                continue
            since = time.monotonic() - _RECOPY_SECONDS
            recent = [copied_at for copied_at in self._recopied.get(table.source, ()) if copied_at >= since]
            if len(recent) < _MOST_RECOPIES:
                self._recopied[table.source] = [*recent, time.monotonic()]
                _log.warning("%s is copied anew: %s", table.source, table.reason)
                recopied.append(replace(table, stage="pending", reason=None, stopped_lsn=None))
        if recopied:
            message = f"new copies of {', '.join(table.source for table in recopied)}"
            follower.use(commit_tables(self._catalog, follower.capture, recopied, message))
        return bool(recopied)

    def _copy_all(self, follower: ChangeFollower) -> None:
        """Copy all waiting tables to the end, starting again if a table is changed during its copy."""
        with SideCopier(self._spark.sparkContext, self._catalog, self._settings, self._progress) as copier:
            for _ in range(_COPY_ROUNDS):
                self._copy_pending(follower)
                self._tally.copied += copier.finish(follower, self._end_if_asked)
                if not _pending(follower.capture):
                    return
        waiting = ", ".join(_pending(follower.capture))
        raise CaptureError(f"the copy of {waiting} was begun {_COPY_ROUNDS} times, and each time somebody changed it")

    def _copy_pending(self, follower: ChangeFollower) -> None:
        """Copy small tables while the stream waits, and begin to copy the others beside it."""
        pending = _pending(follower.capture)
        if not pending:
            return
        self._end_if_asked()
        small = set(pending) - self._moved
        small = choose_small(follower.conn, follower.capture, small, self._settings.copy_beside_bytes)
        if small:
            self._copy_small(follower, small)
        self._moved = small & set(_pending(follower.capture))
        waiting = _pending(follower.capture)
        if waiting:
            begun, copies = begin_copies(self._catalog, follower.conn, follower.capture, self._settings, waiting)
            follower.use_copies(begun, {**follower.copies, **copies})

    def _copy_beside(self, follower: ChangeFollower, copier: SideCopier) -> None:
        """Follow the log while tables are copied beside it, until all are published or others wait for a copy.

        It uses jobs, not a query of Spark's, which would have to be restarted with each new table and takes seconds to
        start.
        """
        batch_at = 0.0
        while follower.copies and not _pending(follower.capture) and not self._should_stop():
            self._tally.copied += copier.work(follower)
            batch_at = self._follow_by_jobs(follower, batch_at)

    def _follow_by_jobs(self, follower: ChangeFollower, batch_at: float) -> float:
        """Capture a batch if one is due, and check the tables if that is due; returns when the next batch is due."""
        self._measure(follower)
        if time.monotonic() >= batch_at:
            # Only some batches at a time, so that the next parts of a copy are read in between.
            limit = follower.at + _BACKLOG_BATCHES * self._settings.batch_bytes
            follower.drain(min(flush_lsn(follower.conn), limit))
            follower.heed_requests()
            batch_at = time.monotonic() + self._settings.batch_seconds
        if time.monotonic() >= self._look_at:
            departed, unseen = self._look(follower)
            self._look_at_slot(follower)
            self._look_at = time.monotonic() + _DISCOVERY_SECONDS
            self._take_in(follower, departed, unseen)
        time.sleep(_POLL_SECONDS)
        return batch_at

    def _copy_small(self, follower: ChangeFollower, small: set[str]) -> None:

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
            only=small,
        )
        follower.use(copied)
        self._tally.copied += [source for source in sorted(small) if copied.tables[source].stage == "streaming"]

    # -- streaming

    def _catch_up(self, follower: ChangeFollower) -> None:
        """Capture a backlog with jobs, which read ahead of the commits; a query of Spark's does not."""
        flushed = flush_lsn(follower.conn)
        if flushed - follower.at > _BACKLOG_BATCHES * self._settings.batch_bytes:
            follower.drain(flushed)

    def _stream_by_jobs(self, follower: ChangeFollower) -> None:
        """Follow the log by jobs until a query may be started again or tables wait for a copy."""
        batch_at = 0.0
        while time.monotonic() < self._by_jobs_until and not _pending(follower.capture) and not self._should_stop():
            batch_at = self._follow_by_jobs(follower, batch_at)

    def _stream(self, follower: ChangeFollower) -> None:
        """Stream until asked to stop, or until the tables differ from those the query was started with."""
        departed, unseen, heed_at = False, None, time.monotonic() + _HEED_SECONDS
        with ChangeStream(follower) as stream:
            while not self._should_stop() and not follower.tables_changed:
                stream.check()
                self._measure(follower)
                if follower.lock.acquire(blocking=False):
                    try:
                        follower.note_if_due()
                        if time.monotonic() >= heed_at:
                            follower.heed_requests()
                            heed_at = time.monotonic() + _HEED_SECONDS
                        if time.monotonic() >= self._look_at:
                            departed, unseen = self._look(follower)
                            self._look_at_slot(follower)
                            self._look_at = time.monotonic() + _DISCOVERY_SECONDS
                    finally:
                        follower.lock.release()
                if departed or unseen:
                    break
                time.sleep(_POLL_SECONDS)
        stream.check()
        self._take_in(follower, departed, unseen)

    def _take_in(self, follower: ChangeFollower, departed: bool, unseen: Unseen | None) -> None:
        if unseen:
            self._settle(follower, unseen)
        if departed:
            follower.drain(flush_lsn(follower.conn))
            follower.use(stop_departed(self._catalog, follower.conn, follower.capture, self._settings))

    def _settle(self, follower: ChangeFollower, unseen: Unseen) -> None:
        """Apply changes of columns that no row in the log reported."""
        if unseen:
            follower.drain(unseen.lsn)
            follower.use(settle_changes(self._catalog, follower.conn, follower.capture, self._settings, unseen))

    def _look(self, follower: ChangeFollower) -> tuple[bool, Unseen | None]:
        """Add new tables; returns whether tables have left, and which columns changed without a message.

        Checking each table costs a query or two, so it is done only if the source's catalog or our tables have changed.
        """
        observed = (catalog_mark(follower.conn), follower.capture.tables)
        if self._looked is not None and observed[0] == self._looked[0] and observed[1] is self._looked[1]:
            return False, None
        departed = self._look_at_publication(follower)
        unseen = look_for_changes(follower.conn, follower.capture, self._settings)
        is_quiet = not departed and not unseen and follower.capture.tables is observed[1]
        self._looked = observed if is_quiet else None
        return departed, unseen

    def _look_at_publication(self, follower: ChangeFollower) -> bool:
        """Add new tables of the publication; returns whether tables have left it."""
        try:
            follower.use(add_tables(self._catalog, follower.conn, follower.capture, self._settings))
            published = look_at_publication(follower.conn, self._settings, follower.capture).sources
        except CaptureSetupError as error:
            # A table that the settings name is missing: the others continue, and the next start refuses.
            if str(error) != self._warned:
                self._warned = str(error)
                _log.warning("%s", error)
            return False
        self._copy_stopped(follower, published)
        tables = follower.capture.tables.values()
        return any(table.stage != "stopped" and table.source not in published for table in tables)

    def _look_at_slot(self, follower: ChangeFollower) -> None:
        """Record the state of the slot in the metrics; log a warning if it is close to being lost."""
        slot = find_slot(follower.conn, self._settings.slot)
        if slot is None or slot.is_lost:  # the next batch reports it
            return
        record_slot(slot, flush_lsn(follower.conn))
        if is_close_to_limit(slot) and not self._is_slot_close:
            remaining = (
                "" if slot.safe_wal_size is None else f", {slot.safe_wal_size >> 20} MB of log before it is lost"
            )
            _log.warning("the slot %s is close to its end (%s%s)", slot.name, slot.wal_status, remaining)
        self._is_slot_close = is_close_to_limit(slot)

    def _measure(self, follower: ChangeFollower) -> None:
        """Record the lag in the metrics, also while a batch is running."""
        if follower.capture.tables is not self._told_tables:
            self._told_tables = follower.capture.tables
            record_tables(follower.capture)
        if self._lag.is_due() and self._presence is not None:
            flushed = self._presence.flushed_lsn()
            if flushed is not None:
                self._lag.record(flushed_lsn=flushed, lsn=follower.at)

    # -- stopping and retrying

    def _should_stop(self) -> bool:
        if not self._stop.is_set() and self._presence is not None and self._presence.should_stop():
            self._stop.set()
        return self._stop.is_set()

    def _end_if_asked(self) -> None:
        if self._should_stop():
            raise StopRequested

    def _is_passing(self, error: BaseException) -> bool:
        """Whether to try again. A failure before the first success is a wrong set-up."""
        if not self._has_worked or isinstance(error, _FINAL):
            return False
        if isinstance(error, SlotLostError) and self._settings.resnapshot != "slot":
            return False
        if isinstance(error, StreamEndedError):
            # A query needs a new Python worker, which Spark waits for at most ten seconds. Jobs have theirs already; if
            # Spark cannot run jobs either, they raise an error.
            self._by_jobs_until = time.monotonic() + _BY_JOBS_SECONDS
            return True
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return not isinstance(error, CaptureRunningError) or now - self._failing_since < _OWN_LOCK_SECONDS

    def _wait(self, error: BaseException) -> None:
        seconds = min(_LONGEST_WAIT_SECONDS, 0.5 * 2**self._failures) * random.uniform(0.7, 1.0)
        self._failures = min(self._failures + 1, 16)
        level = logging.INFO if isinstance(error, CaptureChangedError) else logging.WARNING
        _log.log(level, "%s; trying again in %.1f s", error, seconds)
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


def _pending(capture: Capture) -> list[str]:
    """The tables that wait for a copy, sorted."""
    return sorted(table.source for table in capture.tables.values() if table.stage == "pending")
