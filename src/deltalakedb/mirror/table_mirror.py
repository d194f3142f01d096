"""TableMirror: puts the commits of one table into its files, in order, never in place of another's."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deltalakedb import telemetry
from deltalakedb.config import ConditionalPut
from deltalakedb.exceptions import LogGapError, MalformedLogError, MirrorError
from deltalakedb.files.checksum import Checksum
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.actions import CommitInfo, Metadata, Protocol
from deltalakedb.log.commit import Commit, iter_actions, parse_action
from deltalakedb.log.commit_info import Mark, parse_mark
from deltalakedb.mirror.compare import first_difference
from deltalakedb.mirror.external import mark_of
from deltalakedb.mirror.put_lock import open_log_writer
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import RatifiedCommit
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow

UNKNOWN = -2
"""How far the files are, before anybody has looked."""

PREDECESSOR_SECONDS = 0.2
"""How long the commit of another writer may take into the files before it is put there for him, from SQL."""

PROBED_AT_ONCE = 64

MAX_CHECKSUMS = 50
"""Of more versions than this only the newest get a checksum: readers do without, and the older it is the fewer ask."""

_FIRST_LOOK_SECONDS = 0.0005
_LAST_LOOK_SECONDS = 0.02


class ForeignCommitError(MirrorError):
    """Somebody else's file has the name of a commit of ours."""

    def __init__(self, version: int, evidence: str) -> None:
        self.version = version
        self.evidence = evidence
        super().__init__(evidence)


class OutOfTimeError(MirrorError):
    """The time a caller gave is over; what is left goes on later."""


@dataclass(frozen=True, slots=True)
class InForce:
    """Metadata and protocol, as the files show them, and from which version on they hold."""

    since: int
    metadata: Metadata
    protocol: Protocol


