"""Maintenance of the mirror's files: checkpoints, checksums and clean-up, by one process at a time; and the marks
that say in SQL how far the files are."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial

from deltalakedb.exceptions import DeltaError, StoreError, redact
from deltalakedb.files.cleanup import DAY_MS, protected_before, retention_ms, settings_of
from deltalakedb.files.optional_files import Checksum
from deltalakedb.files.upkeep import checkpoint_interval
from deltalakedb.log.checks.properties import cleans_up, deleted_file_retention_ms, log_retention_ms
from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.completion import has_in_commit_timestamps
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.mirror import bookkeeping, worker
from deltalakedb.mirror.external import protocol_in_files, shown_protocol
from deltalakedb.mirror.notice import prepare_notice, put_notice
from deltalakedb.mirror.table_mirror import MAX_CHECKSUMS, InForce, TableMirror
from deltalakedb.runtime.config import Config
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE, Connection, Row, Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 30.0
"""How long to wait after a failed checkpoint before the table's next one."""

SHARE = 0.02
"""The largest share of time to spend on one table's files, so that many commits a second cause fewer checkpoints."""

LONGEST_WAIT_SECONDS = 10.0

CHECKED_SECONDS = 1.0
"""How long checksums may wait before SQL is asked again whether the table still exists."""

MARK_SECONDS = 0.5
"""The shortest time to collect marks, so that a commit does not cost a second transaction."""

MARK_SHARE = 0.05
"""The largest share of time for writing marks: if a transaction takes long, marks are collected for longer."""

MARK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """How far a table's files and checkpoints are, and its checkpoint interval."""

    mirrored_version: int
    base_version: int
    checkpoint_version: int
    cleaned_before: int
    interval: int

    @classmethod
    def of(cls, row: Row, default_interval: int) -> CheckpointState:
        return cls(
            mirrored_version=row["mirrored_version"],
            base_version=row["base_version"],
            checkpoint_version=row["checkpoint_version"] or 0,
            cleaned_before=row["cleaned_before"] or 0,
            interval=checkpoint_interval(json.loads(row["configuration"]), default_interval),
        )

    @property
    def due(self) -> int | None:
        """The version to checkpoint: the newest multiple of the interval in the files; None if it has a checkpoint."""
        version = self.mirrored_version // self.interval * self.interval
        return version if version > self.checkpoint_version and version >= self.base_version else None


