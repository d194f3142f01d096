"""Intent locks: locks on tables for a long rewrite, which make conflicting writers wait, up to a limit.

A lock is a row in `dl_leases` that expires by itself. It decides nothing: conflicts are still found at commit, so a
lost lock costs work, never correctness.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import DeltaError, StoreError, TableLockedError, redact
from deltalakedb.runtime import forks
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.store import Connection, Store
from deltalakedb.store.connection import Row
from deltalakedb.store.names import TableName
from deltalakedb.store.registry import TableRow, to_table_row

if TYPE_CHECKING:
    from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a lock outlives a process that died."""

_RETRIES = Backoff(0.02, 1.0)


class IntentLocks:
    """The intent locks of one transaction. A thread renews them until `release`."""

    def __init__(
        self, store: Store, tables: Sequence[TableRow], holder: str, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._store = store
        # Every transaction takes locks in the order of table ids, so that two of them cannot deadlock.
        self._tables = sorted(tables, key=lambda table: table.table_id)
        self._holder = holder
        self._lease_ms = round(lease_seconds * 1000)
        self._released = threading.Event()
        self._generation = forks.generation
        self._renewer: threading.Thread | None = None

    def take(self, wait_seconds: float) -> None:
        """Take all locks or none; raise TableLockedError if another transaction holds one for longer than this."""
        deadline = time.monotonic() + wait_seconds
        for attempt in itertools.count():
            locked_error = self._try()
            if locked_error is None:
                break
            if time.monotonic() >= deadline:
                raise locked_error
            _RETRIES.sleep(attempt)
        self._start_renewer()

    def go_on(self) -> None:
        """Renew the locks that another process took; those that are lost meanwhile are done without."""
        lost = self._try()
        if lost is None:
            self._start_renewer()
        else:
            self._say_lost(lost)

    def release(self) -> None:
        """Release the locks; if the database is unreachable, they expire."""
        if (
            self._generation != forks.generation or self._released.is_set()
        ):  # a forked child owns none of its parent's locks
            return
        self._released.set()
        if self._renewer is not None and self._renewer is not threading.current_thread():
            self._renewer.join()
        try:
            with self._store.write() as conn:
                for table in self._tables:
                    conn.run("release_lease", lease=_lease(table), holder=self._holder)
        except DeltaError as error:
            logger.warning("intent locks of transaction %s are left to expire: %s", self._holder, redact(str(error)))

    def leave(self) -> None:
        """Renew the locks no more, and leave them to another process, which goes on with the transaction."""
        self._released.set()

    def _try(self) -> TableLockedError | None:
        try:
            with self._store.write() as conn:
                self._claim(conn)
        except TableLockedError as error:
            return error
        return None

    def _claim(self, conn: Connection) -> None:
        now_ms = conn.now_ms()
        for table in self._tables:
            claim = {"lease": _lease(table), "holder": self._holder, "until_ms": now_ms + self._lease_ms}
            conn.run("take_lease", **claim, now_ms=now_ms)
            row = conn.one("select_lease", lease=_lease(table))
            if row is None or row["holder"] != self._holder:
                raise _lock_error(table, row["holder"] if row else "", row["until_ms"] - now_ms if row else 0)

    def _extend(self, conn: Connection) -> Iterator[bool]:
        """Extend the locks; False for one that nobody holds, TableLockedError for another transaction's."""
        now_ms = conn.now_ms()
        for table in self._tables:
            lease = _lease(table)
            if conn.run("renew_lease", lease=lease, holder=self._holder, until_ms=now_ms + self._lease_ms):
                yield True
                continue
            row = conn.one("select_lease", lease=lease)
            if row is not None:
                raise _lock_error(table, row["holder"], row["until_ms"] - now_ms)
            yield False

    def _start_renewer(self) -> None:
        self._renewer = threading.Thread(target=self._renew, name="deltalakedb-intent-locks", daemon=True)
        self._renewer.start()

    def _say_lost(self, error: TableLockedError) -> None:
        logger.warning("transaction %s has lost an intent lock, its commit may conflict: %s", self._holder, error)

    def _renew(self) -> None:
        """Renew the locks at a third of the lease, so that two renewals may fail before a lock is lost."""
        while not self._released.wait(self._lease_ms / 3000):
            try:
                with self._store.write() as conn:
                    # Another process may have ended the transaction, and released the locks: these stay free.
                    if not all(self._extend(conn)):
                        return
            except TableLockedError as error:
                self._say_lost(error)
                return
            except StoreError as error:
                logger.warning("an intent lock could not be renewed, it is tried again: %s", redact(str(error)))


def take_locks(
    transaction: CatalogTransaction, names: Sequence[TableName], pinned: Sequence[Row] | None = None
) -> IntentLocks:
    """Take the locks of these tables for a transaction; wait for `concurrency.lock_timeout` at most.

    `pinned`: the rows of the cut of a transaction which another process began, and for which it took the locks.
    """
    catalog = transaction.catalog
    if pinned is None:
        with catalog.store.read() as conn:
            rows = [require_table(conn, name) for name in names]
    else:
        keys = {name.key for name in names}
        rows = [row for row in map(to_table_row, pinned) if row.key in keys]
    locks = IntentLocks(catalog.store, list({row.table_id: row for row in rows}.values()), transaction.txn_id)
    if pinned is None:
        locks.take(catalog.config.concurrency_lock_timeout)
    else:
        locks.go_on()
    # A transaction that is neither committed nor rolled back must not hold its locks until the process ends.
    weakref.finalize(transaction, locks.release)
    return locks


def _lease(table: TableRow) -> str:
    return f"intent:{table.table_id}"


def _lock_error(table: TableRow, holder: str, left_ms: int) -> TableLockedError:
    return TableLockedError(
        f"table {table.full_name} is locked by transaction {holder}, which rewrites it, for at least "
        f"{max(left_ms, 0) / 1000:.0f} s more; nothing was done: try again later, or begin without lock="
    )
