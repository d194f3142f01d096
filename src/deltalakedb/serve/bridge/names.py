"""Names of tables and namespaces, as the catalog class of a Spark session requests them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import no_such_table, require_table
from deltalakedb.rights import current_access
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.places import (
    attach_at,
    bridge_uri,
    given_location,
    is_attached,
    is_written_through,
    path_of,
)
from deltalakedb.serve.rights import require_allowed_folder, require_allowed_location, require_free_name
from deltalakedb.store import registry
from deltalakedb.store.grants import own_table
from deltalakedb.store.names import name_key, parse_namespace, parse_table_name
from deltalakedb.store.registry import TableRow
from deltalakedb.transactions.transaction import CatalogTransaction

Answer = dict[str, Any]


class Names:
    """Resolves, reserves, drops, renames and lists names; `txn` is the id of the transaction `tx`, if there is one."""

    def __init__(self, catalog: Catalog, log: BridgedLog) -> None:
        self._catalog = catalog
        self._log = log

    def catalog(self) -> Answer:
        """The catalog's id: sessions of different catalogs may share one Spark."""
        with self._catalog.store.read(single=True) as conn:
            return {"id": registry.catalog_id(conn)}

    def resolve(
        self, name: str, tx: CatalogTransaction | None = None, txn: str = "", location: str | None = None
    ) -> Answer:
        """The path of a table. If a user attached it, others write its files, and Spark reads them directly.

        `external`: a user, not the catalog, owns its files. `is_there`: it is at the given location.
        """
        target = parse_table_name(name)
        place = self._log.find(name, tx)
        if place is None or place.table is None:
            with self._catalog.store.read(single=True) as conn:
                raise no_such_table(conn, target)
        if not place.table.is_delta:
            raise registry.not_delta(place.table)
        answer = self._table_answer(place.table, txn)
        return answer if location is None else {**answer, "is_there": given_location(location) == place.table.location}

    def _table_answer(self, table: TableRow, txn: str) -> Answer:
        bridged = table.mode == "managed" or is_written_through(self._catalog, table)
        path = bridge_uri(table.location, txn) if bridged else _hadoop_uri(table.location)
        external = table.files_owner != "catalog"
        shown = _hadoop_uri(table.location)
        return {"name": table.full_name, "path": path, "location": shown, "managed": bridged, "external": external}

    def reserve(
        self, name: str, tx: CatalogTransaction | None, txn: str, location: str | None, *, attach: bool = False
    ) -> Answer:
        """Reserve the location of a new table; nobody else may create one there for a while.

        With `attach` a Delta table that exists at the location gets the name, and the answer has `attached`.
        """
        if location is not None:
            require_allowed_location(self._catalog, given_location(location))
        if attach and tx is None and location is not None:
            table = self._attach(name, location)
            if table is not None:
                return {**self._table_answer(table, txn), "attached": True}
        place = self._log.reserve(name, tx, location)
        external = place.files_owner != "catalog"
        return {"name": str(place.name), "path": bridge_uri(place.location, txn), "external": external}

    def _attach(self, name: str, location: str) -> TableRow | None:
        """Attach the table at a location; a caller who may only do what was granted may manage it from then on."""
        require_free_name(self._catalog, parse_table_name(name))
        table, owner = attach_at(self._catalog, name, location), current_access().owner
        if table is not None and owner is not None:
            with self._catalog.store.write() as conn:
                own_table(conn, table.table_id, owner, conn.now_ms())
        return table

    def drop(self, name: str, *, purge: bool, attached_only: bool = False) -> Answer:
        """Drop a table. `attached_only`, for a failed CREATE: a table that was written through the catalog stays."""
        if attached_only:
            with self._catalog.store.read(single=True) as conn:
                table = require_table(conn, parse_table_name(name))
            if not is_attached(table):
                return {"name": name, "dropped": False}
        self._catalog.drop_table(name, purge)
        return {"name": name, "dropped": True}

    def undrop(self, name: str, new_name: str | None) -> Answer:
        """Bring a dropped table back, under its old name or a new one."""
        self._catalog.undrop_table(name, new_name)
        return {"name": str(parse_table_name(new_name or name))}

    def rename(self, name: str, new_name: str) -> Answer:
        self._catalog.rename_table(name, new_name)
        return {"name": new_name}

    def tables(self, namespace: str) -> list[str]:
        """The tables directly in a namespace."""
        key = name_key(parse_namespace(namespace))
        with self._catalog.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        sees = current_access().sees
        return [row.full_name for row in rows if name_key(row.namespace) == key and sees(row)]

    def namespaces(self) -> list[str]:
        return self._catalog.namespaces()

    def namespace(self, namespace: str) -> Answer:
        """A namespace with its properties."""
        return asdict(self._catalog.namespace(namespace))

    def create_namespace(self, namespace: str, properties: Mapping[str, Any] | None = None) -> Answer:
        """Create a namespace with these properties; an existing one is fine, and keeps its own."""
        require_allowed_folder(self._catalog, properties or {})
        before = {name_key(namespace_name) for namespace_name in self._catalog.namespaces()}
        created = self._catalog.create_namespace(namespace, properties, exist_ok=True)
        return {**asdict(created), "created": name_key(created.namespace) not in before}

    def set_namespace_properties(self, namespace: str, properties: Mapping[str, Any]) -> Answer:
        """Set properties; others stay, and null removes one."""
        require_allowed_folder(self._catalog, properties)
        return asdict(self._catalog.set_namespace_properties(namespace, properties))

    def drop_namespace(self, namespace: str, *, cascade: bool = False) -> Answer:
        """Remove a namespace without tables and namespaces in it; with `cascade` those are dropped too."""
        dropped = self._catalog.drop_namespace(namespace, cascade=cascade)
        return {"namespace": namespace, "paths": [bridge_uri(location) for location in dropped]}


def _hadoop_uri(location: str) -> str:
    """A location in Hadoop's spelling: its own scheme for S3, and nothing encoded."""
    scheme, _, rest = path_of(location).removeprefix("/").partition("/")
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