class Maintenance:
    """Writes checkpoints, checksums and notices when due. None is urgent, so nothing here raises."""

    def __init__(self, store: Store, config: Config, address: object = None) -> None:
        self._store = store
        self._config = config
        self._address = address
        self._states: dict[int, CheckpointState] = {}
        self._not_before: dict[int, float] = {}
        self._next_turn: dict[int, float] = {}
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._abandoned = False

    @cached_property
    def _holder(self) -> str:
        return bookkeeping.new_holder()

    def has_work(self, mirror: TableMirror, version: int) -> bool:
        """Whether a table whose files are at `version` needs maintenance, as far as this process knows."""
        state = self._states.get(mirror.table.table_id)
        return bool(mirror.checksums) or mirror.notice is not None or state is None or self._wants(state, version)

    @staticmethod
    def _wants(state: CheckpointState, version: int) -> bool:
        """A guess without SQL. A changed interval is noticed at the next checkpoint."""
        return version // state.interval * state.interval > state.checkpoint_version

    def prepare(self, conn: Connection, mirror: TableMirror) -> None:
        """Read what maintenance needs, in the caller's transaction: on DuckDB a transaction costs more than a query."""
        table_id = mirror.table.table_id
        if table_id not in self._states:  # a process that died may have left work
            self._remember(table_id, conn.one("select_checkpoint_state", table_id=table_id))
        prepare_checksums(conn, mirror)
        prepare_notice(conn, mirror, self._address)

    def wait_seconds(self, table_id: int) -> float:
        """How long until the table may be maintained again."""
        return max(0.0, self._next_turn.get(table_id, 0.0) - time.monotonic())

    def maintain(self, mirror: TableMirror) -> None:
        """Write the checksums of new versions, and a checkpoint and clean-up if due."""
        table_id = mirror.table.table_id
        with self._locks[table_id]:  # the lease belongs to the whole process, so its threads take turns
            started = time.monotonic()
            self._maintain(mirror)
            ended = time.monotonic()
        self._next_turn[table_id] = ended + min((ended - started) / SHARE, LONGEST_WAIT_SECONDS)

    def _maintain(self, mirror: TableMirror) -> None:
        try:
            if mirror.checksums and time.monotonic() - mirror.checked_at > CHECKED_SECONDS:
                self._forget_purged(mirror)
            put_checksums(mirror)
        except DeltaError as error:
            logger.warning("table %s: no checksum: %s", mirror.table.full_name, redact(str(error)))
        self._explain(mirror)
        state = self._states.get(mirror.table.table_id)
        if state is None or self._wants(state, mirror.known):
            self._checkpoint(mirror)

    def explain(self, mirror: TableMirror) -> None:
        """Write the notice beside the table's log, if this process has not checked it yet."""
        with self._store.read() as conn:
            prepare_notice(conn, mirror, self._address)
        self._explain(mirror)

    def _explain(self, mirror: TableMirror) -> None:
        try:
            put_notice(self._store, mirror)
        except DeltaError as error:
            logger.info("table %s: no notice beside its log: %s", mirror.table.full_name, redact(str(error)))

    def _forget_purged(self, mirror: TableMirror) -> None:
        """Discard the checksums of a table that was purged while they waited: its folder may be another table's now."""
        if self._look(mirror.table.table_id) is None:
            mirror.checksums.clear()
            mirror.notice = None

    def _checkpoint(self, mirror: TableMirror) -> int | None:
        """Write the checkpoint that is due, unless another process does; return its version."""
        table_id = mirror.table.table_id
        if self._not_before.get(table_id, 0.0) > time.monotonic():
            return None
        try:
            state = self._look(table_id)
            if state is None or state.due is None or not self._claim(table_id):
                return None
            try:
                return self._write_due(mirror)
            except BaseException:
                self._release(table_id)
                raise
        except DeltaError as error:
            self._not_before[table_id] = time.monotonic() + PAUSE_SECONDS
            level = logging.DEBUG if self._abandoned else logging.WARNING
            logger.log(level, "table %s: no checkpoint: %s", mirror.table.full_name, redact(str(error)))
            return None

    def _look(self, table_id: int) -> CheckpointState | None:
        with self._store.read(single=True) as conn:
            row = conn.one("select_checkpoint_state", table_id=table_id)
        return self._remember(table_id, row)

    def _remember(self, table_id: int, row: Row | None) -> CheckpointState | None:
        if row is None:
            return None
        state = CheckpointState.of(row, self._config.mirror_checkpoint_interval)
        self._states[table_id] = state
        return state

    # -- the lease

    def _lease(self, table_id: int) -> str:
        return f"checkpoint:{table_id}"

    def _claim(self, table_id: int) -> bool:
        with self._store.write() as conn:
            return bookkeeping.take_lease(conn, self._lease(table_id), self._holder)

    def _release(self, table_id: int) -> None:
        with self._store.write() as conn:
            bookkeeping.release_lease(conn, self._lease(table_id), self._holder)

    def abandon(self) -> None:
        """Release the leases of this process, which is ending, so that the next one need not wait."""
        self._abandoned = True
        try:
            with self._store.write() as conn:
                conn.run("release_leases_of", holder=self._holder)
        except DeltaError as error:
            logger.debug("claims could not be given back, they run out by themselves: %s", redact(str(error)))

    # -- the work

    def _write_due(self, mirror: TableMirror) -> int | None:
        """Write checkpoints until none is due; the transaction that finds none also releases the lease."""
        table_id = mirror.table.table_id
        checkpoint_version: int | None = None
        with bookkeeping.renewed(self._store, self._lease(table_id), self._holder):
            while True:
                with self._store.write() as conn:
                    state = self._remember(table_id, conn.one("select_checkpoint_state", table_id=table_id))
                    now_ms = conn.now_ms()
                    if state is None or state.due is None or self._abandoned:
                        # Processes that found the lease taken have left; what became due meanwhile was checked in this
                        # transaction.
                        bookkeeping.release_lease(conn, self._lease(table_id), self._holder)
                        return checkpoint_version
                cleaned_before = self._write(mirror, state, state.due, now_ms)
                checkpoint_version = state.due
                with self._store.write() as conn:
                    conn.run(
                        "put_checkpoint",
                        table_id=table_id,
                        version=state.due,
                        written_at_ms=now_ms,
                        cleaned_before=cleaned_before,
                    )

    def _write(self, mirror: TableMirror, state: CheckpointState, version: int, now_ms: int) -> int:
        """Write the checkpoint and the pointer to it, then clean up; return the first commit left in the files."""
        snapshot = SqlTxnLogReader(self._store, mirror.table).snapshot(version)
        metadata = snapshot.metadata
        if (mirror.files.last_checkpoint() or 0) < version:
            # Otherwise it exists: from before the promotion, or by a process that died before it recorded it.
            keep_ms = retention_ms(
                deleted_file_retention_ms, metadata, self._config.retention_deleted_file_days * DAY_MS
            )
            entry = mirror.files.write_checkpoint(
                snapshot,
                protocol=shown_protocol(snapshot),
                tombstone_cutoff_ms=now_ms - keep_ms,
            )
            reached("mirror.checkpoint_written")
            mirror.files.write_last_checkpoint(entry)
            reached("mirror.last_checkpoint_written")
        if not cleans_up(settings_of(metadata)):
            return state.cleaned_before
        keep_ms = retention_ms(log_retention_ms, metadata, self._config.retention_log_days * DAY_MS)
        cutoff_ms = (now_ms - keep_ms) // DAY_MS * DAY_MS  # midnight UTC, as the protocol requires
        if not self._is_older(mirror, state.cleaned_before, cutoff_ms):
            return state.cleaned_before
        protection = protected_before(snapshot.protocol, metadata)
        result = mirror.files.clean_up(cutoff_ms=cutoff_ms, protected_before=protection)
        reached("mirror.cleaned")
        return result.first_version

    def _is_older(self, mirror: TableMirror, version: int, cutoff_ms: int) -> bool:
        """Whether the oldest commit that the files may have is before the cutoff; otherwise no listing is needed."""
        with self._store.read(single=True) as conn:
            row = conn.one("select_version_after", table_id=mirror.table.table_id, version=version - 1)
        return row is not None and row["committed_at_ms"] < cutoff_ms


