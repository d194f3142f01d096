"""VacuumMark: records in SQL that a vacuum is deleting files of a table, as long as its process lives."""

from __future__ import annotations

import logging
import threading
import time
import uuid

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.store import Store
from deltalakedb.store.registry import TableRow
from deltalakedb.store.vacuums import begin_vacuum, end_vacuum, renew_vacuum

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""How long a vacuum counts as running after its process died."""


class VacuumMark:
    """The mark of one vacuum. A thread renews its lease until `end`."""

    def __init__(self, store: Store, table: TableRow, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._table = table
        self._vacuum_id = str(uuid.uuid4())
        self._lease_seconds = lease_seconds
        self._held_until = 0.0
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="deltalakedb-vacuum-mark", daemon=True)

    def begin(self, oldest_kept: int) -> None:
        """Set the mark: from now on no commit may add a file that only versions below `oldest_kept` have."""
        asked_at = time.monotonic()
        begin_vacuum(
            self._store, self._table.table_id, self._vacuum_id, oldest_kept=oldest_kept, lease_ms=self._lease_ms
        )
        self._held_until = asked_at + self._lease_seconds
        self._renewer.start()

    def check(self) -> None:
        """Raise if the lease has expired: others may assume that the vacuum is over, so nothing may be deleted."""
        if time.monotonic() >= self._held_until:
            raise DeltaError(
                f"table {self._table.full_name}: the vacuum could not renew its lease in the database for "
                f"{self._lease_seconds:.0f} s and has stopped deleting files; run it again to delete the rest"
            )

    def end(self) -> None:
        """Remove the mark when all files are deleted. If the database is unreachable, the next vacuum removes it."""
        self._ended.set()
        self._renewer.join()
        try:
            end_vacuum(self._store, self._table.table_id, self._vacuum_id)
        except DeltaError as error:
            logger.warning(
                "table %s: the end of its vacuum could not be recorded; the next vacuum does it: %s",
                self._table.full_name,
                redact(str(error)),
            )

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_seconds * 1000)

    def _renew(self) -> None:
        """Renew at a third of the lease, so that two renewals may fail before it is lost."""
        while not self._ended.wait(self._lease_seconds / 3):
            asked_at = time.monotonic()
            try:
                if not renew_vacuum(self._store, self._table.table_id, self._vacuum_id, lease_ms=self._lease_ms):
                    return  # `check` raises once the lease expires
            except DeltaError as error:
                logger.warning("the lease of a vacuum could not be renewed, it is tried again: %s", redact(str(error)))
                continue
            self._held_until = asked_at + self._lease_seconds
