"""A lock row in SQL for stores that do not refuse to overwrite: one writer of a table at a time puts a commit.

The row is a lease: it expires when its holder dies. It only excludes the writers of the same catalog.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deltalakedb.exceptions import ConfigError, MirrorError, StoreError, redact
from deltalakedb.mirror import bookkeeping
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.config import Config
from deltalakedb.storage.conditional_put import ALLOW_LOCK, PutSupport, find_put_support, warn_of_lock
from deltalakedb.storage.location import parse_location
from deltalakedb.store.connection import Store
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

_RETRIES = Backoff(0.01, 0.5, 0.5, 1.5)


class LeasePutLock:
    """The lock of one table, a lease in `dl_leases`."""

    def __init__(self, store: Store, table: TableRow) -> None:
        self._store = store
        self._table = table
        self._lease = f"put:{table.table_id}"

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[None]:
        """Let one writer at a time into the block; MirrorError on timeout."""
        holder = bookkeeping.new_holder()
        self._take(holder, time.monotonic() + timeout_seconds)
        try:
            with bookkeeping.renewed(self._store, self._lease, holder):
                yield
        finally:
            self._release(holder)

    def _take(self, holder: str, deadline: float) -> None:
        for attempt in itertools.count():
            with self._store.write() as conn:
                if bookkeeping.take_lease(conn, self._lease, holder):
                    return
            wait = _RETRIES.seconds(attempt)
            if time.monotonic() + wait > deadline:
                raise MirrorError(
                    f"table {self._table.full_name}: another process is putting a commit into its files, under the "
                    f"lock {self._lease} in dl_leases; it is tried again"
                )
            time.sleep(wait)

    def _release(self, holder: str) -> None:
        try:
            with self._store.write() as conn:
                bookkeeping.release_lease(conn, self._lease, holder)
        except StoreError as error:  # the commit is in the files, and the lease expires by itself
            logger.warning("table %s: its lock could not be released: %s", self._table.full_name, redact(str(error)))


def check_warehouse(config: Config) -> None:
    """Check, before a catalog is opened, that the warehouse's store refuses to overwrite, if the settings require it.

    Raises ConfigError if it does not. A store that cannot be asked now (no credentials, only the right to read, no
    answer in time) is no error: it is asked again when the first commit is put.
    """
    if config.warehouse is None or config.mirror_mode == "off" or config.mirror_conditional_put == "lock":
        return
    support = _ask_in_time(config.warehouse, config.mirror_inline_timeout)
    if support is None or support.supported is None:
        reason = "it did not answer in time" if support is None else support.reason
        logger.info("whether %s refuses to overwrite is not known yet: %s", redact(config.warehouse), reason)
    elif not support.supported and config.mirror_conditional_put == "required":
        raise ConfigError(f"the warehouse {redact(config.warehouse)} cannot be used: {support.problem}; {ALLOW_LOCK}")
    elif not support.supported:
        warn_of_lock(support)


def _ask_in_time(warehouse: str, seconds: float) -> PutSupport | None:
    """The store's answer; None on timeout. In a thread, because finding credentials may take long without a limit."""
    answers: list[PutSupport] = []

    def ask() -> None:
        try:
            location = parse_location(warehouse)
            answers.append(find_put_support(location, {}, timeout_seconds=seconds, asks_again=False))
        except ConfigError as error:  # reported when a table is created there
            answers.append(PutSupport(None, redact(warehouse), redact(str(error))))

    thread = threading.Thread(target=ask, name="deltalakedb-probe", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None
