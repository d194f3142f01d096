"""Leftovers: folders that Spark filled under a transaction (`_dldb/txn-ID`) go when it ends, or a day after it died."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from deltalakedb.catalog import Catalog
from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.delete import delete_folder, newest_ms
from deltalakedb.files.storage import open_storage
from deltalakedb.serve.bridge.overlay import OVERLAY
from deltalakedb.store import registry
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

PREFIX = "txn-"
DEAD_SECONDS = 86_400.0
SWEEP_SECONDS = 6 * 3_600.0


class Leftovers:
    """Removes what transactions leave beside their tables; what cannot be removed now is found later."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._swept: float | None = None

    def remove(self, txn: str, locations: Iterable[str]) -> None:
        """The folders of one transaction."""
        for location in locations:
            self._remove(location, f"{OVERLAY}/{PREFIX}{txn}", self._options(location))

    def sweep(self, is_open: Callable[[str], bool]) -> None:
        """Every few hours: the folders of endpoints that died, by looking into every table."""
        now = time.monotonic()
        if self._swept is not None and now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        self.collect(is_open)

    def collect(self, is_open: Callable[[str], bool], dead_seconds: float = DEAD_SECONDS) -> list[str]:
        """Remove every folder of a transaction that is not open here and was not written to for a day."""
        with self._catalog.store.read(single=True) as conn:
            tables = [row for row in registry.list_tables(conn) if row.mode == "managed"]
        removed = []
        for table in tables:
            try:
                removed += self._collect(table, is_open, dead_seconds)
            except (DeltaError, OSError) as error:
                logger.warning("cannot look for leftovers of %s: %s", table.full_name, redact(str(error)))
        return removed

    def _collect(self, table: TableRow, is_open: Callable[[str], bool], dead_seconds: float) -> list[str]:
        options = self._catalog.storage_options_of(table)
        removed = []
        for name in open_storage(table.location, options).folder(OVERLAY).folders:
            folder, txn = f"{OVERLAY}/{name}", name.removeprefix(PREFIX)
            if not name.startswith(PREFIX) or is_open(txn):
                continue
            last_ms = newest_ms(table.location, folder, options)
            if time.time() * 1000 - last_ms > dead_seconds * 1000 and self._remove(table.location, folder, options):
                removed.append(f"{table.location}/{folder}")
        return removed

    def _remove(self, location: str, folder: str, options: dict[str, str] | None) -> bool:
        try:
            delete_folder(location, folder, options)
        except (DeltaError, OSError) as error:
            logger.warning("%s/%s is left behind: %s", redact(location), folder, redact(str(error)))
            return False
        return True

    def _options(self, location: str) -> dict[str, str] | None:
        with self._catalog.store.read(single=True) as conn:
            row = registry.table_by_location(conn, location)
        return None if row is None else self._catalog.storage_options_of(row)
