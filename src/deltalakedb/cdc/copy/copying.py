"""Copies of tables while the stream waits: all at one snapshot, by Spark tasks, each committed when it is complete."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from deltalakedb.cdc.apply.batches import commit_progress, commit_until_won
from deltalakedb.cdc.apply.landing import Landing, commit_landing, prepare_landing
from deltalakedb.cdc.captured_table import OWN_TROUBLE, CapturedTable
from deltalakedb.cdc.control import Capture
from deltalakedb.cdc.copy.copy_task import CopyResult, CopyTask, run_task
from deltalakedb.cdc.evolve.evolution import stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.sessions import copy_failed
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.copy_plan import CopyPlan, SourceMoved, plan_copy, session_at
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.publication import Publication, look_at_publication
from deltalakedb.cdc.source.slots import advance_slot, exported_snapshot
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    InvalidCommitError,
    OutcomeUnknownError,
    SourceUnavailableError,
)
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.steps import reached

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.log.protocol.actions import AddFile

_log = logging.getLogger(__name__)

_SNAPSHOTS: Final = 10
"""After this many snapshots a table that keeps changing is stopped."""
_SNAPSHOT_RETRIES: Final = Backoff(0.1, 1.0)
_TASK_ATTEMPTS: Final = 3
_TASK_RETRIES: Final = Backoff(0.5, 2.0)
_CHECK_SECONDS: Final = 0.5


class Progress(Protocol):
    """Receives the progress of a copy; called from one thread."""

    def table_begins(self, source: str, rows: int, tasks: int) -> None:
        """A table will be copied, of about this many rows (the source's estimate) and by this many tasks."""

    def task_ended(self, source: str, rows: int) -> None:
        """A task has copied exactly this many rows."""

    def table_ended(self, source: str, rows: int) -> None:
        """The table is committed, with this many rows."""


def copy_tables(
    spark: SparkSession,
    catalog: Catalog,
    capture: Capture,
    settings: CaptureSettings,
    *,
    drain: Callable[[Capture, int], Capture],
    progress: Progress | None = None,
    check: Callable[[], None] | None = None,
    only: Collection[str] | None = None,
) -> Capture:
    """Copy the tables that wait for it while the stream stands still; then all tables are at one LSN.

    With `only`, copy only these of them; one that is changed during its copy goes on waiting. `drain` brings the tables
    that follow the stream to exactly the snapshot's LSN. `check` is called all the while, and may raise to interrupt
    the copy. What was committed of an interrupted copy stays; the rest waits for another snapshot.
    """
    attempts: Counter[str] = Counter()
    while _pending(capture, only):
        copier = _Copier(spark.sparkContext, catalog, capture, settings, drain, progress, check, only)
        copier.copy()
        capture = copier.capture
        if not copier.moved or only is not None:
            break
        attempts.update(copier.moved.keys())
        for source, why in copier.moved.items():
            _log.info("%s: another snapshot is taken: %s", capture.slot, why)
            if attempts[source] == _SNAPSHOTS:
                reason = f"its copy was begun {_SNAPSHOTS} times, and each time somebody changed it meanwhile ({why})"
                capture = stop_table(catalog, capture, source, reason, capture.lsn)
        _SNAPSHOT_RETRIES.sleep(max(attempts.values()) - 1)
    return capture


def _pending(capture: Capture, only: Collection[str] | None) -> set[str]:
    return {source for source in capture.pending if only is None or source in only}


@dataclass(slots=True)
class _Copier:
    """Copies the waiting tables at one snapshot."""

    context: SparkContext
    catalog: Catalog
    capture: Capture
    settings: CaptureSettings
    drain: Callable[[Capture, int], Capture]
    progress: Progress | None
    check: Callable[[], None] | None
    only: Collection[str] | None = None
    snapshot: str = ""
    landings: dict[str, Landing] = field(default_factory=dict)
    adds: dict[str, list[AddFile]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """Unfinished tasks by table; a table that is done or given up is not in it."""
    moved: dict[str, str] = field(default_factory=dict)
    """Why a table needs another snapshot, by source table."""
    is_cut: bool = False
    group: str = field(default_factory=lambda: f"deltalakedb-copy-{uuid.uuid4()}")

    def copy(self) -> None:
        tasks = self.settings.parallelism or self.context.defaultParallelism
        self._catch_up()
        with exported_snapshot(self.settings.source, self.check) as (self.snapshot, lsn):
            plans = self._plan(tasks)
            if not plans:
                return
            self._bring_to(lsn)
            reached("cdc.snapshot")
            self._run([plan for plan in plans if self._prepare(plan)], tasks)

    def _prepare(self, plan: CopyPlan) -> bool:
        """Plan the table in the lake; if that fails, stop this table only and return False."""
        source = plan.table.source
        try:
            self.landings[source] = prepare_landing(self.catalog, plan.table, self.settings)
        except CaptureSetupError as error:
            self._stop(source, str(error))
            return False
        return True

    def _stop(self, source: str, reason: str) -> None:
        self.capture = stop_table(self.catalog, self.capture, source, reason, self.capture.lsn)

    @property
    def _follows(self) -> bool:
        """Whether tables follow the stream."""
        return bool(self.capture.streaming or self.capture.copying)

    def _catch_up(self) -> None:
        """Capture most of a long backlog before the snapshot exists, which keeps the source from cleaning up."""
        if self._follows:
            with connect(self.settings.source) as conn:
                end = flush_lsn(conn)
            if end - self.capture.lsn > self.settings.batch_bytes:
                self.capture = self.drain(self.capture, end)

    def _plan(self, tasks: int) -> list[CopyPlan]:
        plans = []
        with session_at(self.settings.source, self.snapshot) as conn:
            for table in self._waiting(look_at_publication(conn, self.settings, self.capture)):
                try:
                    with conn.transaction():
                        plans.append(plan_copy(conn, table, self.settings.publication, tasks))
                except SourceMoved as moved:
                    self.moved[table.source] = str(moved)
                except CaptureSetupError as error:
                    self._stop(table.source, str(error))
        return plans

    def _waiting(self, published: Publication) -> Iterator[CapturedTable]:
        """The tables to copy with their columns in the snapshot; they keep their names in the lake."""
        pending, published_tables = (
            _pending(self.capture, self.only),
            {table.source: table for table in published.tables},
        )
        for source in sorted(pending):
            captured = self.capture.tables[source]
            if source in published_tables:
                yield replace(published_tables[source], current=captured.current, changes=captured.changes)
                continue
            self._stop(source, published.why_not(source, self.settings))

    def _bring_to(self, lsn: int) -> None:
        """Capture everything before `lsn`."""
        if self._follows:
            self.capture = self.drain(self.capture, lsn)
            if self.capture.lsn != lsn:
                current = format_lsn(self.capture.lsn)
                raise CaptureError(f"the capture {self.capture.slot} is at {current}, not at {format_lsn(lsn)}")
            return
        self.capture = commit_progress(self.catalog, self.capture, lsn)
        with connect(self.settings.source) as conn:
            advance_slot(conn, self.capture.slot, lsn)

    def _run(self, plans: Sequence[CopyPlan], tasks: int) -> None:
        with ExitStack() as stack:
            stack.callback(self._clean)
            pool = stack.enter_context(self._pool(tasks))
            ended: SimpleQueue[Future[CopyResult]] = SimpleQueue()
            for plan in plans:
                source = plan.table.source
                self.adds[source], self.rows[source], self.left[source] = [], 0, len(plan.tasks)
                if self.progress is not None:
                    self.progress.table_begins(source, plan.rows, len(plan.tasks))
                if not plan.tasks:  # a partitioned table without partitions
                    self._commit(source)
                for ranges in plan.tasks:
                    task = CopyTask.of(self.landings[source], self.settings, ranges, snapshot=self.snapshot)
                    pool.submit(self._run_task, task).add_done_callback(ended.put)
            missing = sum(len(plan.tasks) for plan in plans)
            while missing:
                if self.check is not None:
                    self.check()
                with suppress(Empty):
                    result = ended.get(timeout=_CHECK_SECONDS).result()
                    missing -= 1
                    self._take(result)

    @contextmanager
    def _pool(self, tasks: int) -> Iterator[ThreadPoolExecutor]:
        """A pool that runs each task as a job, so that its end is known at once and no table waits for another."""
        pool = ThreadPoolExecutor(tasks, thread_name_prefix="deltalakedb-copy")
        try:
            yield pool
        except BaseException:
            self.is_cut = True
            pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):  # a dead Spark has no jobs
                self.context.cancelJobGroup(self.group)
            raise
        finally:
            pool.shutdown()

    def _run_task(self, task: CopyTask) -> CopyResult:
        """Run a task, and repeat it if only its own connection broke: the snapshot may still exist."""
        result = CopyResult(task.source)
        for attempt in range(_TASK_ATTEMPTS):
            if task.source not in self.left or self.is_cut:  # the result is no longer needed
                break
            result = self._run_job(task)
            if not isinstance(result.failure, SourceUnavailableError):
                break
            _TASK_RETRIES.sleep(attempt)
        return result

    def _run_job(self, task: CopyTask) -> CopyResult:
        self.context.setJobGroup(self.group, f"copy of {task.source}", interruptOnCancel=True)
        try:
            return self.context.parallelize([task], 1).map(run_task).collect()[0]
        except Exception as error:  # Py4J's, PySpark's and what a worker could not send: none of them is for users
            raise copy_failed(task.source, error) from error

    def _take(self, result: CopyResult) -> None:
        source = result.source
        if source not in self.left:
            return
        if result.moved is not None:
            self.moved[source] = result.moved
            del self.left[source]
            return
        if isinstance(result.failure, OWN_TROUBLE):
            self._stop(source, str(result.failure))
            del self.left[source]
            return
        if result.failure is not None:
            raise result.failure
        self.adds[source] += result.adds
        self.rows[source] += result.rows
        self.left[source] -= 1
        if self.progress is not None:
            self.progress.task_ended(source, result.rows)
        if not self.left[source]:
            self._commit(source)

    def _commit(self, source: str) -> None:
        commit = partial(
            commit_landing, self.catalog, self.capture, self.landings[source], self.adds[source], self.settings
        )
        try:
            self.capture = commit_until_won(commit, f"the copy of {source}")
        except OutcomeUnknownError:
            del self.landings[source]  # its files may be part of a version
            raise
        except InvalidCommitError as error:  # the trouble is in this table alone
            self._stop(source, f"the lake does not take its copy: {error}")
            del self.left[source]
            return
        del self.left[source], self.landings[source]
        lsn = format_lsn(self.capture.lsn)
        _log.info("%s: %s is copied, %d rows, at %s", self.capture.slot, source, self.rows[source], lsn)
        if self.progress is not None:
            self.progress.table_ended(source, self.rows[source])

    def _clean(self) -> None:
        """Remove the files of copies that were not committed."""
        for landing in self.landings.values():
            if landing.job is not None:
                landing.job.clean()
