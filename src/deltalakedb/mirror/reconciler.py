"""The reconciler: mirrors what commits left unfinished; versions of a table in order, tables in parallel."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deltalakedb import telemetry
from deltalakedb.exceptions import DeltaError, MirrorError, NotWritableError, StoreError, redact
from deltalakedb.mirror import bookkeeping, detach
from deltalakedb.mirror.bookkeeping import Unmirrored
from deltalakedb.mirror.checkpoints import CheckpointState
from deltalakedb.mirror.engine import MirrorEngine, MirrorResult, OptionsOf
from deltalakedb.mirror.purge import finish_purges
from deltalakedb.runtime.config import Config
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

CHECKPOINT_LOOK_SECONDS = 10.0
"""How often to check all tables for checkpoints that their writers left undone."""

Report = Callable[[MirrorResult], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """The unmirrored tables, and the time by the database's clock."""

    now_ms: int
    tables: list[Unmirrored]


class Reconciler:
    """Mirrors all managed tables, once or repeatedly. Close it."""

    def __init__(
        self,
        store: Store,
        *,
        config: Config,
        options_of: OptionsOf,
        workers: int = 4,
        stop: threading.Event | None = None,
        address: object = None,
    ) -> None:
        self.stop = stop or threading.Event()
        self._store = store
        self._config = config
        self._options_of = options_of
        self._engine = MirrorEngine(
            store, config=config, options_of=options_of, mode="off", stop=self.stop, address=address
        )
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="deltalakedb-reconciler")
        self._busy: dict[int, Future[None]] = {}
        self._late: dict[str, float] = {}

    def __enter__(self) -> Reconciler:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the current files, and record how far they are."""
        self.stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._engine.close()

    # -- once

    def once(self, tables: Collection[int] | None = None) -> list[MirrorResult]:
        """Mirror all unmirrored tables, or those with these ids, ignoring their back-off; then do what else is due."""
        pending = self._pending()
        chosen = [
            pending_table
            for pending_table in pending.tables
            if tables is None or pending_table.table.table_id in tables
        ]
        results = list(self._pool.map(lambda one: self._mirror(one.table), chosen))
        self._engine.flush()
        self._watch(self._pending())
        self._maintain(None if tables is None else set(tables), wait=True)
        return results

    # -- repeatedly

    def run(self, interval_seconds: float, report: Report, complain: Callable[[Exception], None]) -> None:
        """Repeat until `stop` is set. Failures are reported and retried; they do not delay other tables."""
        next_look = 0.0
        while not self.stop.is_set():
            try:
                self._start_due(report)
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + CHECKPOINT_LOOK_SECONDS
                    self._maintain(None, wait=False)
            except StoreError as error:  # the database may become available again
                complain(error)
            self.stop.wait(interval_seconds)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_due(self, report: Report) -> None:
        self._busy = {table_id: future for table_id, future in self._busy.items() if not future.done()}
        pending = self._pending()
        self._watch(pending)
        for pending_table in pending.tables:
            if pending_table.table.table_id in self._busy or (pending_table.next_try_ms or 0) > pending.now_ms:
                continue
            self._busy[pending_table.table.table_id] = self._pool.submit(self._work, pending_table.table, report)

    def _work(self, table: TableRow, report: Report) -> None:
        result = self._mirror(table)
        if result.error is not None or result.to_version > result.from_version:
            report(result)

    # -- both

    def _mirror(self, table: TableRow) -> MirrorResult:
        """Mirror one table; a failure is returned in the result and does not affect other tables."""
        try:
            result = self._engine.mirror_table(table)
            if table.state == "detaching" and result.error is None:
                self._finish_detaching(table, result.to_version)
            return result
        except DeltaError as error:
            return MirrorResult(table, -1, -1, error=redact(str(error)))
        except Exception as error:  # a bug met by one table must not stop the others
            logger.exception("table %s could not be mirrored", table.full_name)
            return MirrorResult(table, -1, -1, error=redact(f"{type(error).__name__}: {error}"))

    def _finish_detaching(self, table: TableRow, version: int) -> None:
        """Finish the detach of a table whose process died before the files had everything."""
        try:
            self._engine.forget_table(table)
            detach.finish(self._store, table, version, actor=self._config.actor, origin="mirror")
        except (NotWritableError, MirrorError) as error:  # dropped, detached or committed to meanwhile
            logger.debug("table %s is not detached yet: %s", table.full_name, error)

    def _pending(self) -> _Pending:
        with self._store.read() as conn:
            return _Pending(conn.now_ms(), bookkeeping.unmirrored_tables(conn))

    def _watch(self, pending: _Pending) -> None:
        """Report the lag of each table, and zero for those that have recovered.

        After the reconciler's start, tables may only be waiting for their turn: that is no reason for an alert.
        """
        now = time.monotonic()
        late: dict[str, float] = {}
        for pending_table in pending.tables:
            name = pending_table.table.full_name
            late[name] = self._late.get(name, now)
            waited_ms = (
                0
                if pending_table.oldest_unmirrored_ms is None
                else max(1, pending.now_ms - pending_table.oldest_unmirrored_ms)
            )
            telemetry.mirror_lag(name, waited_ms / 1000)
            if pending_table.error is not None or now - late[name] >= self._config.mirror_alert_after:
                self._engine.alerts.lag(
                    name, waited_ms / 1000, version=pending_table.mirrored_version + 1, error=pending_table.error
                )
        for name in self._late.keys() - late.keys():
            self._engine.alerts.lag(name, 0.0, version=0)
        self._late = late

    def _maintain(self, tables: Collection[int] | None, *, wait: bool) -> None:
        """Finish what other processes left: due checkpoints, complete detaching tables, and purges."""
        with self._store.read() as conn:
            rows = conn.all("select_checkpoint_states")
            detaching = [table for table in registry.list_tables(conn) if table.state == "detaching"]
        futures: list[Future[Any]] = [
            self._pool.submit(self._mirror, table) for table in detaching if tables is None or table.table_id in tables
        ]
        if tables is None:
            futures.append(self._pool.submit(finish_purges, self._store, self._options_of, config=self._config))
        for row in rows:
            if tables is not None and row["table_id"] not in tables:
                continue
            if CheckpointState.of(row, self._config.mirror_checkpoint_interval).due is not None:
                futures.append(self._pool.submit(self._engine.maintain_table, registry.to_table_row(row)))
        if wait:
            for future in futures:
                future.result()
