"""Copies of tables beside the stream: read in parts, each at its own moment, while other tables are captured."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Self

from deltalakedb.cdc.apply.batches import commit_tables, commit_until_won
from deltalakedb.cdc.apply.landing import LandingChanged, drop_landing, prepare_landing
from deltalakedb.cdc.captured_table import OWN_TROUBLE, CapturedTable
from deltalakedb.cdc.control import Capture, begin_batch, note_progress, save_tables
from deltalakedb.cdc.copy.copies import FEATURE, Chunk, TableCopy, abandon_copy, load_copies, removed
from deltalakedb.cdc.copy.copy_task import CopyResult, CopyTask, run_tasks
from deltalakedb.cdc.copy.publishing import RowsMissing, patch_ranges, publish_copies
from deltalakedb.cdc.evolve.evolution import stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.sessions import copy_failed
from deltalakedb.cdc.source.copy_plan import PageRange, SourceMoved, plan_copy
from deltalakedb.cdc.source.postgres import Connection, read_sql, take_position, translate_errors
from deltalakedb.cdc.source.publication import look_at_publication
from deltalakedb.cdc.source.slots import WAITS, exported_snapshot
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    DeltaError,
    InvalidCommitError,
    LocationOwnedError,
    SourceUnavailableError,
)
from deltalakedb.log.protocol.features import writer_features
from deltalakedb.runtime.steps import reached

if TYPE_CHECKING:
    from pyspark import SparkContext

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.copy.copying import Progress
    from deltalakedb.cdc.run.following import ChangeFollower
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.log.protocol.actions import Action

_log = logging.getLogger(__name__)

_SIZES: Final = read_sql("select_sizes")
_SMALL_ROWS: Final = 20_000
_MOST_TOGETHER: Final = 16
"""Parts of small tables that share a job."""
_ATTEMPTS: Final = 3
_POLL_SECONDS: Final = 0.05
_WAIT_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 10.0
_MOST_PATCHES: Final = 8


def choose_small(conn: Connection, capture: Capture, sources: Collection[str], most_bytes: int) -> set[str]:
    """The smallest of some tables that have at most `most_bytes` together, and all that keep changes only.

    Of many tables none is chosen: they are copied faster beside the stream, where they share jobs and one commit.
    """
    # A table with changes only is not read.
    unread = {source for source in sources if not capture.tables[source].keeps_current}
    read = set(sources) - unread
    if not read or len(read) > _MOST_TOGETHER:
        return unread
    oids = {capture.tables[source].oid: source for source in read}
    with translate_errors():
        sizes = conn.execute(_SIZES, [list(oids)]).fetchall()
    chosen, total = unread, 0
    for oid, size in sorted(sizes, key=lambda row: (row[1], row[0])):
        total += size
        if total > most_bytes:
            break
        chosen.add(oids[oid])
    return chosen


def begin_copies(
    catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings, sources: Collection[str]
) -> tuple[Capture, dict[str, TableCopy]]:
    """Begin to copy tables; from now on their changes are kept. Returns the capture and the copies.

    If a table cannot be copied, only that table stops; one that was changed just now goes on waiting.
    """
    published = look_at_publication(conn, settings, capture)
    lsn, floor = take_position(conn)  # afterwards: what was written before a table was published is in no message
    tables = {table.source: table for table in published.tables}
    copies: dict[str, TableCopy] = {}
    for source in sorted(sources):
        captured = capture.tables[source]
        if source not in tables:
            capture = stop_table(catalog, capture, source, published.why_not(source, settings), capture.lsn)
            continue
        table = replace(tables[source], current=captured.current, changes=captured.changes, start_lsn=lsn)
        if not table.keeps_current:  # `copy_tables` handles it next time, without reading rows
            continue
        try:
            copies[source] = _plan(catalog, conn, table, settings, floor)
        except SourceMoved as moved:
            _log.info("%s: %s waits on: %s", capture.slot, source, moved)
        except CaptureSetupError as error:
            capture = stop_table(catalog, capture, source, str(error), capture.lsn)
    if not copies:
        return capture, {}

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: copies of {', '.join(copies)} begin") as tx:
            control = tx.table(capture.control)._backing.newest()
            if "domainMetadata" not in writer_features(control.protocol):
                tx.set_properties(capture.control, FEATURE)
            saved = save_tables(tx, capture, [copy.table for copy in copies.values()])
            return note_progress(tx, saved, capture.lsn, [copy.begin_action() for copy in copies.values()])

    begun = commit_until_won(commit, f"the beginning of copies of {capture.slot}")
    reached("cdc.copy_begun")
    return begun, copies


def _plan(catalog: Catalog, conn: Connection, table: CapturedTable, settings: CaptureSettings, floor: int) -> TableCopy:
    plan = plan_copy(conn, table, settings.publication, 1, settings.chunk_pages)
    landing = prepare_landing(catalog, table, settings)
    assert landing.job is not None, "it has a table of current rows"
    copying = replace(table, stage="copying", copy_id=landing.job.folder)
    return TableCopy(replace(landing, table=copying), floor, plan.tasks, plan.rows)


def resume_copies(catalog: Catalog, capture: Capture) -> tuple[Capture, dict[str, TableCopy]]:
    """Load the copies that were begun before; tables whose copy cannot continue wait for another one."""
    copies, stale = load_copies(catalog, capture)
    if stale:
        capture = commit_tables(catalog, capture, [], "copies that nobody wants are forgotten", removed(stale))
    lost = [replace(table, stage="pending", copy_id=None) for table in capture.copying if table.source not in copies]
    if lost:
        capture = commit_tables(catalog, capture, lost, "copies begin anew")
    return capture, copies


@dataclass(frozen=True, slots=True)
class _Patch:
    """An additional part of a copy: rows that must be read once more."""

    ranges: tuple[PageRange, ...]
    since: int
    """What was committed before this LSN must be visible to the reader."""
    floor: int


class SideCopier:
    """Reads the parts of copies with Spark jobs, and commits the results when its follower calls it.

    Jobs run on threads of its own. Everything else is called by the thread that holds the follower's lock.
    """

    def __init__(
        self, context: SparkContext, catalog: Catalog, settings: CaptureSettings, progress: Progress | None = None
    ) -> None:
        self._context, self._catalog, self._settings, self._progress = context, catalog, settings, progress
        self._group = f"deltalakedb-copy-{uuid.uuid4()}"
        self._pool: ThreadPoolExecutor | None = None
        self._jobs = 0
        self._ended: SimpleQueue[list[CopyResult]] = SimpleQueue()
        self._running: set[tuple[str, int]] = set()
        """Parts that are being read, by copy and number."""
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        """When a copy may be worked on again."""
        self._waiting_since: dict[str, float] = {}
        self._patches: dict[str, dict[int, _Patch]] = {}
        """By copy and number."""
        self._announced: set[str] = set()
        self._is_closed = False

    def close(self) -> None:
        """Cancel running jobs. What was committed of the copies stays, and the next start continues with it."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):  # a dead Spark has no jobs
                self._context.cancelJobGroup(self._group)
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_trouble: object) -> None:
        self.close()

    # -- working

    def work(self, follower: ChangeFollower, *, alone: bool = False) -> list[str]:
        """Record the parts that were read, publish complete copies, submit more jobs; returns the published tables.

        `alone`: the stream does not need a core.
        """
        if not follower.copies:
            return []
        self._collect(follower)
        published = self._publish(follower)
        self._submit(list(follower.copies.values()), alone)
        return published

    def finish(self, follower: ChangeFollower, check: Callable[[], None]) -> list[str]:
        """Finish all copies, and capture the stream as far as they need."""
        published: list[str] = []
        while follower.copies:
            check()
            published += self.work(follower, alone=True)
            whole = [copy.watermark for copy in follower.copies.values() if not self._missing(copy)]
            if whole and len(whole) == len(follower.copies):
                follower.drain(max(*whole, follower.at))
            else:
                time.sleep(_POLL_SECONDS)
        return published

    # -- reading

    def _missing(self, copy: TableCopy) -> list[int]:
        return [*copy.missing, *(number for number in self._patches.get(copy.id, ()) if number not in copy.chunks)]

    def _submit(self, copies: Sequence[TableCopy], alone: bool) -> None:
        cores = self._settings.parallelism or self._context.defaultParallelism
        # One core is left to the stream, which must not wait for the end of jobs that started before it.
        free = max(1, cores if alone else cores - 1) - self._jobs
        if free <= 0:
            return
        for bundle in itertools.islice(self._bundles(copies), free):
            self._start(bundle)

    def _bundles(self, copies: Sequence[TableCopy]) -> Iterator[list[CopyTask]]:
        """The tasks to run, as jobs: copies with the fewest missing parts come first, and small ones share a job."""
        now = time.monotonic()
        ready = [copy for copy in copies if self._not_before.get(copy.id, 0.0) <= now]
        ready.sort(key=lambda copy: (len(self._missing(copy)), copy.rows))
        together: list[CopyTask] = []
        for copy in ready:
            tasks = [
                self._task(copy, number) for number in self._missing(copy) if (copy.id, number) not in self._running
            ]
            if not tasks:
                continue
            if not copy.table.is_keyed:
                if not any(running == copy.id for running, _ in self._running):
                    yield tasks
            elif len(copy.tasks) == 1 and copy.rows <= _SMALL_ROWS:
                together += tasks
                if len(together) >= _MOST_TOGETHER:
                    yield together
                    together = []
            else:
                if together:
                    yield together
                    together = []
                yield from ([task] for task in tasks)
        if together:
            yield together

    def _task(self, copy: TableCopy, number: int) -> CopyTask:
        patch = self._patches.get(copy.id, {}).get(number)
        ranges, floor = (copy.tasks[number], copy.floor) if patch is None else (patch.ranges, patch.floor)
        return CopyTask.of(copy.landing, self._settings, ranges, number=number, floor=floor)

    def _start(self, tasks: list[CopyTask]) -> None:
        if self._pool is None:
            cores = self._settings.parallelism or self._context.defaultParallelism
            self._pool = ThreadPoolExecutor(max(1, cores), thread_name_prefix="deltalakedb-copy")
        self._jobs += 1
        self._running |= {(task.folder, task.number) for task in tasks}
        run = self._run_job if tasks[0].table.is_keyed else self._run_at_one_snapshot
        self._pool.submit(self._run, run, tasks)

    def _run(self, run: Callable[[list[CopyTask]], list[CopyResult]], tasks: list[CopyTask]) -> None:
        try:
            results = run(tasks)
        except Exception as error:  # Py4J's, PySpark's and what a worker could not send: none of them is for users
            failure = error if isinstance(error, DeltaError) else copy_failed(tasks[0].source, error)
            results = [
                CopyResult(task.source, failure=failure, number=task.number, copy_id=task.folder) for task in tasks
            ]
        self._ended.put(results)

    def _run_job(self, tasks: list[CopyTask]) -> list[CopyResult]:
        """Run tasks as one Spark task in a job of its own, so that its end is known at once."""
        self._context.setJobGroup(self._group, f"copy of {tasks[0].source}", interruptOnCancel=True)
        return self._context.parallelize([tasks], 1).map(run_tasks).collect()[0]

    def _run_at_one_snapshot(self, tasks: list[CopyTask]) -> list[CopyResult]:
        """Read a table without a key at one snapshot, because nothing tells copies of a row apart.

        If a part fails, all of them do: the next attempt has another snapshot.
        """
        results: list[CopyResult] = []
        with exported_snapshot(self._settings.source, self._end_if_closed) as (snapshot, lsn):
            for task in tasks:
                self._end_if_closed()
                (result,) = self._run_job([replace(task, snapshot=snapshot)])
                if result.failure is not None or result.moved is not None:
                    return [replace(result, number=one.number) for one in tasks]
                results.append(replace(result, watermark=lsn))
        return results

    def _end_if_closed(self) -> None:
        if self._is_closed:
            raise CaptureError("the copy was ended")

    # -- results

    def _collect(self, follower: ChangeFollower) -> None:
        results: list[CopyResult] = []
        while True:
            try:
                results += self._ended.get_nowait()
            except Empty:
                break
            self._jobs -= 1
        actions: list[Action] = []
        troubled: set[str] = set()
        for result in results:
            self._running.discard((result.copy_id, result.number))
            copy = follower.copies.get(result.source)
            if copy is None or copy.id != result.copy_id:  # the copy was given up
                continue
            if result.moved is not None or result.failure is not None or result.waits:
                if copy.id not in troubled:  # what fails several parts at once is one failure
                    self._take_trouble(follower, copy, result)
                troubled.add(copy.id)
                continue
            patch = self._patches.get(copy.id, {}).get(result.number)
            since = (copy.table.start_lsn or 0) if patch is None else patch.since
            copy.chunks[result.number] = Chunk(result.adds, result.rows, result.watermark, since)
            self._failures.pop(copy.source, None)
            self._report_progress(copy, result)
            if copy.table.is_keyed:
                actions.append(copy.chunk_action(result.number))
            else:
                copy.snapshot_lsn = result.watermark
        if actions:
            follower.use(commit_tables(self._catalog, follower.capture, [], "parts of copies were read", actions))
            reached("cdc.chunk_committed")

    def _report_progress(self, copy: TableCopy, result: CopyResult) -> None:
        if self._progress is None:
            return
        if copy.id not in self._announced:
            self._announced.add(copy.id)
            self._progress.table_begins(copy.source, copy.rows, len(copy.tasks))
        self._progress.task_ended(copy.source, result.rows)

    def _take_trouble(self, follower: ChangeFollower, copy: TableCopy, result: CopyResult) -> None:
        now = time.monotonic()
        if result.waits:
            self._not_before[copy.id] = now + _WAIT_SECONDS
            if now - self._waiting_since.setdefault(copy.id, now) > _PATIENCE_SECONDS:
                self._waiting_since[copy.id] = float("inf")
                _log.warning("the copy of %s: %s", copy.source, WAITS)
            return
        if result.moved is not None:
            self._drop(follower, copy, result.moved)
            return
        failure = result.failure
        assert failure is not None
        self._failures[copy.source] = self._failures.get(copy.source, 0) + 1
        is_final = isinstance(failure, OWN_TROUBLE)
        if not is_final and self._failures[copy.source] < _ATTEMPTS:
            _log.info("%s: a part of %s is read again: %s", follower.capture.slot, copy.source, failure)
            self._not_before[copy.id] = now + _WAIT_SECONDS
            return
        if isinstance(failure, SourceUnavailableError):
            raise failure
        self._stop(follower, copy, str(failure))

    def _stop(self, follower: ChangeFollower, copy: TableCopy, reason: str) -> None:
        """Stop the table and delete its copy."""
        del follower.copies[copy.source]
        follower.use(stop_table(self._catalog, follower.capture, copy.source, reason, follower.capture.lsn))
        drop_landing(self._catalog, copy.landing)

    def _drop(self, follower: ChangeFollower, copy: TableCopy, reason: str) -> None:
        """Give up the copy; its table waits for another one."""
        del follower.copies[copy.source]
        follower.use(abandon_copy(self._catalog, follower.capture, copy, reason))

    # -- publishing

    def _publish(self, follower: ChangeFollower) -> list[str]:
        whole = [
            copy
            for copy in follower.copies.values()
            if not self._missing(copy) and copy.watermark <= follower.at and self._may_try(copy)
        ]
        if not whole:
            return []
        follower.note()
        try:
            self._publish_all(follower, whole)
        except (RowsMissing, LandingChanged, LocationOwnedError, InvalidCommitError) as error:
            _log.info("%s: %s", follower.capture.slot, error)
            return [copy.source for copy in whole if self._publish_one(follower, copy)]
        return [copy.source for copy in whole]

    def _may_try(self, copy: TableCopy) -> bool:
        return self._not_before.get(copy.id, 0.0) <= time.monotonic()

    def _publish_all(self, follower: ChangeFollower, copies: Sequence[TableCopy]) -> None:
        published = publish_copies(self._catalog, follower.capture, self._settings, copies)
        for copy in copies:
            rows = sum(chunk.rows for chunk in copy.chunks.values())
            del follower.copies[copy.source]
            self._failures.pop(copy.source, None)
            lsn = format_lsn(published.lsn)
            _log.info("%s: %s is copied beside the stream, %d rows, at %s", published.slot, copy.source, rows, lsn)
            if self._progress is not None:
                self._progress.table_ended(copy.source, rows)
        follower.use(published)

    def _publish_one(self, follower: ChangeFollower, copy: TableCopy) -> bool:
        try:
            self._publish_all(follower, [copy])
        except RowsMissing as missing:
            patches = self._patches.setdefault(copy.id, {})
            ranges = patch_ranges(copy.table, missing.keys)
            if ranges is None or len(patches) >= _MOST_PATCHES:
                self._drop(follower, copy, str(missing))
            else:
                number = max([len(copy.tasks), *(taken + 1 for taken in copy.chunks)])
                patches[number] = _Patch(ranges, *take_position(follower.conn))
            return False
        except (LandingChanged, LocationOwnedError) as error:
            self._drop(follower, copy, str(error))
            return False
        except InvalidCommitError as error:
            self._stop(follower, copy, f"the lake does not take its copy: {error}")
            return False
        return True
