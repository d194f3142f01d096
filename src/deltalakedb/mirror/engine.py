"""MirrorEngine: copies what was committed in SQL into `_delta_log`: in line with the commit, behind it, or when asked.

A commit is never failed by its mirror. What cannot be written now is remembered in `dl_mirror_status` and tried again,
by this process while it lives, by the next one, or by `dl mirror run`.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from deltalakedb import telemetry
from deltalakedb.config import Config, MirrorMode
from deltalakedb.exceptions import DeltaError, ExternalWriterError, MirrorError, redact
from deltalakedb.mirror import bookkeeping, worker
from deltalakedb.mirror.alerts import Alerts
from deltalakedb.mirror.checkpoints import Maintenance
from deltalakedb.mirror.marks import Marks
from deltalakedb.mirror.notice import remove_notice
from deltalakedb.mirror.table_mirror import UNKNOWN, ForeignCommitError, OutOfTimeError, TableMirror
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Outcome, RatifiedCommit
from deltalakedb.store.registry import Head, TableRow

logger = logging.getLogger(__name__)

MAX_HELD_BYTES = 16 * 1024 * 1024
"""Commits that wait for the background keep their bytes up to here; others are read back from SQL."""

GATHER_SECONDS = 0.1
"""So long after a commit the background begins to mirror it, and with it what was committed meanwhile."""

OptionsOf = Callable[[TableRow], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """What a pass over a table did: the files were at `from_version` and are at `to_version`."""

    table: TableRow
    from_version: int
    to_version: int
    num_written: int = 0
    error: str | None = None


class MirrorEngine:
    """The mirror of one catalog in one process. Close it: what is marked in memory only goes to SQL then."""

    def __init__(
        self,
        store: Store,
        *,
        config: Config,
        options_of: OptionsOf = lambda _table: None,
        mode: MirrorMode | None = None,
        stop: threading.Event | None = None,
        address: str | None = None,
    ) -> None:
        self.mode: MirrorMode = config.mirror_mode if mode is None else mode
        self.alerts = Alerts(config)
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
        """Nothing known and nothing waiting; locks that nobody holds."""
        self._id = next(_ids)
        self._lock = threading.Lock()
        self._tables: dict[int, TableMirror] = {}
        self._marks = Marks(self._store, self.maintenance, self._id)
        self._held: dict[int, list[RatifiedCommit]] = {}
        self._held_since: dict[int, float] = {}
        self._held_bytes = 0
        self._retry_at: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"MirrorEngine({self._store!r}, mode={self.mode!r})"

    # -- around a commit

    def probe(self, table: TableRow, head: Head | None = None) -> None:
        """Before a process's first commit to a table: see that nobody else wrote into its files meanwhile.

        ExternalWriterError when somebody did; the table is frozen then. Files that cannot be looked at, or not in the
        time a commit has for its mirror, stop no commit.
        """
        mirror = self._mirror_of(table)
        if mirror.probed:
            return
        if mirror.known == UNKNOWN:
            mirror.known = self._mirrored_version(table, head)
        if not mirror.is_remote:
            self._find_foreign(mirror)
            return
        found: list[BaseException] = []
        done = threading.Event()

        def look() -> None:
            try:
                self._find_foreign(mirror)
            except BaseException as error:  # it is raised where it was asked for
                found.append(error)
            done.set()

        worker.mirroring.schedule((self._id, "probe", next(_ids)), look)
        if not done.wait(self._config.mirror_inline_timeout):
            logger.warning("table %s: its files do not answer; the commit goes on without them", table.full_name)
        elif found:
            raise found[0]

    def _find_foreign(self, mirror: TableMirror) -> None:
        if not mirror.lock.acquire(timeout=self._config.mirror_inline_timeout):
            return
        before = mirror.known
        try:
            mirror.find_foreign(deadline=time.monotonic() + self._config.mirror_inline_timeout)
            mirror.probed = True
        except ForeignCommitError as error:
            raise self._freeze(mirror, error) from error
        except MirrorError as error:
            logger.warning("table %s: its files could not be read: %s", mirror.table.full_name, redact(str(error)))
        finally:
            mirror.lock.release()
            if mirror.known > before:
                self._marks.add(mirror)

    def after_commit(self, outcome: Outcome) -> None:
        """Mirror what a transaction committed, as the mode says. Nothing here fails: the commit is made already."""
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
                # Else it failed a moment ago: the background tries again, commits do not queue up behind it.
        except Exception as error:  # whatever it is, the commit has happened, and its caller must learn that
            logger.warning("the mirror of transaction %s failed: %s", outcome.txn_id, redact(str(error)), exc_info=True)

    def known_version(self, table_id: int) -> int | None:
        """How far the files of a table are, as far as this process knows: a commit can write that down on the way."""
        mirror = self._tables.get(table_id)
        return None if mirror is None or mirror.known == UNKNOWN else mirror.known

    # -- a whole pass

    def mirror_table(self, table: TableRow, *, deadline: float = math.inf) -> MirrorResult:
        """Bring the files of a table level with SQL. A failure is in the result, and remembered with its next try.

        ExternalWriterError when somebody else's commit has the name of ours; the table is frozen then.
        """
        mirror = self._mirror_of(table)
        with mirror.lock:
            if mirror.known == UNKNOWN:
                mirror.known = self._mirrored_version(table)
            before = mirror.known
            num_written, error = self._attempt(mirror, [], deadline)
        return MirrorResult(table, before, mirror.known, num_written, error)

    def _attempt(self, mirror: TableMirror, commits: list[RatifiedCommit], deadline: float) -> tuple[int, str | None]:
        """Put the commits, or all that SQL has beyond the files; what failed, if anything. The lock is held."""
        before, num_written = mirror.known, 0
        error: DeltaError | None = None
        reached("mirror.start")
        try:
            with mirror.together(len(commits) != 1):
                if not commits or not mirror.put_ratified(commits, deadline=deadline):
                    num_written = mirror.catch_up(deadline=deadline)
        except ForeignCommitError as foreign:
            raise self._freeze(mirror, foreign) from foreign
        except DeltaError as caught:
            error = caught
        except Exception as caught:  # a bug, or a driver's own error: remembered and tried again like any other
            logger.exception("table %s could not be mirrored", mirror.table.full_name)
            error = MirrorError(f"table {mirror.table.full_name}: {type(caught).__name__}: {caught}")
        finally:
            if mirror.known > before:
                self._marks.add(mirror)
        if error is None:
            if self._retry_at.pop(mirror.table.table_id, None) is not None:
                self._marks.add(mirror)  # the row of its failure goes with the mark
                self.alerts.lag(mirror.table.full_name, 0.0, version=mirror.known)
            return num_written, None
        self._failed(mirror, error)
        return num_written, redact(str(error))

    def maintain_table(self, table: TableRow) -> None:
        """Checksums, a checkpoint and clean-up of a table, if they are due and nobody else is at it."""
        self._marks.write()
        self.maintenance.maintain(self._mirror_of(table))

    def explain_table(self, table: TableRow) -> None:
        """Write the notice beside a table's log, in the background; not when the mode is `off`."""
        if self.mode != "off":
            mirror = self._mirror_of(table)
            worker.maintaining.schedule((self._id, "explain", table.table_id), lambda: self.maintenance.explain(mirror))

    def forget_table(self, table: TableRow) -> None:
        """Remove the notice beside the log of a table that is no longer behind the fence."""
        remove_notice(table, self._options_of(table))

    def hand_over(self, table: TableRow) -> None:
        """Finish the files of a dropped table that are its user's: all is mirrored, the notice is gone, SQL knows it.

        What cannot be written now is the reconciler's, as after any commit; so is all of it when the mode is `off`.
        """
        if self.mode == "off":
            return
        try:
            done = self.mirror_table(table, deadline=time.monotonic() + self._config.mirror_inline_timeout)
        except ExternalWriterError as error:
            logger.error("%s", error)
            return
        self._marks.write()
        if done.error is None:
            self.forget_table(table)

    # -- in line

    def _mirror_inline(self, mirror: TableMirror, commits: list[RatifiedCommit], deadline: float) -> None:
        if mirror.is_remote:
            # A request may take longer than a commit may wait: another thread makes it, and goes on if need be.
            version, num_failures = commits[-1].version, mirror.num_failures
            self._hold(mirror, commits)
            if not mirror.is_late and not mirror.wait_for(version, num_failures, deadline):
                mirror.is_late = True  # until that thread is done, no further commit waits for it
                self._failed(mirror, OutOfTimeError(f"its files did not take version {version} in time"), again=False)
                if mirror.known >= version:  # at that very moment: the row goes with the next mark
                    self._marks.add(mirror)
            return
        # Behind a long pass of another thread nobody waits.
        patience = 0.0 if mirror.is_behind else max(0.0, deadline - time.monotonic())
        if not mirror.lock.acquire(timeout=patience):
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
            held = self._held.setdefault(table_id, [])
            self._held_since.setdefault(table_id, time.monotonic())
            room = MAX_HELD_BYTES - self._held_bytes
            for commit in commits:
                fits = len(commit.data or b"") <= room
                kept = replace(commit, data=commit.data if fits else None, late=None)
                held.append(kept)
                room -= len(kept.data or b"")
            self._held_bytes = MAX_HELD_BYTES - room
        self._later(mirror, max(delay_seconds, self._retry_at.get(table_id, 0.0) - time.monotonic()))

    def _later(self, mirror: TableMirror, delay_seconds: float) -> None:
        key = (self._id, "table", mirror.table.table_id)
        worker.mirroring.schedule(key, lambda: self._work(mirror), delay_seconds)

    def _work(self, mirror: TableMirror) -> None:
        with self._lock:
            held = self._held.pop(mirror.table.table_id, [])
            since = self._held_since.pop(mirror.table.table_id, 0.0)
            self._held_bytes -= sum(len(commit.data or b"") for commit in held)
        held.sort(key=lambda commit: commit.version)
        try:
            with mirror.lock, mirror.behind():
                if held and time.monotonic() - since > bookkeeping.FRESH_SECONDS:
                    self._look_again(mirror)
                self._attempt(mirror, held, math.inf)
        except ExternalWriterError as error:
            logger.error("%s", error)

    def _look_again(self, mirror: TableMirror) -> None:
        """The table may have been purged since its commits were made: then SQL says that nothing is left to mirror."""
        try:
            mirror.known = max(mirror.known, self._mirrored_version(mirror.table))
        except DeltaError as error:
            logger.debug("table %s: its head could not be read: %s", mirror.table.full_name, redact(str(error)))

    # -- failures

    def _failed(self, mirror: TableMirror, error: DeltaError, *, again: bool = True) -> None:
        """A row in SQL, a warning, a metric, and another try when the row says so, unless one is still under way.

        None of it but the other try when somebody else has mirrored that version meanwhile.
        """
        table = mirror.table
        text = redact(str(error))
        mirror.num_failures += 1
        if mirror.known == UNKNOWN:
            try:
                mirror.known = self._mirrored_version(table)
            except DeltaError as trouble:
                logger.warning("table %s: its head could not be read: %s", table.full_name, redact(str(trouble)))
        version = max(mirror.known + 1, 0)
        wait = 0.0 if isinstance(error, OutOfTimeError) else self._config.mirror_retry_backoff
        is_behind = True
        try:
            failure = bookkeeping.record_failure(self._store, table.table_id, version, text, first_seconds=wait)
            if failure is not None:
                wait = failure.wait_seconds
                self.alerts.lag(table.full_name, failure.lag_seconds, version=version, error=text)
            is_behind = failure is not None
        except DeltaError as trouble:
            logger.warning("table %s: its failure could not be recorded: %s", table.full_name, redact(str(trouble)))
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
        mirror.probed = False  # after it was resolved, the files are looked at again
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
            elif not mirror.is_for(table, options):  # renamed, or reached in another way
                mirror.reopen(table, options)
        return mirror

    def _mirrored_version(self, table: TableRow, head: Head | None = None) -> int:
        if head is None:
            with self._store.read(single=True) as conn:
                head = registry.read_head(conn, table.table_id)
        return -1 if head is None else head.mirrored_version

    # -- the end

    def write_marks(self) -> None:
        """Let SQL know how far this process has mirrored."""
        self._marks.write()

    def flush(self, timeout_seconds: float = worker.EXIT_SECONDS) -> bool:
        """Finish what waits: commits in the background, marks, checkpoints. Whether nothing was left in that time."""
        deadline = time.monotonic() + timeout_seconds
        done = worker.mirroring.finish(self._id, timeout_seconds)
        self._marks.write()
        left = max(0.0, deadline - time.monotonic())
        return worker.maintaining.finish(self._id, left, within_seconds=math.inf) and done

    def close(self, timeout_seconds: float = worker.EXIT_SECONDS) -> None:
        """Flush, at most five seconds long; the rest is left to the next process or the reconciler."""
        if self._closed:
            return
        self._closed = True
        if not self.flush(timeout_seconds):
            self.maintenance.abandon()
        worker.mirroring.drop(self._id)
        worker.maintaining.drop(self._id)
        self.alerts.close()

    def after_fork(self) -> None:
        """A child has none of its parent's threads, and must not wait for locks that they hold."""
        self.maintenance = Maintenance(self._store, self._config, self._address)
        self.alerts = Alerts(self._config)
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