@dataclass(frozen=True, slots=True)
class Totals:
    """Number and size of a version's live files."""

    num_files: int
    size_bytes: int


def prepare_checksums(conn: Connection, mirror: TableMirror) -> None:
    """Compute the checksums of the versions that this process put since the last call, to be written later."""
    put = dict(mirror.take_written()[-MAX_CHECKSUMS:])
    table_id = mirror.table.table_id
    head = registry.read_head(conn, table_id) if put else None
    if head is None or head.vacuumed_version == LIVE:  # purged: its folder is gone, or another table's
        return
    mirror.checked_at = time.monotonic()
    counted = totals_at(conn, head, [version for version, totals in put.items() if totals is None])
    checksums: list[tuple[int, Checksum]] = []
    for version in sorted(put, reverse=True):
        in_force = _in_force(conn, mirror, head, version)
        commit_totals = put[version]
        totals = counted[version] if commit_totals is None else Totals(*commit_totals)
        timestamp = None
        if has_in_commit_timestamps(in_force.metadata):
            timestamp = _in_commit_timestamp(conn, table_id, version)
            if timestamp is None:
                continue  # the protocol requires the timestamp in the checksum
        checksum = Checksum(totals.size_bytes, totals.num_files, in_force.metadata, in_force.protocol, timestamp)
        checksums.append((version, checksum))
    mirror.checksums.extend(reversed(checksums))


def put_checksums(mirror: TableMirror) -> None:
    """Write the computed checksums."""
    while mirror.checksums:
        mirror.files.put_checksum(*mirror.checksums.popleft())
        reached("mirror.crc_written")


