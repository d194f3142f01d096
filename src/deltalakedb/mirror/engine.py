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
from dataclasses import dataclass
from functools import partial

from deltalakedb import telemetry
from deltalakedb.config import Config, MirrorMode
from deltalakedb.exceptions import DeltaError, ExternalWriterError, MirrorError, redact
from deltalakedb.mirror import bookkeeping, worker
from deltalakedb.mirror.alerts import Alerts
from deltalakedb.mirror.checkpoints import Maintenance
from deltalakedb.mirror.table_mirror import UNKNOWN, ForeignCommitError, OutOfTimeError, TableMirror
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Outcome, RatifiedCommit
from deltalakedb.store.registry import Head, TableRow

logger = logging.getLogger(__name__)

MARK_SECONDS = 0.15
"""Marks are gathered this long at least: a commit must not pay for a second transaction."""

MARK_SHARE = 0.05
"""Where a transaction takes long, marks are gathered for longer: they take no more than this part of the time."""

MAX_HELD_BYTES = 16 * 1024 * 1024
"""Commits that wait for the background keep their bytes up to here; others are read back from SQL."""

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
    ) -> None:
        self.mode: MirrorMode = config.mirror_mode if mode is None else mode
        self.alerts = Alerts(config)
        self._store = store
        self._config = config
        self._options_of = options_of
        self._stop = stop
        self._id = next(_ids)
        self._lock = threading.Lock()
        self._tables: dict[int, TableMirror] = {}
        self._marks: dict[int, int] = {}
        self._mark_seconds = MARK_SECONDS
        self._held: dict[int, list[RatifiedCommit]] = {}
        self._held_bytes = 0
        self._retry_at: dict[int, float] = {}
        self._closed = False
        self.maintenance = Maintenance(store, config)
        worker.close_at_exit(self)

    def __repr__(self) -> str:
        return f"MirrorEngine({self._store!r}, mode={self.mode!r})"

    # -- around a commit

    def probe(self, table: TableRow, head: Head | None = None) -> None:
        """Before a process's first commit to a table: see that nobody else wrote into its files meanwhile.

        ExternalWriterError when somebody did; the table is frozen then. Files that cannot be looked at stop no commit.
        """
        mirror = self._mirror_of(table)
        if mirror.probed:
            return
        with mirror.lock:
            try:
                if mirror.known == UNKNOWN:
                    mirror.known = self._mirrored_version(table, head)
                before = mirror.known
                mirror.find_foreign()
                mirror.probed = True
                if mirror.known > before:
                    self._mark(mirror)
            except ForeignCommitError as error:
                raise self._freeze(mirror, error) from error
            except MirrorError as error:
                logger.warning("table %s: its files could not be looked at: %s", table.full_name, redact(str(error)))

    def after_commit(self, outcome: Outcome) -> None:
        """Mirror what a transaction committed, as the mode says. Nothing here fails: the commit is made already."""
        if self.mode == "off" or not outcome.commits:
            return
        try:
            if self.mode == "background":
                self._hold(outcome.commits)
            else:
                self._mirror_inline(outcome)
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
            num_written, error = self._attempt(mirror, (), deadline)
        return MirrorResult(table, before, mirror.known, num_written, error)

    def _attempt(
        self, mirror: TableMirror, commits: Iterable[RatifiedCommit], deadline: float
    ) -> tuple[int, str | None]:
        """Put the commits, or all that SQL has beyond the files; what failed, if anything. The lock is held."""
        before, num_written = mirror.known, 0
        error: DeltaError | None = None
        reached("mirror.start")
        try:
            at_hand = list(commits)
            if not at_hand or not mirror.put_ratified(at_hand, deadline=deadline):
                num_written = mirror.catch_up(deadline=deadline)
        except ForeignCommitError as foreign:
            raise self._freeze(mirror, foreign) from foreign
        except DeltaError as caught:
            error = caught
        finally:
            if mirror.known > before:
                self._mark(mirror)
        if error is None:
            self._retry_at.pop(mirror.table.table_id, None)
            return num_written, None
        self._failed(mirror, error)
        return num_written, redact(str(error))

    def maintain_table(self, table: TableRow) -> None:
        """Checksums, a checkpoint and clean-up of a table, if they are due and nobody else is at it."""
        self._write_marks()
        self.maintenance.maintain(self._mirror_of(table))

    # -- in line

    def _mirror_inline(self, outcome: Outcome) -> None:
        deadline = time.monotonic() + self._config.mirror_inline_timeout
        for table, commits in _by_table(outcome.commits):
            mirror = self._mirror_of(table)
            if self._retry_at.get(table.table_id, 0.0) > time.monotonic():
                continue  # it failed a moment ago: the background tries again, commits do not queue up behind it
            if not mirror.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._later(mirror, 0.0)
                continue
            try:
                self._attempt(mirror, commits, deadline)
            except ExternalWriterError as error:
                logger.error("%s", error)
            finally:
                mirror.lock.release()

    # -- in the background

    def _hold(self, commits: Iterable[RatifiedCommit]) -> None:
        for table, group in _by_table(commits):
            with self._lock:
                size = sum(len(commit.data or b"") for commit in group)
                if self._held_bytes + size <= MAX_HELD_BYTES:
                    self._held.setdefault(table.table_id, []).extend(group)
                    self._held_bytes += size
            mirror = self._mirror_of(table)
            wait = self._retry_at.get(table.table_id, 0.0) - time.monotonic()
            self._later(mirror, max(0.0, wait))

    def _later(self, mirror: TableMirror, delay_seconds: float) -> None:
        key = (self._id, "table", mirror.table.table_id)
        worker.mirroring.schedule(key, lambda: self._work(mirror), delay_seconds)

    def _work(self, mirror: TableMirror) -> None:
        with self._lock:
            held = self._held.pop(mirror.table.table_id, [])
            self._held_bytes -= sum(len(commit.data or b"") for commit in held)
        held.sort(key=lambda commit: commit.version)
        with mirror.lock:
            try:
                self._attempt(mirror, held, math.inf)
            except ExternalWriterError as error:
                logger.error("%s", error)

    # -- bookkeeping

    def _mark(self, mirror: TableMirror) -> None:
        table_id = mirror.table.table_id
        with self._lock:
            self._marks[table_id] = max(mirror.known, self._marks.get(table_id, -1))
        worker.mirroring.schedule((self._id, "marks"), self._write_marks, self._mark_seconds)

    def _write_marks(self) -> None:
        """What the files have, into SQL. A mark that is lost is harmless: the next pass finds equal bytes."""
        with self._lock:
            marks, self._marks = self._marks, {}
        if not marks:
            return
        started = time.monotonic()
        try:
            with self._store.write(durable=False) as conn:
                for table_id in marks:
                    self.maintenance.prepare(conn, self._tables[table_id])
                conn.defer()
                bookkeeping.mark(conn, marks)
        except DeltaError as error:
            logger.debug("the mirror's marks could not be written: %s", redact(str(error)))
            with self._lock:
                self._marks = marks | {k: max(v, marks.get(k, -1)) for k, v in self._marks.items()}
            if not self._closed:
                worker.mirroring.schedule((self._id, "marks"), self._write_marks, 1.0)
            return
        self._mark_seconds = max(MARK_SECONDS, (time.monotonic() - started) / MARK_SHARE)
        reached("mirror.marked")
        for table_id, version in marks.items():
            mirror = self._tables[table_id]
            if self.maintenance.has_work(mirror, version):
                run = partial(self.maintenance.maintain, mirror)
                worker.maintaining.schedule(
                    (self._id, "maintain", table_id), run, self.maintenance.wait_seconds(table_id)
                )

    def _failed(self, mirror: TableMirror, error: DeltaError) -> None:
        """A row in SQL, a warning, a metric, and another try when the row says so."""
        table = mirror.table
        text = redact(str(error))
        if mirror.known == UNKNOWN:
            try:
                mirror.known = self._mirrored_version(table)
            except DeltaError as trouble:
                logger.warning("table %s: its head could not be read: %s", table.full_name, redact(str(trouble)))
        version = max(mirror.known + 1, 0)
        telemetry.mirror_failed(table.full_name, version, text)
        logger.warning("table %s: version %d is not mirrored yet: %s", table.full_name, version, text)
        wait = 0.0 if isinstance(error, OutOfTimeError) else self._config.mirror_retry_backoff
        try:
            failure = bookkeeping.record_failure(self._store, table.table_id, version, text, first_seconds=wait)
            wait = failure.wait_seconds
            self.alerts.lag(table.full_name, failure.lag_seconds, version=version, error=text)
        except DeltaError as trouble:
            logger.warning("table %s: its failure could not be recorded: %s", table.full_name, redact(str(trouble)))
        self._retry_at[table.table_id] = time.monotonic() + wait
        if not self._closed:
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

    def _mirror_of(self, table: TableRow) -> TableMirror:
        mirror = self._tables.get(table.table_id)
        if mirror is None or mirror.table.location != table.location:
            with self._lock:
                mirror = self._tables.get(table.table_id)
                if mirror is None or mirror.table.location != table.location:
                    mirror = TableMirror(self._store, table, self._options_of(table), self._stop)
                    self._tables[table.table_id] = mirror
        return mirror

    def _mirrored_version(self, table: TableRow, head: Head | None = None) -> int:
        if head is None:
            with self._store.read(single=True) as conn:
                head = registry.read_head(conn, table.table_id)
        return -1 if head is None else head.mirrored_version

    # -- the end

    def flush(self, timeout_seconds: float = worker.EXIT_SECONDS) -> bool:
        """Finish what waits: commits in the background, marks, checkpoints. Whether nothing was left in that time."""
        deadline = time.monotonic() + timeout_seconds
        done = worker.mirroring.finish(self._id, timeout_seconds)
        self._write_marks()
        left = max(0.0, deadline - time.monotonic())
        return worker.maintaining.finish(self._id, left, within_seconds=math.inf) and done

    def close(self) -> None:
        """Flush, at most five seconds long; the rest is left to the next process or the reconciler."""
        if self._closed:
            return
        self._closed = True
        if not self.flush():
            self.maintenance.abandon()
        worker.mirroring.drop(self._id)
        worker.maintaining.drop(self._id)
        self.alerts.close()

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
