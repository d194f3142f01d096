"""Names of tables and namespaces, as the catalog class of a Spark session asks for them."""

from __future__ import annotations

from typing import Any

from deltalakedb.catalog import Catalog
from deltalakedb.exceptions import DeltaError, TableNotFoundError
from deltalakedb.names import DEFAULT_NAMESPACE, name_key, parse_namespace, parse_table_name
from deltalakedb.registered import no_such_table
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.places import bridge_uri, path_of
from deltalakedb.store import namespaces, registry
from deltalakedb.transactions.transaction import CatalogTransaction

Answer = dict[str, Any]


class Names:
    """Resolves, reserves, drops, renames and lists; `txn` is the id of the transaction `tx`, if there is one."""

    def __init__(self, catalog: Catalog, log: BridgedLog) -> None:
        self._catalog = catalog
        self._log = log

    def resolve(self, name: str, tx: CatalogTransaction | None = None, txn: str = "") -> Answer:
        """Where a table is. A follower's files are written by others: Spark reads them where they lie."""
        target = parse_table_name(name)
        place = self._log.find(name, tx)
        if place is None or place.table is None:
            with self._catalog.store.read(single=True) as conn:
                raise no_such_table(conn, target)
        managed = place.table.mode == "managed"
        path = bridge_uri(place.location, txn) if managed else _plain_uri(place.location)
        return {"name": place.table.full_name, "path": path, "managed": managed}

    def reserve(self, name: str, tx: CatalogTransaction | None, txn: str, location: str | None) -> Answer:
        """Where a table of a name is to be created; nobody else may create one there for a while."""
        place = self._log.reserve(name, tx, location)
        return {"name": str(place.name), "path": bridge_uri(place.location, txn)}

    def drop(self, name: str, *, purge: bool) -> Answer:
        self._catalog.drop_table(name, purge)
        return {"name": name}

    def rename(self, name: str, new_name: str) -> Answer:
        self._catalog.rename_table(name, new_name)
        return {"name": new_name}

    def tables(self, namespace: str) -> list[str]:
        """The tables directly in a namespace."""
        key = name_key(parse_namespace(namespace))
        with self._catalog.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        return [row.full_name for row in rows if name_key(row.namespace) == key]

    def namespaces(self) -> list[str]:
        return self._catalog.namespaces()

    def create_namespace(self, namespace: str) -> Answer:
        """Make a namespace; one that is there already is fine."""
        namespace = parse_namespace(namespace)
        with self._catalog.store.write() as conn:
            created = namespaces.ensure_namespace(conn, namespace, at_ms=conn.now_ms())
        return {"namespace": namespace, "created": created}

    def drop_namespace(self, namespace: str) -> Answer:
        """Remove a namespace that has no tables, and no namespaces inside it."""
        namespace = parse_namespace(namespace)
        if name_key(namespace) == DEFAULT_NAMESPACE:
            raise DeltaError(f"the namespace {DEFAULT_NAMESPACE} stays: names without a namespace are in it")
        with self._catalog.store.write() as conn:
            current = namespaces.find_namespace(conn, namespace)
            if current is None:
                raise TableNotFoundError(f"there is no namespace {namespace}")
            held = namespaces.contents_of(conn, namespace)
            if held is not None:
                raise DeltaError(f"the namespace {namespace} is not empty: it holds {held}; drop them first")
            namespaces.drop_namespace(conn, current, at_ms=conn.now_ms())
        return {"namespace": namespace}


def _plain_uri(location: str) -> str:
    """A location as Hadoop names it: its own scheme for S3, and nothing encoded."""
    scheme, _, rest = path_of(location).removeprefix("/").partition("/")
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
