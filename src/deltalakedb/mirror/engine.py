"""MirrorEngine: copies commits from SQL into `_delta_log`: with the commit, in the background, or on request.

A mirror failure never fails the commit. It is recorded in `dl_mirror_status` and retried by this process, by the next
process, or by `dl mirror run`.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from deltalakedb import telemetry
from deltalakedb.exceptions import DeltaError, ExternalWriterError, MirrorError, redact
from deltalakedb.mirror import bookkeeping, worker
from deltalakedb.mirror.alerts import Alerts
from deltalakedb.mirror.checkpoints import Maintenance, Marks
from deltalakedb.mirror.notice import remove_notice
from deltalakedb.mirror.table_mirror import UNKNOWN, ForeignCommitError, OutOfTimeError, TableMirror
from deltalakedb.runtime.config import Config, MirrorMode
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Outcome, RatifiedCommit
from deltalakedb.store.registry import Head, TableRow

logger = logging.getLogger(__name__)

MAX_HELD_BYTES = 16 * 1024 * 1024
"""How many bytes of commits the background queue keeps in memory; the bytes of further commits are read from SQL."""

GATHER_SECONDS = 0.1
"""Delay before the background mirrors a commit, so that it mirrors the commits of that time together."""

OptionsOf = Callable[[TableRow], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """The result of mirroring one table: its files were at `from_version` and are now at `to_version`."""

    table: TableRow
    from_version: int
    to_version: int
    num_written: int = 0
    error: str | None = None


class MirrorEngine:
    """The mirror of one catalog in one process. Close it: closing writes the marks that are only in memory to SQL."""

    def __init__(
        self,
        store: Store,
        *,
        config: Config,
        options_of: OptionsOf = lambda _table: None,
        mode: MirrorMode | None = None,
        stop: threading.Event | None = None,
        address: object = None,
    ) -> None:
        self.mode: MirrorMode = config.mirror_mode if mode is None else mode
        self.maintenance = Maintenance(store, config, address)
        self._store = store
        self._config = config
        self._address = address
        self._options_of = options_of
        self._stop = stop
        self._closed = False
        self._start_empty()
        worker.close_at_exit(self)

    def _start_empty(self) -> None:
        """Reset the state: no tables, no queue, new locks."""
        self._id = next(_ids)
        self._lock = threading.Lock()
        self._tables: dict[int, TableMirror] = {}
        self._marks = Marks(self._store, self.maintenance, self._id)
        self._held: dict[int, list[RatifiedCommit]] = {}
        self._held_since: dict[int, float] = {}
        self._held_bytes = 0
        self._retry_at: dict[int, float] = {}

    @cached_property
    def alerts(self) -> Alerts:
        """The alerts about tables whose files are late."""
        return Alerts(self._config)

    def __repr__(self) -> str:
        return f"MirrorEngine({self._store!r}, mode={self.mode!r})"

    # -- around a commit

    def probe(self, table: TableRow, head: Head | None = None) -> None:
        """Check, before this process's first commit to a table, that no other program wrote into its files.

        If one did, freeze the table and raise ExternalWriterError. If the files cannot be read, or not within
        `mirror_inline_timeout`, the commit proceeds.
        """
        mirror = self._mirror_of(table)
        if mirror.probed:
            return
        if mirror.known == UNKNOWN:
            mirror.known = self._mirrored_version(table) if head is None else head.mirrored_version
        if not mirror.is_remote:
            self._find_foreign(mirror)
            return
        errors: list[BaseException] = []
        done = threading.Event()

        def look() -> None:
            try:
                self._find_foreign(mirror)
            except BaseException as error:  # raised again by the waiting thread
                errors.append(error)
            done.set()

        worker.mirroring.schedule((self._id, "probe", next(_ids)), look)
        if not done.wait(self._config.mirror_inline_timeout):
            logger.warning("table %s: its files do not answer; the commit goes on without them", table.full_name)
        elif errors:
            raise errors[0]

    def _find_foreign(self, mirror: TableMirror) -> None:
        if not mirror.lock.acquire(timeout=self._config.mirror_inline_timeout):
            return
        known_before = mirror.known
        try:
            mirror.find_foreign(deadline=time.monotonic() + self._config.mirror_inline_timeout)
            mirror.probed = True
        except ForeignCommitError as error:
            raise self._freeze(mirror, error) from error
        except MirrorError as error:
            logger.warning("table %s: its files could not be read: %s", mirror.table.full_name, redact(str(error)))
        finally:
            mirror.lock.release()
            if mirror.known > known_before:
                self._marks.add(mirror)

    def after_commit(self, outcome: Outcome) -> None:
        """Mirror the commits of a transaction, depending on the mode. Never raises: the commit is already made."""
        if self.mode == "off":
            return
        deadline = time.monotonic() + self._config.mirror_inline_timeout
        try:
            for table, commits in _by_table(outcome.commits):
                mirror = self._mirror_of(table)
                if self.mode == "background":
                    self._hold(mirror, commits, GATHER_SECONDS)
                elif self._retry_at.get(table.table_id, 0.0) <= time.monotonic():
                    self._mirror_inline(mirror, commits, deadline)
                # Otherwise it failed a moment ago: the background retries it, so that commits do not queue behind it.
        except Exception as error:  # the commit has happened, and the caller must learn that
            logger.warning("the mirror of transaction %s failed: %s", outcome.txn_id, redact(str(error)), exc_info=True)

    def known_version(self, table_id: int) -> int | None:
        """The newest version in the files that this process knows of; a commit may record it in SQL."""
        mirror = self._tables.get(table_id)
        return None if mirror is None or mirror.known == UNKNOWN else mirror.known

    # -- a whole pass

    def mirror_table(self, table: TableRow, *, deadline: float = math.inf) -> MirrorResult:
        """Mirror every commit that SQL has and the files lack. Return a failure in the result and schedule its retry.

        If the files have another writer's commit in place of ours, freeze the table and raise ExternalWriterError.
        """
        mirror = self._mirror_of(table)
        with mirror.lock:
            if mirror.known == UNKNOWN:
                mirror.known = self._mirrored_version(table)
            known_before = mirror.known
            num_written, error = self._attempt(mirror, [], deadline)
        return MirrorResult(table, known_before, mirror.known, num_written, error)

    def _attempt(self, mirror: TableMirror, commits: list[RatifiedCommit], deadline: float) -> tuple[int, str | None]:
        """Put the commits, or all that SQL has beyond the files; return the count and the error. Needs the lock."""
        known_before, num_written = mirror.known, 0
        error: DeltaError | None = None
        reached("mirror.start")
        try:
            with mirror.together() if len(commits) != 1 else nullcontext():
                if not commits or not mirror.put_ratified(commits, deadline=deadline):
                    num_written = mirror.catch_up(deadline=deadline)
        except ForeignCommitError as foreign:
            raise self._freeze(mirror, foreign) from foreign
        except DeltaError as failure:
            error = failure
        except Exception as failure:  # a bug, or a driver's own error: recorded and retried like any other
            logger.exception("table %s could not be mirrored", mirror.table.full_name)
            error = MirrorError(f"table {mirror.table.full_name}: {type(failure).__name__}: {failure}")
        finally:
            if mirror.known > known_before:
                self._marks.add(mirror)
        if error is None:
            if self._retry_at.pop(mirror.table.table_id, None) is not None:
                self._marks.add(mirror)  # writing the mark also deletes the failure's row
                self.alerts.lag(mirror.table.full_name, 0.0, version=mirror.known)
            return num_written, None
        self._failed(mirror, error)
        return num_written, redact(str(error))

    def maintain_table(self, table: TableRow) -> None:
        """Write checksums, a checkpoint and clean up, if they are due and no other process is doing it."""
        self._marks.write()
        self.maintenance.maintain(self._mirror_of(table))

    def explain_table(self, table: TableRow) -> None:
        """Write the notice beside a table's log, in the background; does nothing if the mode is `off`."""
        if self.mode != "off":
            mirror = self._mirror_of(table)
            worker.maintaining.schedule((self._id, "explain", table.table_id), lambda: self.maintenance.explain(mirror))

    def forget_table(self, table: TableRow) -> None:
        """Remove the notice beside the log of a table that is no longer behind the fence."""
        remove_notice(table, self._options_of(table))

    def hand_over(self, table: TableRow) -> None:
        """Finish a dropped table's files that belong to its user: mirror everything, remove the notice, write the mark.

        The reconciler retries what fails, as after any commit. If the mode is `off`, it does all of it.
        """
        if self.mode == "off":
            return
        try:
            result = self.mirror_table(table, deadline=time.monotonic() + self._config.mirror_inline_timeout)
        except ExternalWriterError as error:
            logger.error("%s", error)
            return
        self._marks.write()
        if result.error is None:
            self.forget_table(table)

    # -- in line

    def _mirror_inline(self, mirror: TableMirror, commits: list[RatifiedCommit], deadline: float) -> None:
        if mirror.is_remote:
            # A request may take longer than a commit may wait: another thread makes it and outlives the wait.
            version, num_failures = commits[-1].version, mirror.num_failures
            self._hold(mirror, commits)
            if not mirror.is_late and not mirror.wait_for(version, num_failures, deadline):
                mirror.is_late = True  # until that thread is done, further commits do not wait for it
                self._failed(mirror, OutOfTimeError(f"its files did not take version {version} in time"), again=False)
                if mirror.known >= version:  # it has just arrived: the next mark deletes the failure's row
                    self._marks.add(mirror)
            return
        # Do not wait behind a long pass of another thread.
        wait_seconds = 0.0 if mirror.is_behind else max(0.0, deadline - time.monotonic())
        if not mirror.lock.acquire(timeout=wait_seconds):
            self._hold(mirror, commits)
            return
        try:
            self._attempt(mirror, commits, deadline)
        except ExternalWriterError as error:
            logger.error("%s", error)
        finally:
            mirror.lock.release()

    # -- in the background

    def _hold(self, mirror: TableMirror, commits: list[RatifiedCommit], delay_seconds: float = 0.0) -> None:
        table_id = mirror.table.table_id
        with self._lock:
            queue = self._held.setdefault(table_id, [])
            self._held_since.setdefault(table_id, time.monotonic())
            free_bytes = MAX_HELD_BYTES - self._held_bytes
            for commit in commits:
                fits = len(commit.data or b"") <= free_bytes
                queued = replace(commit, data=commit.data if fits else None, late=None)
                queue.append(queued)
                free_bytes -= len(queued.data or b"")
            self._held_bytes = MAX_HELD_BYTES - free_bytes
        self._later(mirror, max(delay_seconds, self._retry_at.get(table_id, 0.0) - time.monotonic()))

    def _later(self, mirror: TableMirror, delay_seconds: float) -> None:
        key = (self._id, "table", mirror.table.table_id)
        worker.mirroring.schedule(key, lambda: self._work(mirror), delay_seconds)

    def _work(self, mirror: TableMirror) -> None:
        with self._lock:
            queued = self._held.pop(mirror.table.table_id, [])
            since = self._held_since.pop(mirror.table.table_id, 0.0)
            self._held_bytes -= sum(len(commit.data or b"") for commit in queued)
        queued.sort(key=lambda commit: commit.version)
        try:
            with mirror.lock, mirror.behind():
                if queued and time.monotonic() - since > bookkeeping.FRESH_SECONDS:
                    self._look_again(mirror)
                self._attempt(mirror, queued, math.inf)
        except ExternalWriterError as error:
            logger.error("%s", error)

    def _look_again(self, mirror: TableMirror) -> None:
        """Read the mirrored version again: if the table was purged since its commits, SQL says that all is mirrored."""
        try:
            mirror.known = max(mirror.known, self._mirrored_version(mirror.table))
        except DeltaError as error:
            logger.debug("table %s: its head could not be read: %s", mirror.table.full_name, redact(str(error)))

    # -- failures

    def _failed(self, mirror: TableMirror, error: DeltaError, *, again: bool = True) -> None:
        """Record a failure: a row in SQL, a warning, a metric, and a retry at the row's time, unless `again` is False.

        If another process has mirrored that version meanwhile, only schedule the retry.
        """
        table = mirror.table
        text = redact(str(error))
        mirror.num_failures += 1
        if mirror.known == UNKNOWN:
            try:
                mirror.known = self._mirrored_version(table)
            except DeltaError as sql_error:
                logger.warning("table %s: its head could not be read: %s", table.full_name, redact(str(sql_error)))
        version = max(mirror.known + 1, 0)
        wait = 0.0 if isinstance(error, OutOfTimeError) else self._config.mirror_retry_backoff
        is_behind = True
        try:
            failure = bookkeeping.record_failure(self._store, table.table_id, version, text, first_seconds=wait)
            if failure is not None:
                wait = failure.wait_seconds
                self.alerts.lag(table.full_name, failure.lag_seconds, version=version, error=text)
            is_behind = failure is not None
        except DeltaError as sql_error:
            logger.warning("table %s: its failure could not be recorded: %s", table.full_name, redact(str(sql_error)))
        if is_behind:
            telemetry.mirror_failed(table.full_name, version, text)
            logger.warning("table %s: version %d is not mirrored yet: %s", table.full_name, version, text)
        if again:
            self._retry_at[table.table_id] = time.monotonic() + wait
        if again and not self._closed:
            self._later(mirror, wait)

    def _freeze(self, mirror: TableMirror, foreign: ForeignCommitError) -> ExternalWriterError:
        table = mirror.table
        error = ExternalWriterError(
            f"table {table.full_name}: {foreign.evidence}. Nothing was overwritten and the table is frozen: see "
            f"what it is with `dl validate {table.full_name}`, then `dl mirror resolve {table.full_name} --adopt`"
        )
        telemetry.mirror_failed(table.full_name, foreign.version, str(error))
        if bookkeeping.freeze(self._store, table, foreign.version, foreign.evidence, actor=self._config.actor):
            self.alerts.external_writer(table.full_name, foreign.version, str(error))
        mirror.probed = False  # after it is resolved, check the files again
        return error

    # -- tables

    def _mirror_of(self, table: TableRow) -> TableMirror:
        options = self._options_of(table)
        mirror = self._tables.get(table.table_id)
        if mirror is not None and mirror.is_for(table, options):
            return mirror
        with self._lock:
            mirror = self._tables.get(table.table_id)
            if mirror is None or mirror.table.location != table.location:
                mirror = self._tables[table.table_id] = TableMirror(
                    self._store, table, options, self._stop, self._config.mirror_conditional_put
                )
            elif not mirror.is_for(table, options):  # renamed, or other storage options
                mirror.reopen(table, options)
        return mirror

    def _mirrored_version(self, table: TableRow) -> int:
        with self._store.read(single=True) as conn:
            head = registry.read_head(conn, table.table_id)
        return -1 if head is None else head.mirrored_version

    # -- the end

    def write_marks(self) -> None:
        """Write to SQL how far this process has mirrored."""
        self._marks.write()

    def flush(self, timeout_seconds: float = worker.EXIT_SECONDS) -> bool:
        """Finish queued commits, marks and checkpoints; return whether all were finished in time."""
        deadline = time.monotonic() + timeout_seconds
        mirrored = worker.mirroring.finish(self._id, timeout_seconds)
        self._marks.write()
        remaining_seconds = max(0.0, deadline - time.monotonic())
        return worker.maintaining.finish(self._id, remaining_seconds, within_seconds=math.inf) and mirrored

    def close(self, timeout_seconds: float = worker.EXIT_SECONDS) -> None:
        """Flush for at most `timeout_seconds`; the rest is left to the next process or the reconciler."""
        if self._closed:
            return
        self._closed = True
        if not self.flush(timeout_seconds):
            self.maintenance.abandon()
        worker.mirroring.drop(self._id)
        worker.maintaining.drop(self._id)
        if "alerts" in self.__dict__:
            self.alerts.close()

    def after_fork(self) -> None:
        """Reset the engine in a forked child, which has no threads of its parent and must not wait for their locks."""
        self.maintenance = Maintenance(self._store, self._config, self._address)
        self.__dict__.pop("alerts", None)
        self._start_empty()

    def __enter__(self) -> MirrorEngine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


_ids = itertools.count()


def _by_table(commits: Iterable[RatifiedCommit]) -> list[tuple[TableRow, list[RatifiedCommit]]]:
    groups: dict[int, tuple[TableRow, list[RatifiedCommit]]] = {}
    for commit in commits:
        groups.setdefault(commit.table.table_id, (commit.table, []))[1].append(commit)
    for _, group in groups.values():
        group.sort(key=lambda commit: commit.version)
    return list(groups.values())