def totals_at(conn: Connection, head: Head, versions: Iterable[int]) -> dict[int, Totals]:
    """The totals of versions: those of the head, minus what later commits added, plus what they removed.

    The cost is that of the rows changed since, not of the table. A file that is added again replaces its row: both
    count.
    """
    descending = sorted(set(versions), reverse=True)
    if not descending:
        return {}
    range_ = {"table_id": head.table_id, "first_version": descending[-1] + 1, "last_version": head.current_version}
    changes: dict[int, tuple[int, int]] = {}
    if descending[-1] < head.current_version:
        for query, sign in (("count_adds_by_version", -1), ("count_closes_by_version", 1)):
            for row in conn.all(query, **range_):
                files, size = changes.get(row["version"], (0, 0))
                changes[row["version"]] = (files + sign * int(row["num_files"]), size + sign * int(row["size_bytes"]))
    num_files, size_bytes = head.num_files, head.size_bytes
    totals: dict[int, Totals] = {}
    newer = head.current_version
    for version in descending:
        for undone in range(newer, version, -1):
            files, size = changes.get(undone, (0, 0))
            num_files, size_bytes = num_files + files, size_bytes + size
        newer = version
        totals[version] = Totals(num_files, size_bytes)
    return totals


def _in_force(conn: Connection, mirror: TableMirror, head: Head, version: int) -> InForce:
    """Metadata and protocol at a version; those of the head, which are needed almost always, are cached."""
    since = max(head.metadata_version, head.protocol_version)
    cached = mirror.in_force
    if cached is not None and cached.since == since and since <= version:
        return cached
    metadata = conn.one("select_metadata", table_id=head.table_id, version=version)
    protocol = conn.one("select_protocol", table_id=head.table_id, version=version)
    if metadata is None or protocol is None:
        raise StoreError(f"table {mirror.table.full_name} has no metadata or no protocol at version {version}")
    since = max(metadata["version"], protocol["version"])
    mirror.in_force = InForce(since, metadata_from_row(metadata), protocol_in_files(protocol))
    return mirror.in_force


def _in_commit_timestamp(conn: Connection, table_id: int, version: int) -> int | None:
    row = conn.one("select_version", table_id=table_id, version=version)
    if row is None or row["commit_info"] is None:
        return None
    return CommitInfo(row["commit_info"]).in_commit_timestamp


class Marks:
    """The marks of one engine. A lost mark is harmless: the next pass finds the same bytes in the files."""

    def __init__(self, store: Store, maintenance: Maintenance, owner: Hashable) -> None:
        self._store = store
        self._maintenance = maintenance
        self._owner = owner
        self._lock = threading.Lock()
        self._gathered: dict[int, tuple[TableMirror, int]] = {}
        self._seconds = MARK_SECONDS

    def add(self, mirror: TableMirror) -> None:
        """Mark a table's files as mirrored up to `mirror.known`."""
        self._put_back({mirror.table.table_id: (mirror, mirror.known)})
        worker.mirroring.schedule((self._owner, "marks"), self.write, self._seconds)

    def _put_back(self, marks: dict[int, tuple[TableMirror, int]]) -> None:
        with self._lock:
            for table_id, (mirror, version) in marks.items():
                gathered = self._gathered.get(table_id)
                if gathered is None or gathered[1] < version:
                    self._gathered[table_id] = (mirror, version)

    def write(self) -> None:
        """Write the collected marks, read in the same transaction what maintenance needs, and schedule maintenance."""
        with self._lock:
            marks, self._gathered = self._gathered, {}
        if not marks:
            return
        started = time.monotonic()
        try:
            with self._store.write(durable=False) as conn:
                for mirror, _ in marks.values():
                    self._maintenance.prepare(conn, mirror)
                conn.defer()
                bookkeeping.mark(conn, {table_id: version for table_id, (_, version) in marks.items()})
        except DeltaError as error:
            logger.debug("the mirror's marks could not be written: %s", redact(str(error)))
            self._put_back(marks)
            worker.mirroring.schedule((self._owner, "marks"), self.write, MARK_AGAIN_SECONDS)
            return
        self._seconds = max(MARK_SECONDS, (time.monotonic() - started) / MARK_SHARE)
        reached("mirror.marked")
        for mirror, version in marks.values():
            if self._maintenance.has_work(mirror, version):
                self._maintain_in_turn(mirror)

    def _maintain_in_turn(self, mirror: TableMirror) -> None:
        table_id = mirror.table.table_id
        run = partial(self._maintenance.maintain, mirror)
        worker.maintaining.schedule((self._owner, "maintain", table_id), run, self._maintenance.wait_seconds(table_id))
