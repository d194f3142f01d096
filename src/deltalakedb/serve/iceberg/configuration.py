"""The configuration that a client asks for first: which warehouse, which endpoints, how long keys are remembered."""

from __future__ import annotations

from collections.abc import Sequence

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError
from deltalakedb.serve.iceberg.call import Call, Reply
from deltalakedb.serve.iceberg.errors import Refusal
from deltalakedb.serve.iceberg.idempotency import LIFETIME_MINUTES
from deltalakedb.storage.location import canonical_location


class Configuration:
    """Knows the names of the catalog's one warehouse: that of the database, and its location."""

    def __init__(self, catalog: Catalog, endpoints: Sequence[str]) -> None:
        self._warehouse = catalog.config.warehouse
        self._name = catalog.uri.database
        self._endpoints = list(endpoints)

    def read(self, call: Call) -> Reply:
        self.check_warehouse(call.query.get("warehouse", ""))
        return Reply(
            200,
            {
                "defaults": {},
                "overrides": {},
                "endpoints": self._endpoints,
                "idempotency-key-lifetime": f"PT{LIFETIME_MINUTES}M",
            },
        )

    def check_warehouse(self, name: str) -> None:
        """Refuse a warehouse, or a prefix, that is not this catalog's."""
        if name in ("", self._name) or (self._warehouse and _same_location(name, self._warehouse)):
            return
        raise Refusal(404, "NoSuchWarehouseException", f"Warehouse does not exist: {name}; this one is {self._name}")


def _same_location(one: str, other: str) -> bool:
    try:
        return canonical_location(one) == canonical_location(other)
    except DeltaError:
        return False