class TableMirror:
    """The files of one table and how far they are. Whoever calls holds `lock`."""

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
        """Whether another thread than a commit's own is at work here."""
        self.is_late = False
        """Whether a commit has waited for that thread in vain."""
        self.num_failures = 0
        self._is_together = self._is_unsynced = False
        self._turned = threading.Condition()
        self._written: deque[tuple[int, tuple[int, int] | None]] = deque()
        self.checksums: deque[tuple[int, Checksum]] = deque(maxlen=MAX_CHECKSUMS)
        """Of versions put by us, to be written when there is time."""
        self.checked_at = 0.0
        """When SQL last said that the table was not purged, on this process's clock."""
        self.in_force: InForce | None = None
        """What the newest of them was made from."""
        self._stop = stop
        self._store = store
        self.reopen(table, options)

    def is_for(self, table: TableRow, options: Mapping[str, str] | None) -> bool:
        """Whether these are the table's files, under its name of now, reached by these options."""
        return (self.table is table or self.table == table) and self._options == options

    def reopen(self, table: TableRow, options: Mapping[str, str] | None) -> None:
        """The same files, under another name or by other options."""
        self.table = table
        self._options = options
        self._reader: FileTxnLogReader | None = None
        self.files = open_log_writer(self._store, table, options, self._conditional_put)

    # -- threads

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Around the work of a thread that commits may wait for."""
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
        """Wait until the files have a version, or there are more failures than before; False when time is up."""
        with self._turned:
            return self._turned.wait_for(
                lambda: self.known >= version or self.num_failures > num_failures,
                timeout=max(0.0, deadline - time.monotonic()),
            )

    @contextmanager
    def together(self, several: bool) -> Iterator[None]:
        """The names of several files put within are made durable at the end, all at once."""
        before = self.known
        self._is_together = several
        try:
            yield
        finally:
            unsynced, self._is_together, self._is_unsynced = self._is_unsynced, False, False
            if unsynced:
                put, self.known = self.known, before
                self.files.sync()  # if that fails, nothing of it can be relied on
                self.known = put

    # -- what the commit's own process knows

    def put_ratified(self, commits: Sequence[RatifiedCommit], *, deadline: float = math.inf) -> bool:
        """Put commits whose bytes are at hand, without asking SQL; False when that is not enough to go on."""
        for commit in commits:
            if commit.version <= self.known:
                continue
            data = commit.rendered()
            if data is None or not self._has_predecessor(commit.version, data, deadline):
                return False
            self._put(commit.version, data, commit.timestamp_ms, deadline, _totals(commit))
        return True

    def _has_predecessor(self, version: int, data: bytes, deadline: float) -> bool:
        """Whether the version before is in the files; another writer who is about to put it is waited for."""
        if version == 0 or self.known >= version - 1:
            return True
        patience, pause = time.monotonic() + PREDECESSOR_SECONDS, _FIRST_LOOK_SECONDS
        seen = max(self.known, version - 1 - 64)
        while not self.files.has_commit(version - 1):
            while seen + 1 < version - 1 and self.files.has_commit(seen + 1):
                seen, patience = seen + 1, time.monotonic() + PREDECESSOR_SECONDS  # it goes on: worth the wait
            if time.monotonic() + pause > min(patience, deadline):
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SECONDS)
        return self._is_like(version - 1, data)

    def _is_like(self, version: int, data: bytes) -> bool:
        """Whether the catalog that made `data` made a version in the files: nothing is put on top of another's."""
        ours = _mark_of(self.table.full_name, data)
        if self._reader is None:
            self._reader = FileTxnLogReader(self.table.location, self._options, table=self.table.full_name)
        try:
            mark = mark_of(self._reader, version)
        except (LogGapError, MalformedLogError):
            return False
        if mark is None or ours is None:
            return False
        return (mark.catalog_id, mark.table_id) == (ours.catalog_id, ours.table_id)

    # -- from SQL

    def catch_up(self, *, deadline: float = math.inf) -> int:
        """Put every commit that SQL has and the files have not; how many were not there before.

        Told to stop, it ends after the file at hand.
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
        """One commit; whether it was written now. What is there already must be the same."""
        watch = telemetry.Stopwatch()
        limit: dict[str, float] = (
            {} if deadline == math.inf else {"timeout_seconds": max(0.1, deadline - time.monotonic())}
        )
        with telemetry.span("deltalakedb.mirror", table=self.table.full_name, version=version):
            result = self.files.put_commit(
                version,
                data,
                modified_ms=timestamp_ms,
                lasting=not self._is_together,
                creates_folder=version == 0,  # later on, one that is gone was purged
                **limit,
            )
        is_new = result == "written"
        self._is_unsynced |= is_new and self._is_together
        if not is_new:
            self._check_same(version, data)
        reached("mirror.json_put")
        telemetry.observe_mirror(watch.milliseconds)
        self.known = version
        if is_new:
            self._written.append((version, totals))
        return is_new

    def take_written(self) -> list[tuple[int, tuple[int, int] | None]]:
        """The versions put by us since the last time, with their files and bytes where the commit told them."""
        taken = []
        while self._written:
            taken.append(self._written.popleft())
        return taken

    def _check_same(self, version: int, data: bytes) -> None:
        found = self.files.read_commit(version)
        if found is None:
            raise MirrorError(f"table {self.table.full_name}: version {version} was in the files, and then was not")
        if found == data:
            return
        difference = _difference(self.table.full_name, version, data, found)
        if difference is not None:
            raise ForeignCommitError(version, f"version {version} in the files is not ours: {difference}")

    # -- looking for others

    def find_foreign(self, *, deadline: float = math.inf) -> None:
        """Look at the files after the last one known to be ours; ForeignCommitError when somebody else wrote one.

        Nothing is written. What is ours and was not marked is known from now on.
        """
        while self.files.has_commit(self.known + 1):
            with self._store.read(single=True) as conn:
                head = registry.read_head(conn, self.table.table_id)
            # Our writers commit in SQL first: a file that SQL knows nothing of, asked after it was seen, is not theirs.
            if head is None or head.current_version <= self.known:
                raise ForeignCommitError(self.known + 1, self._described(self.known + 1))
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

    def _described(self, version: int) -> str:
        found = self.files.read_commit(version) or b""
        return f"version {version} is in the files, but not in SQL: {_author(self.table.full_name, version, found)}"


def _mark_of(table: str, data: bytes) -> Mark | None:
    """The mark of a commit of ours, which stands in its first line."""
    action = parse_action(data.partition(b"\n")[0], where=f"table {table}")
    return parse_mark(action) if isinstance(action, CommitInfo) else None


def _totals(commit: RatifiedCommit) -> tuple[int, int] | None:
    return None if commit.num_files is None or commit.size_bytes is None else (commit.num_files, commit.size_bytes)


def _difference(table: str, version: int, ours: bytes, theirs: bytes) -> str | None:
    """Where two renderings of a commit say different things; None when a newer serializer said the same otherwise."""
    try:
        found = first_difference(_parsed(table, version, ours), _parsed(table, version, theirs))
    except MalformedLogError as error:
        return f"it cannot be read ({error})"
    return None if found is None else f"{_author(table, version, theirs)}; {found}"


def _parsed(table: str, version: int, data: bytes) -> Commit:
    return Commit(version, 0, tuple(iter_actions(data.split(b"\n"), table=table, version=version)))


def _author(table: str, version: int, data: bytes) -> str:
    """Who wrote a file, as far as it says so."""
    try:
        actions: Iterable[object] = iter_actions(data.split(b"\n"), table=table, version=version)
        info = next((action for action in actions if isinstance(action, CommitInfo)), None)
    except MalformedLogError as error:
        return f"it cannot be read ({error})"
    if info is None:
        return "it does not say who wrote it"
    said = {name: info.value.get(name) for name in ("engineInfo", "operation", "txnId")}
    return "written by " + ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
