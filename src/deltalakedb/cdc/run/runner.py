"""The runner of a capture: runs it from its start until it is stopped, and reconnects after lost connections."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.control import Capture, CaptureChangedError, load_capture
from deltalakedb.cdc.copy.copying import Progress, copy_tables
from deltalakedb.cdc.copy.incremental import SideCopier, begin_copies, choose_small, resume_copies
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.run.following import ChangeFollower, StopRequested, Tally
from deltalakedb.cdc.run.opening import add_tables, open_capture, stop_departed
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.run.report import BatchDone, CaptureReport, LagMeter, record_failure, record_tables
from deltalakedb.cdc.run.sessions import how_java_ended
from deltalakedb.cdc.run.status import empty_publication
from deltalakedb.cdc.run.streaming import ChangeStream, StreamEndedError
from deltalakedb.cdc.run.watch import (
    NO_DIFFERENCES,
    Differences,
    SourceWatch,
    Unseen,
    apply_unseen_changes,
    look_for_changes,
    written_lsn,
)
from deltalakedb.cdc.source.data_source import register
from deltalakedb.cdc.source.postgres import Connection, connect, flush_lsn
from deltalakedb.cdc.source.publication import look_at_coverage, look_at_publication
from deltalakedb.exceptions import (
    CaptureError,
    CaptureRunningError,
    NotADatabaseError,
    OutcomeUnknownError,
    SchemaVersionError,
    SlotLostError,
    SourceUnavailableError,
    SparkDiedError,
    StoreError,
)
from deltalakedb.runtime.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.settings import CaptureSettings

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 3.0
"""How often the lake is checked for requests while nothing is captured; after each batch it is checked anyway."""
_BACKLOG_BATCHES: Final = 2
_COPY_ROUNDS: Final = 20
_RETRIES: Final = Backoff(0.5, 30.0, 0.7)
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
        self._watch = SourceWatch(catalog)
        self._by_jobs_until = 0.0
        """No query is started before this time, because Spark has just given one up."""
        self._measured_tables: Mapping[str, CapturedTable] = {}
        """The tables that are in the metrics."""
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
            self._warn_of_missing_tables(conn, capture)
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
                        if follower.copies or follower.capture.pending:  # a copy starts again
                            continue
                        self._catch_up(follower)
                        # A query takes seconds to start, on a busy machine a minute: not with outdated tables.
                        follower.check_requests()
                        if self._should_stop() or follower.capture.pending:
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
            self._apply_unseen(follower, look_for_changes(follower.conn, follower.capture, self._settings))
            follower.use(stop_departed(self._catalog, follower.conn, follower.capture, self._settings))
            published = look_at_publication(follower.conn, self._settings, follower.capture).sources
            if not self._watch.copy_stopped(follower, self._settings, published):
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

    def _warn_of_missing_tables(self, conn: Connection, capture: Capture) -> None:
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

    def _copy_all(self, follower: ChangeFollower) -> None:
        """Copy all waiting tables to the end, starting again if a table is changed during its copy."""
        with SideCopier(self._spark.sparkContext, self._catalog, self._settings, self._progress) as copier:
            for _ in range(_COPY_ROUNDS):
                self._copy_pending(follower)
                self._tally.copied += copier.finish(follower, self._end_if_asked)
                if not follower.capture.pending:
                    return
        waiting = ", ".join(follower.capture.pending)
        raise CaptureError(f"the copy of {waiting} was begun {_COPY_ROUNDS} times, and each time somebody changed it")

    def _copy_pending(self, follower: ChangeFollower) -> None:
        """Copy small tables while the stream waits, and begin to copy the others beside it."""
        pending = follower.capture.pending
        if not pending:
            return
        self._end_if_asked()
        small = set(pending) - self._moved
        small = choose_small(follower.conn, follower.capture, small, self._settings.copy_beside_bytes)
        if small:
            self._copy_small(follower, small)
        self._moved = small & set(follower.capture.pending)
        waiting = follower.capture.pending
        if waiting:
            begun, copies = begin_copies(self._catalog, follower.conn, follower.capture, self._settings, waiting)
            follower.use_copies(begun, {**follower.copies, **copies})

    def _copy_beside(self, follower: ChangeFollower, copier: SideCopier) -> None:
        """Follow the log while tables are copied beside it, until all are published or others wait for a copy.

        It uses jobs, not a query of Spark's, which would have to be restarted with each new table and takes seconds to
        start.
        """
        batch_at = 0.0
        while follower.copies and not follower.capture.pending and not self._should_stop():
            self._tally.copied += copier.work(follower)
            batch_at = self._follow_by_jobs(follower, batch_at)

    def _follow_by_jobs(self, follower: ChangeFollower, batch_at: float) -> float:
        """Capture a batch if one is due, and check the tables if that is due; returns when the next batch is due."""
        self._measure(follower)
        if time.monotonic() >= batch_at:
            # Only some batches at a time, so that the next parts of a copy are read in between.
            limit = follower.at + _BACKLOG_BATCHES * self._settings.batch_bytes
            follower.drain(min(flush_lsn(follower.conn), limit))
            follower.check_requests()
            batch_at = time.monotonic() + self._settings.batch_seconds
        if self._watch.is_due():
            self._apply_differences(follower, self._watch.look(follower, self._settings))
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
        while time.monotonic() < self._by_jobs_until and not follower.capture.pending and not self._should_stop():
            batch_at = self._follow_by_jobs(follower, batch_at)

    def _stream(self, follower: ChangeFollower) -> None:
        """Stream until asked to stop, or until the tables differ from those the query was started with."""
        differences, requests_at = NO_DIFFERENCES, time.monotonic() + _REQUEST_SECONDS
        with ChangeStream(follower) as stream:
            while not self._should_stop() and not follower.tables_changed:
                stream.check()
                self._measure(follower)
                if follower.lock.acquire(blocking=False):
                    try:
                        follower.note_if_due()
                        if time.monotonic() >= requests_at:
                            follower.check_requests()
                            requests_at = time.monotonic() + _REQUEST_SECONDS
                        if self._watch.is_due():
                            differences = self._watch.look(follower, self._settings)
                    finally:
                        follower.lock.release()
                if differences:
                    break
                time.sleep(_POLL_SECONDS)
        stream.check()
        self._apply_differences(follower, differences)

    def _apply_differences(self, follower: ChangeFollower, differences: Differences) -> None:
        if differences.unseen:
            self._apply_unseen(follower, differences.unseen)
        if differences.departed:
            follower.drain(flush_lsn(follower.conn))
            follower.use(stop_departed(self._catalog, follower.conn, follower.capture, self._settings))

    def _apply_unseen(self, follower: ChangeFollower, unseen: Unseen) -> None:
        """Apply changes of columns that no row in the log reported."""
        if unseen:
            follower.drain(unseen.lsn)
            follower.use(apply_unseen_changes(self._catalog, follower.conn, follower.capture, self._settings, unseen))

    def _measure(self, follower: ChangeFollower) -> None:
        """Record the lag in the metrics, also while a batch is running."""
        if follower.capture.tables is not self._measured_tables:
            self._measured_tables = follower.capture.tables
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
        seconds = _RETRIES.seconds(self._failures)
        self._failures += 1
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
