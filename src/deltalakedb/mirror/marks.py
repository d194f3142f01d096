"""Marks: how far each table's files are mirrored, collected briefly and written to SQL in one transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable
from functools import partial

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.mirror import bookkeeping, worker
from deltalakedb.mirror.checkpoints import Maintenance
from deltalakedb.mirror.table_mirror import TableMirror
from deltalakedb.runtime.steps import reached
from deltalakedb.store.connection import Store

logger = logging.getLogger(__name__)

SECONDS = 0.5
"""The shortest time to collect marks, so that a commit does not cost a second transaction."""

SHARE = 0.05
"""The largest share of time for writing marks: if a transaction takes long, marks are collected for longer."""

AGAIN_SECONDS = 1.0


class Marks:
    """The marks of one engine. A lost mark is harmless: the next pass finds the same bytes in the files."""

    def __init__(self, store: Store, maintenance: Maintenance, owner: Hashable) -> None:
        self._store = store
        self._maintenance = maintenance
        self._owner = owner
        self._lock = threading.Lock()
        self._gathered: dict[int, tuple[TableMirror, int]] = {}
        self._seconds = SECONDS

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
            worker.mirroring.schedule((self._owner, "marks"), self.write, AGAIN_SECONDS)
            return
        self._seconds = max(SECONDS, (time.monotonic() - started) / SHARE)
        reached("mirror.marked")
        for mirror, version in marks.values():
            if self._maintenance.has_work(mirror, version):
                self._maintain_in_turn(mirror)

    def _maintain_in_turn(self, mirror: TableMirror) -> None:
        table_id = mirror.table.table_id
        run = partial(self._maintenance.maintain, mirror)
        worker.maintaining.schedule((self._owner, "maintain", table_id), run, self._maintenance.wait_seconds(table_id))
