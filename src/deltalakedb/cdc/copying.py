"""The copy of tables: all that wait for one, at one snapshot, by Spark tasks; each is committed when it is whole."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from deltalakedb.cdc.batches import commit_progress, commit_until_won
from deltalakedb.cdc.control import Capture
from deltalakedb.cdc.copy_task import CopyResult, CopyTask, run_task
from deltalakedb.cdc.evolution import stop_table
from deltalakedb.cdc.landing import Landing, commit_landing, prepare_landing
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.publication import Publication, look_at_publication
from deltalakedb.cdc.server import connect, flush_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.slots import advance_slot, exported_snapshot
from deltalakedb.cdc.snapshot import CopyPlan, PageRange, SourceMoved, plan_copy, session_at
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.exceptions import (
    CaptureError,
    OutcomeUnknownError,
    SourceUnavailableError,
    ValueNotHeld,
    redact,
)
from deltalakedb.steps import reached

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog
    from deltalakedb.log.actions import AddFile

_log = logging.getLogger(__name__)

_SNAPSHOTS: Final = 10
"""So many bring nothing, and it is given up."""
_TASK_ATTEMPTS: Final = 3
_CHECK_SECONDS: Final = 0.5


class Progress(Protocol):
    """Who wants to know how far a copy is; called from one thread."""

    def table_begins(self, source: str, rows: int, tasks: int) -> None:
        """A table of about so many rows (the source's own estimate) will be copied by so many tasks."""

    def task_ended(self, source: str, rows: int) -> None:
        """A task has copied exactly so many rows."""

    def table_ended(self, source: str, rows: int) -> None:
        """The table is committed, with so many rows."""


def copy_tables(
    spark: SparkSession,
    catalog: Catalog,
    capture: Capture,
    settings: CaptureSettings,
    *,
    drain: Callable[[Capture, int], Capture],
    progress: Progress | None = None,
    check: Callable[[], None] | None = None,
) -> Capture:
    """Copy every table that waits for it. The stream stands still meanwhile, and then all tables are at one LSN.

    `drain` brings the tables that follow the stream to the snapshot's LSN, exactly. `check` is called all the while,
    and may raise to cut the copy. What was committed of a copy that was cut stays; the rest waits for another snapshot.
    """
    attempt = 0
    while waiting := _pending(capture):
        copier = _Copier(spark.sparkContext, catalog, capture, settings, drain, progress, check)
        copier.copy()
        capture = copier.capture
        if not copier.moved:
            break
        attempt = attempt + 1 if _pending(capture) == waiting else 1
        told = "; ".join(copier.moved)
        if attempt == _SNAPSHOTS:
            raise CaptureError(
                f"the copy was begun {attempt} times, and each time somebody changed a table under it ({told}): start "
                "the capture again when nobody truncates or alters these tables"
            )
        _log.info("%s: another snapshot is taken: %s", capture.slot, told)
        time.sleep(0.1 * attempt)
    return capture


def _pending(capture: Capture) -> set[str]:
    return {source for source, table in capture.tables.items() if table.stage == "pending"}


@dataclass(slots=True)
class _Copier:
    """The copy of what waits for it at one snapshot."""

    context: SparkContext
    catalog: Catalog
    capture: Capture
    settings: CaptureSettings
    drain: Callable[[Capture, int], Capture]
    progress: Progress | None
    check: Callable[[], None] | None
    snapshot: str = ""
    landings: dict[str, Landing] = field(default_factory=dict)
    adds: dict[str, list[AddFile]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """Tasks that a table still waits for; a table that is done with is not in it."""
    moved: list[str] = field(default_factory=list)
    """Why a table needs another snapshot."""
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
            self.landings = {
                plan.table.source: prepare_landing(self.catalog, plan.table, self.settings) for plan in plans
            }
            self._run(plans, tasks)

    def _catch_up(self) -> None:
        """Bring in most of a long backlog before there is a snapshot, which keeps the source from cleaning up."""
        if self.capture.streaming:
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
                    self.moved.append(str(moved))
        return plans

    def _waiting(self, published: Publication) -> Iterator[CapturedTable]:
        """The tables to copy with the columns they have in the snapshot; in the lake they keep the names they have."""
        pending, found = _pending(self.capture), {table.source: table for table in published.tables}
        for source in sorted(pending):
            known = self.capture.tables[source]
            if source in found:
                yield replace(found[source], current=known.current, changes=known.changes)
                continue
            reason = published.why_not(source, self.settings)
            self.capture = stop_table(self.catalog, self.capture, source, reason, self.capture.lsn)

    def _bring_to(self, lsn: int) -> None:
        """Everything before `lsn` comes into the lake first."""
        if self.capture.streaming:
            self.capture = self.drain(self.capture, lsn)
            if self.capture.lsn != lsn:
                at = format_lsn(self.capture.lsn)
                raise CaptureError(f"the capture {self.capture.slot} is at {at}, not at {format_lsn(lsn)}")
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
                for one in plan.tasks:
                    pool.submit(self._run_task, self._task(plan, one)).add_done_callback(ended.put)
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
        """Each task is a job of its own: then its end is known at once, and a table need not wait for another one."""
        pool = ThreadPoolExecutor(tasks, thread_name_prefix="deltalakedb-copy")
        try:
            yield pool
        except BaseException:
            self.is_cut = True
            pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):  # a Spark that is gone has no jobs
                self.context.cancelJobGroup(self.group)
            raise
        finally:
            pool.shutdown()

    def _task(self, plan: CopyPlan, ranges: tuple[PageRange, ...]) -> CopyTask:
        landing = self.landings[plan.table.source]
        return CopyTask(
            dsn=self.settings.source,
            snapshot=self.snapshot,
            table=plan.table,
            ranges=ranges,
            location=landing.location,
            options=landing.options,
            schema=landing.metadata.schema_string,
            partition_columns=tuple(landing.metadata.partition_columns),
            configuration=dict(landing.metadata.configuration),
            folder=landing.job.folder,
        )

    def _run_task(self, task: CopyTask) -> CopyResult:
        """Run a task, and again when only its own connection broke: the snapshot may still be there."""
        result = CopyResult(task.source)
        for attempt in range(1, _TASK_ATTEMPTS + 1):
            if task.source not in self.left or self.is_cut:  # nobody wants it any more
                break
            result = self._run_job(task)
            if not isinstance(result.failure, SourceUnavailableError):
                break
            time.sleep(0.5 * attempt)
        return result

    def _run_job(self, task: CopyTask) -> CopyResult:
        self.context.setJobGroup(self.group, f"copy of {task.source}", interruptOnCancel=True)
        try:
            return self.context.parallelize([task], 1).map(run_task).collect()[0]
        except Exception as error:  # Py4J's, PySpark's and what a worker could not send: none of them is for users
            told = redact(str(error).strip().partition("\n")[0])
            raise CaptureError(f"the copy of {task.source} failed in Spark: {told}") from error

    def _take(self, result: CopyResult) -> None:
        source = result.source
        if source not in self.left:
            return
        if result.moved is not None:
            self.moved.append(result.moved)
            del self.left[source]
            return
        if isinstance(result.failure, ValueNotHeld):
            self.capture = stop_table(self.catalog, self.capture, source, str(result.failure), self.capture.lsn)
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
        del self.left[source], self.landings[source]
        at = format_lsn(self.capture.lsn)
        _log.info("%s: %s is copied, %d rows, at %s", self.capture.slot, source, self.rows[source], at)
        if self.progress is not None:
            self.progress.table_ended(source, self.rows[source])

    def _clean(self) -> None:
        """Remove the files of what was not committed."""
        for landing in self.landings.values():
            landing.job.clean()
