"""Leftovers: removes Spark's folders of a transaction (`_dldb/txn-ID`), at its end or a day after it died."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.serve.bridge.overlay import OVERLAY
from deltalakedb.storage.opening import open_storage
from deltalakedb.store import registry
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

PREFIX = "txn-"
DEAD_SECONDS = 86_400.0
SWEEP_SECONDS = 6 * 3_600.0
TABLES_AT_ONCE = 20
LEASE = "bridge:leftovers"


class Leftovers:
    """Removes what transactions leave beside their tables; what cannot be removed now is found later."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._holder = uuid.uuid4().hex
        self._next_look = 0.0
        self._to_look_at: list[TableRow] = []

    def remove(self, txn: str, locations: Iterable[str]) -> None:
        """Remove the folders of one transaction."""
        for location in locations:
            self._remove(location, f"{OVERLAY}/{PREFIX}{txn}", self._options(location))

    def sweep(self, is_open: Callable[[str], bool]) -> list[str]:
        """Check tables for folders of dead endpoints, every few hours and some tables at each call.

        One endpoint does it for the whole catalog, because it costs a request per table on object stores.
        """
        if not self._to_look_at and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + SWEEP_SECONDS
            self._to_look_at = self._tables() if self._is_ours_to_do() else []
        some, self._to_look_at = self._to_look_at[:TABLES_AT_ONCE], self._to_look_at[TABLES_AT_ONCE:]
        return self._collect_all(some, is_open, DEAD_SECONDS)

    def _is_ours_to_do(self) -> bool:
        with self._catalog.store.write() as conn:
            now_ms = conn.now_ms()
            until_ms = now_ms + int(SWEEP_SECONDS * 1000)
            rows = conn.run("take_lease", lease=LEASE, holder=self._holder, until_ms=until_ms, now_ms=now_ms)
        return rows > 0

    def _tables(self) -> list[TableRow]:
        with self._catalog.store.read(single=True) as conn:
            return [row for row in registry.list_tables(conn) if row.mode == "managed"]

    def collect(self, is_open: Callable[[str], bool], dead_seconds: float = DEAD_SECONDS) -> list[str]:
        """Remove every folder of a transaction that is not open here and was not written to for `dead_seconds`."""
        return self._collect_all(self._tables(), is_open, dead_seconds)

    def _collect_all(
        self, tables: Iterable[TableRow], is_open: Callable[[str], bool], dead_seconds: float
    ) -> list[str]:
        removed = []
        for table in tables:
            try:
                removed += self._collect(table, is_open, dead_seconds)
            except (DeltaError, OSError) as error:
                logger.warning("cannot look for leftovers of %s: %s", table.full_name, redact(str(error)))
        return removed

    def _collect(self, table: TableRow, is_open: Callable[[str], bool], dead_seconds: float) -> list[str]:
        options = self._catalog.storage_options_of(table)
        storage = open_storage(table.location, options)
        removed = []
        for name in storage.folders(OVERLAY):
            folder, txn = f"{OVERLAY}/{name}", name.removeprefix(PREFIX)
            if not name.startswith(PREFIX) or is_open(txn):
                continue
            last_ms = storage.newest_ms(folder)
            if time.time() * 1000 - last_ms > dead_seconds * 1000 and self._remove(table.location, folder, options):
                removed.append(f"{table.location}/{folder}")
        return removed

    def _remove(self, location: str, folder: str, options: dict[str, str] | None) -> bool:
        try:
            open_storage(location, options).delete_folder(folder)
        except (DeltaError, OSError) as error:
            logger.warning("%s/%s is left behind: %s", redact(location), folder, redact(str(error)))
            return False
        return True

    def _options(self, location: str) -> dict[str, str] | None:
        with self._catalog.store.read(single=True) as conn:
            row = registry.table_by_location(conn, location)
        return None if row is None else self._catalog.storage_options_of(row)
