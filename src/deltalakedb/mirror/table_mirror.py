"""TableMirror: puts the commits of one table into its files, in order, and never overwrites another writer's."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deltalakedb import telemetry
from deltalakedb.exceptions import LogGapError, MalformedLogError, MirrorError
from deltalakedb.files.optional_files import Checksum
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import CommitInfo, Metadata, Protocol
from deltalakedb.log.protocol.commit import iter_actions, parse_action
from deltalakedb.log.protocol.completion import Mark, parse_mark
from deltalakedb.mirror.compare import first_difference, parse_commit
from deltalakedb.mirror.external import mark_of
from deltalakedb.mirror.put_lock import LeasePutLock
from deltalakedb.runtime.config import ConditionalPut
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.interface import Puts
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import RatifiedCommit
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow

UNKNOWN = -2
"""Value of `known` before the files were checked."""

PREDECESSOR_SECONDS = 0.2
"""How long to wait for another writer to mirror the preceding commit, before mirroring it from SQL instead."""

PROBED_AT_ONCE = 64

MAX_CHECKSUMS = 50
"""At most this many of the newest versions get a checksum: it is optional, and rarely read for older versions."""

_FIRST_LOOK_SECONDS = 0.0005
_LAST_LOOK_SECONDS = 0.02


class ForeignCommitError(MirrorError):
    """The files have another writer's commit under a version of ours."""

    def __init__(self, version: int, evidence: str) -> None:
        self.version = version
        self.evidence = evidence
        super().__init__(evidence)


class OutOfTimeError(MirrorError):
    """The caller's deadline has passed; the rest is mirrored later."""


@dataclass(frozen=True, slots=True)
class InForce:
    """Metadata and protocol as the files show them, and the version since which they hold."""

    since: int
    metadata: Metadata
    protocol: Protocol


