"""The copy of tables: all that wait for one, at one snapshot, by Spark tasks; each is committed when it is whole."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from deltalakedb.cdc.batches import commit_progress
from deltalakedb.cdc.control import (
    Capture,
    Server,
    begin_batch,
    change_server,
    load_capture,
    note_progress,
    save_tables,
)
from deltalakedb.cdc.copy_task import CopyResult, CopyTask, run_task
from deltalakedb.cdc.evolution import stop_table
from deltalakedb.cdc.landing import Landing, commit_landing, prepare_landing
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.publication import published_tables
from deltalakedb.cdc.server import Connection, connect, flush_lsn, identify
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.slots import advance_slot, create_slot, drop_slot, exported_snapshot, find_slot
from deltalakedb.cdc.snapshot import CopyPlan, PageRange, SourceMoved, plan_copy, session_at
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    OutcomeUnknownError,
    SourceUnavailableError,
    StoreBusyError,
    TableLockedError,
    ValueNotHeld,
    WrongServerError,
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
_COMMITS: Final = 10
_TASK_ATTEMPTS: Final = 3
_CHECK_SECONDS: Final = 0.5
# Somebody else changed the table meanwhile, such as by an OPTIMIZE: all its rows are replaced anyway.
_WORTH_ANOTHER_COMMIT: Final = (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentDeleteDeleteError,
    StoreBusyError,
    TableLockedError,
)


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
            for table in self._waiting(published_tables(conn, self.settings, captured=self.capture.begun)):
                try:
                    with conn.transaction():
                        plans.append(plan_copy(conn, table, self.settings.publication, tasks))
                except SourceMoved as moved:
                    self.moved.append(str(moved))
        return plans

    def _waiting(self, published: Iterable[CapturedTable]) -> Iterator[CapturedTable]:
        """The tables to copy with the columns they have in the snapshot; in the lake they keep the names they have."""
        pending, found = _pending(self.capture), {table.source: table for table in published}
        for source in sorted(pending):
            known = self.capture.tables[source]
            if source in found:
                yield replace(found[source], current=known.current, changes=known.changes)
                continue
            among = " or not among the tables asked for" if self.settings.tables else ""
            reason = f"it is not in the publication {self.capture.publication} any more{among}"
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
        landing, adds = self.landings[source], self.adds[source]
        for attempt in range(1, _COMMITS + 1):
            try:
                self.capture = commit_landing(self.catalog, self.capture, landing, adds, self.settings)
                break
            except _WORTH_ANOTHER_COMMIT as error:
                if attempt == _COMMITS:
                    raise
                _log.info("the copy of %s is committed again: %s", source, error)
                time.sleep(random.uniform(0, 0.05 * 2**attempt))
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


def request_resnapshot(catalog: Catalog, settings: CaptureSettings, tables: Iterable[str] = ()) -> Capture:
    """Have tables copied anew, all of them when none is named, the next time the capture runs.

    A slot that is lost, or has gone on without us, is made anew; then every table needs another copy. Where the source
    is another server now, and no table is named, the capture is that server's from now on.
    """
    capture = load_capture(catalog, settings)
    if capture is None:
        raise CaptureError(f"there is no capture {settings.slot} in this lake ({settings.control_table}); start it")
    named = tuple(tables)
    wanted = choose_tables(capture, named)
    with connect(settings.source) as conn:
        server = identify(conn)
        if server != capture.server and named:
            raise WrongServerError(
                f"the source is another server than the one that the capture {capture.slot} belongs to (system "
                f"identifier {server.system_id}, timeline {server.timeline}, database {server.database}): correct the "
                "DSN; if that server is meant, dl cdc resnapshot without names copies every table from it"
            )
        lsn = _renewed_slot(conn, capture, server)
    if lsn is not None:
        wanted = {source for source, table in capture.tables.items() if table.stage != "stopped"} | wanted
    again = [
        replace(capture.tables[source], stage="pending", reason=None, stopped_lsn=None) for source in sorted(wanted)
    ]
    with begin_batch(
        catalog, capture, f"capture {capture.slot}: {', '.join(sorted(wanted))} will be copied anew"
    ) as tx:
        asked = save_tables(tx, capture, again)
        if server != capture.server:
            asked = change_server(tx, asked, server)
        return note_progress(tx, asked, capture.lsn if lsn is None else lsn)


def choose_tables(capture: Capture, tables: Iterable[str]) -> set[str]:
    """The captured tables that are named, or all; a name without a schema is one in `public`."""
    wanted = {name if "." in name else f"public.{name}" for name in tables} or set(capture.tables)
    unknown = wanted - set(capture.tables)
    if unknown:
        raise CaptureError(
            f"the capture {capture.slot} has no table {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(capture.tables)) or 'none'}"
        )
    return wanted


def _renewed_slot(conn: Connection, capture: Capture, server: Server) -> int | None:
    """Where a new slot begins; None when the one that is there has all that is not yet in the lake."""
    found = find_slot(conn, capture.slot)
    if found is not None and found.database != server.database:
        raise CaptureSetupError(
            f"the slot {capture.slot} is one of the database {found.database}, and not of {server.database}: correct "
            "the DSN"
        )
    is_sound = found is not None and not found.is_lost and found.confirmed_lsn <= capture.lsn
    if is_sound and server == capture.server:
        return None
    drop_slot(conn, capture.slot)
    return create_slot(conn, capture.slot)
