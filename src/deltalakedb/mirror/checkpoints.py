"""Maintenance of the mirror's files: checkpoints, checksums and clean-up, by one process at a time."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.cleanup import protected_before
from deltalakedb.log.checks.properties import cleans_up, deleted_file_retention_ms, log_retention_ms
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.fence import fence
from deltalakedb.mirror import bookkeeping
from deltalakedb.mirror.checksums import prepare_checksums, put_checksums
from deltalakedb.mirror.notice import prepare_notice, put_notice
from deltalakedb.mirror.table_mirror import TableMirror
from deltalakedb.runtime.config import Config
from deltalakedb.runtime.steps import reached
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.reader import SqlTxnLogReader

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
DAY_MS = 86_400_000
FOR_EVER_MS = 100 * 366 * DAY_MS
PAUSE_SECONDS = 30.0
"""How long to wait after a failed checkpoint before the table's next one."""

SHARE = 0.02
"""The largest share of time to spend on one table's files, so that many commits a second cause fewer checkpoints."""

LONGEST_WAIT_SECONDS = 10.0

CHECKED_SECONDS = 1.0
"""How long checksums may wait before SQL is asked again whether the table still exists."""


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


def checkpoint_interval(configuration: Mapping[str, str | None], default: int) -> int:
    """The table's `delta.checkpointInterval` if it is a positive number, else the default."""
    text = configuration.get(CHECKPOINT_INTERVAL)
    return int(text) if text is not None and text.strip().isdecimal() and int(text) > 0 else default


class Maintenance:
    """Writes checkpoints, checksums and notices when due. None is urgent, so nothing here raises."""

    def __init__(self, store: Store, config: Config, address: str | None = None) -> None:
        self._store = store
        self._config = config
        self._address = address
        self._holder = bookkeeping.new_holder()
        self._seen: dict[int, CheckpointState] = {}
        self._not_before: dict[int, float] = {}
        self._next_turn: dict[int, float] = {}
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._abandoned = False

    def has_work(self, mirror: TableMirror, version: int) -> bool:
        """Whether a table whose files are at `version` needs maintenance, as far as this process knows."""
        state = self._seen.get(mirror.table.table_id)
        return bool(mirror.checksums) or mirror.notice is not None or state is None or self._wants(state, version)

    @staticmethod
    def _wants(seen: CheckpointState, version: int) -> bool:
        """A guess without SQL. A changed interval is noticed at the next checkpoint."""
        return version // seen.interval * seen.interval > seen.checkpoint_version

    def prepare(self, conn: Connection, mirror: TableMirror) -> None:
        """Read what maintenance needs, in the caller's transaction: on DuckDB a transaction costs more than a query."""
        table_id = mirror.table.table_id
        if table_id not in self._seen:  # a process that died may have left work
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
        state = self._seen.get(mirror.table.table_id)
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
        self._seen[table_id] = state
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
            keep_ms = retention_ms(deleted_file_retention_ms, metadata, self._config.retention_deleted_file_days)
            entry = mirror.files.write_checkpoint(
                snapshot,
                protocol=fence(snapshot.protocol) if snapshot.fenced else snapshot.protocol,
                tombstone_cutoff_ms=now_ms - keep_ms,
            )
            reached("mirror.checkpoint_written")
            mirror.files.write_last_checkpoint(entry)
            reached("mirror.last_checkpoint_written")
        if not cleans_up({k: v for k, v in metadata.configuration.items() if v is not None}):
            return state.cleaned_before
        keep_ms = retention_ms(log_retention_ms, metadata, self._config.retention_log_days)
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


def retention_ms(read: Callable[[Mapping[str, str], int], int], metadata: Metadata, default_days: int) -> int:
    """A retention of the table in milliseconds; an unreadable one keeps everything, which can be corrected later."""
    configuration = {key: value for key, value in metadata.configuration.items() if value is not None}
    try:
        return read(configuration, default_days * DAY_MS)
    except ValueError:
        return FOR_EVER_MS