class TableMirror:
    """The files of one table and how far they are mirrored. Callers hold `lock`."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        options: Mapping[str, str] | None,
        stop: threading.Event | None = None,
        conditional_put: ConditionalPut = "auto",
    ) -> None:
        self.lock = threading.Lock()
        self._conditional_put: ConditionalPut = conditional_put
        self.known = UNKNOWN
        """Every version up to this one is in the files."""
        self.probed = False
        self.is_remote = not table.location.startswith("file:")
        self.is_behind = False
        """Whether a background thread is mirroring this table."""
        self.is_late = False
        """Whether a commit has timed out waiting for that thread."""
        self.num_failures = 0
        self._is_together = self._is_unsynced = False
        self._turned = threading.Condition()
        self._written: deque[tuple[int, tuple[int, int] | None]] = deque()
        self.checksums: deque[tuple[int, Checksum]] = deque(maxlen=MAX_CHECKSUMS)
        """Checksums of versions that this process put, to be written later."""
        self.checked_at = 0.0
        """When SQL last said that the table was not purged, by this process's monotonic clock."""
        self.in_force: InForce | None = None
        """Metadata and protocol of the newest version in `checksums`."""
        self._stop = stop
        self._store = store
        self.reopen(table, options)

    def is_for(self, table: TableRow, options: Mapping[str, str] | None) -> bool:
        """Whether this mirror is for the table under its present name and these storage options."""
        return (self.table is table or self.table == table) and self.options == options

    def reopen(self, table: TableRow, options: Mapping[str, str] | None) -> None:
        """Use the same files under a new name or with new storage options."""
        self.table = table
        self.options = options
        self.is_explained = False
        """Whether this process has checked the notice beside the log, for the table's present name."""
        self.notice: bytes | None = None
        """A notice that is still to be written."""
        self._reader: FileTxnLogReader | None = None
        self.files = open_log_writer(self._store, table, options, self._conditional_put)

    # -- threads

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Context of a background thread's work, for which commits may wait."""
        self.is_behind = True
        try:
            yield
        except BaseException:
            self.num_failures += 1
            raise
        finally:
            with self._turned:
                self.is_behind = self.is_late = False
                self._turned.notify_all()

    def wait_for(self, version: int, num_failures: int, deadline: float) -> bool:
        """Wait until the files have a version or `num_failures` has grown; return False on timeout."""
        with self._turned:
            return self._turned.wait_for(
                lambda: self.known >= version or self.num_failures > num_failures,
                timeout=max(0.0, deadline - time.monotonic()),
            )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context in which several files are put and their names are synced once, at the end."""
        known_before = self.known
        self._is_together = True
        try:
            yield
        finally:
            unsynced, self._is_together, self._is_unsynced = self._is_unsynced, False, False
            if unsynced:
                put, self.known = self.known, known_before
                self.files.sync()  # if this fails, none of the new files is durable
                self.known = put

    # -- commits of this process

    def put_ratified(self, commits: Sequence[RatifiedCommit], *, deadline: float = math.inf) -> bool:
        """Put commits whose bytes are in memory, without SQL; return False if SQL is needed."""
        for commit in commits:
            if commit.version <= self.known:
                continue
            data = commit.late() if commit.data is None and commit.late is not None else commit.data
            if data is None or not self._has_predecessor(commit.version, data, deadline):
                return False
            files, size = commit.num_files, commit.size_bytes
            totals = None if files is None or size is None else (files, size)
            self._put(commit.version, data, commit.timestamp_ms, deadline, totals)
        return True

    def _has_predecessor(self, version: int, data: bytes, deadline: float) -> bool:
        """Whether the preceding version is in the files; waits for a writer that is about to put it."""
        if version == 0 or self.known >= version - 1:
            return True
        wait_until, pause = time.monotonic() + PREDECESSOR_SECONDS, _FIRST_LOOK_SECONDS
        newest = max(self.known, version - 1 - 64)
        while not self.files.has_commit(version - 1):
            while newest + 1 < version - 1 and self.files.has_commit(newest + 1):
                # The other writer makes progress: keep waiting.
                newest, wait_until = newest + 1, time.monotonic() + PREDECESSOR_SECONDS
            if time.monotonic() + pause > min(wait_until, deadline):
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SECONDS)
        return self._is_like(version - 1, data)

    def _is_like(self, version: int, data: bytes) -> bool:
        """Whether `version` in the files is by the catalog that made `data`; commits are never put on another's."""
        ours = _mark_of(self.table.full_name, data)
        if self._reader is None:
            self._reader = FileTxnLogReader(self.table.location, self.options, table=self.table.full_name)
        try:
            mark = mark_of(self._reader, version)
        except (LogGapError, MalformedLogError):
            return False
        if mark is None or ours is None:
            return False
        return (mark.catalog_id, mark.table_id) == (ours.catalog_id, ours.table_id)

    # -- from SQL

    def catch_up(self, *, deadline: float = math.inf) -> int:
        """Put every commit that SQL has and the files lack; return how many were new.

        If `stop` is set, ends after the current file.
        """
        with self._store.read(single=True) as conn:
            head = registry.read_head(conn, self.table.table_id)
        if head is None:
            return 0
        self.known = max(self.known, head.mirrored_version)
        if self.known >= head.current_version:
            return 0
        reader = SqlTxnLogReader(self._store, self.table)
        num_written = 0
        for commit in reader.mirror_commits(self.known + 1, head.current_version):
            if self._stop is not None and self._stop.is_set():
                break
            if time.monotonic() >= deadline:
                raise OutOfTimeError(
                    f"table {self.table.full_name}: versions {commit.version} to {head.current_version} are not in "
                    "the files yet; `dl mirror run` or the next commit goes on"
                )
            num_written += self._put(commit.version, commit.data, commit.timestamp_ms, deadline)
        return num_written

    def _put(
        self,
        version: int,
        data: bytes,
        timestamp_ms: int,
        deadline: float,
        totals: tuple[int, int] | None = None,
    ) -> bool:
        """Put one commit; return whether it was written now. A commit that exists already must be the same."""
        started = time.perf_counter()
        limit: dict[str, float] = (
            {} if deadline == math.inf else {"timeout_seconds": max(0.1, deadline - time.monotonic())}
        )
        with telemetry.span("deltalakedb.mirror", table=self.table.full_name, version=version):
            result = self.files.put_commit(
                version,
                data,
                modified_ms=timestamp_ms,
                lasting=not self._is_together,
                creates_folder=version == 0,  # a folder that is gone later was purged
                **limit,
            )
        is_new = result == "written"
        self._is_unsynced |= is_new and self._is_together
        if not is_new:
            self._check_same(version, data)
        reached("mirror.json_put")
        telemetry.observe_mirror((time.perf_counter() - started) * 1000)
        self.known = version
        if is_new:
            self._written.append((version, totals))
        return is_new

    def take_written(self) -> list[tuple[int, tuple[int, int] | None]]:
        """Remove and return the versions put since the last call, with their (files, bytes) if the commit has them."""
        versions = []
        while self._written:
            versions.append(self._written.popleft())
        return versions

    def _check_same(self, version: int, data: bytes) -> None:
        file_data = self.files.read_commit(version)
        if file_data is None:
            raise MirrorError(f"table {self.table.full_name}: version {version} was in the files, and then was not")
        if file_data == data:
            return
        difference = _difference(self.table.full_name, version, data, file_data)
        if difference is not None:
            raise ForeignCommitError(version, f"version {version} in the files is not ours: {difference}")

    # -- other writers' commits

    def find_foreign(self, *, deadline: float = math.inf) -> None:
        """Check the files after `known`; raise ForeignCommitError if another program wrote one. Writes nothing.

        Advances `known` over commits of ours that were not marked.
        """
        while self.files.has_commit(self.known + 1):
            with self._store.read(single=True) as conn:
                head = registry.read_head(conn, self.table.table_id)
            # Our writers commit in SQL first: SQL was read after the file was seen, so a file that it lacks is foreign.
            if head is None or head.current_version <= self.known:
                raise ForeignCommitError(self.known + 1, self._describe(self.known + 1))
            self.known = max(self.known, head.mirrored_version)
            last = min(head.current_version, self.known + PROBED_AT_ONCE)
            if self.known < last:
                self._compare(self.known + 1, last)
            if time.monotonic() >= deadline:
                raise OutOfTimeError(f"table {self.table.full_name}: its files were not all looked at in time")

    def _compare(self, first: int, last: int) -> None:
        for commit in SqlTxnLogReader(self._store, self.table).mirror_commits(first, last):
            if not self.files.has_commit(commit.version):
                return
            self._check_same(commit.version, commit.data)
            self.known = commit.version

    def _describe(self, version: int) -> str:
        file_data = self.files.read_commit(version) or b""
        return f"version {version} is in the files, but not in SQL: {_author(self.table.full_name, version, file_data)}"


