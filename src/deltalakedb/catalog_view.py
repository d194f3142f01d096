"""CatalogView: the whole catalog as it was at one instant, read only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .exceptions import DeltaError
from .instants import Instant, to_epoch_ms
from .registered import within
from .store import Connection, Store, registry
from .store.namespaces import list_namespaces

if TYPE_CHECKING:
    from .catalog import Catalog
    from .table import DeltaTable

LONGEST_WAIT_MS = 1_000
"""So far ahead an instant may lie, and is waited for: clocks of machines differ."""


class CatalogView:
    """The catalog at one instant, read only: names as they were, each table at the version it had."""

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

    def table(self, name: str) -> DeltaTable:
        """The table that had this name then, at the version it had then."""
        from .table import DeltaTable

        return DeltaTable.from_view(self._catalog, name, self.at_ms)


def settle_instant(store: Store, instant: Instant) -> int:
    """The instant in epoch milliseconds, once it has passed and nothing can be committed at or before it any more."""
    with store.read() as conn:
        at_ms, now_ms = _resolve(conn, instant), conn.now_ms()
        newest = conn.one("select_newest_transaction") or {}
    # Transactions' times only grow: whatever the clock says, nothing is committed before the newest one any more.
    if at_ms > (newest.get("committed_at_ms") or 0) and at_ms >= now_ms:
        if at_ms - now_ms > LONGEST_WAIT_MS:
            raise DeltaError(f"{instant} lies in the future: what the catalog will be then is not known yet")
        time.sleep((at_ms - now_ms + 1) / 1000)
    # Whoever commits reads the clock first and is visible later; those under way may still land on the instant.
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
