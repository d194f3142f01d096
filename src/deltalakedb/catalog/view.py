"""CatalogView: the whole catalog as of an instant, read-only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalakedb.catalog.entries import within
from deltalakedb.catalog.iceberg_access import IcebergAccess
from deltalakedb.catalog.instants import Instant, to_epoch_ms
from deltalakedb.exceptions import DeltaError
from deltalakedb.store import Connection, Store, registry
from deltalakedb.store.namespaces import list_namespaces

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.pyiceberg_catalog import PyIcebergCatalog
    from deltalakedb.table import DeltaTable

LONGEST_WAIT_MS = 1_000
"""How far in the future an instant may be and is waited for, because the clocks of machines differ."""


class CatalogView(IcebergAccess):
    """The catalog as of an instant, read-only: names, and each table's version, as they were then."""

    def __init__(self, catalog: Catalog, at_ms: int) -> None:
        self.at_ms = at_ms
        self._catalog = catalog

    def __repr__(self) -> str:
        return f"CatalogView({str(self._catalog.uri)!r}, at_ms={self.at_ms})"

    def tables(self, namespace: str | None = None) -> list[str]:
        with self._catalog.store.read(single=True) as conn:
            rows = registry.list_tables(conn, self.at_ms)
        return [row.full_name for row in within(rows, namespace)]

    def namespaces(self) -> list[str]:
        with self._catalog.store.read(single=True) as conn:
            return [row.namespace for row in list_namespaces(conn, self.at_ms)]

    def _open_iceberg(self, storage_options: Mapping[str, str] | None) -> PyIcebergCatalog:
        from deltalakedb.iceberg.opening import open_at

        return open_at(self._catalog, self.at_ms, storage_options)

    def table(self, name: str) -> DeltaTable:
        """Open the table that had this name then, at its version of that instant."""
        from deltalakedb.table import DeltaTable

        return DeltaTable.from_view(self._catalog, name, self.at_ms)


def wait_for_instant(store: Store, instant: Instant) -> int:
    """Return the instant in epoch milliseconds, after waiting until nothing can be committed at or before it."""
    with store.read() as conn:
        at_ms, now_ms = _resolve(conn, instant), conn.now_ms()
        newest = conn.one("select_newest_transaction") or {}
    # Transaction times only increase: whatever the clock says, nothing is committed before the newest one any more.
    if at_ms > (newest.get("committed_at_ms") or 0) and at_ms >= now_ms:
        if at_ms - now_ms > LONGEST_WAIT_MS:
            raise DeltaError(f"{instant} lies in the future: what the catalog will be then is not known yet")
        time.sleep((at_ms - now_ms + 1) / 1000)
    # A commit reads the clock before it becomes visible; one in progress may still get this instant.
    store.settle()
    return at_ms


def _resolve(conn: Connection, instant: Instant) -> int:
    if isinstance(instant, str):
        committed_ms = registry.transaction_ms(conn, instant)
        if committed_ms is not None:
            return committed_ms
        try:
            return to_epoch_ms(instant)
        except ValueError:
            raise DeltaError(f"{instant!r} is neither a transaction id of this catalog nor an ISO 8601 time") from None
    return to_epoch_ms(instant)