def open_log_writer(
    store: Store, table: TableRow, options: Mapping[str, str] | None, conditional_put: ConditionalPut
) -> FileTxnLogWriter:
    """The writer of a table's `_delta_log`, which takes the table's lock if the object store needs one."""
    is_local = table.location.startswith("file:")
    puts = Puts(conditional_put, None if is_local else LeasePutLock(store, table))
    return FileTxnLogWriter(table.location, options, table=table.full_name, puts=puts)


def _mark_of(table: str, data: bytes) -> Mark | None:
    """The mark in the first line of one of our commits."""
    action = parse_action(data.partition(b"\n")[0], where=f"table {table}")
    return parse_mark(action) if isinstance(action, CommitInfo) else None


def _difference(table: str, version: int, ours: bytes, theirs: bytes) -> str | None:
    """The first difference between two renderings of a commit; None if they differ only in serialization."""
    try:
        difference = first_difference(parse_commit(table, version, ours), parse_commit(table, version, theirs))
    except MalformedLogError as error:
        return f"it cannot be read ({error})"
    return None if difference is None else f"{_author(table, version, theirs)}; {difference}"


def _author(table: str, version: int, data: bytes) -> str:
    """Who wrote a commit, as far as the file says."""
    try:
        actions: Iterable[object] = iter_actions(data.split(b"\n"), table=table, version=version)
        info = next((action for action in actions if isinstance(action, CommitInfo)), None)
    except MalformedLogError as error:
        return f"it cannot be read ({error})"
    if info is None:
        return "it does not say who wrote it"
    fields = {name: info.value.get(name) for name in ("engineInfo", "operation", "txnId")}
    return "written by " + ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
