"""CatalogNames: the part of Catalog for namespaces and dropped tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.entries import DroppedTable, dropped_rows, last_named, within
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    LocationOwnedError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableExistsError,
    redact,
)
from deltalakedb.log.checks.secret_checks import refuse_secrets
from deltalakedb.rights import Access, Right, SecuredObject, current_access
from deltalakedb.store import Connection, Store, locations, namespaces, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.grants import own_namespace, remove_grants_of_namespace
from deltalakedb.store.names import DEFAULT_NAMESPACE, name_key, parse_namespace
from deltalakedb.store.namespaces import Namespace
from deltalakedb.store.registry import TableRow

if TYPE_CHECKING:
    from deltalakedb.transactions.transaction import CatalogTransaction


class CatalogNames(ABC):
    """The methods of `Catalog` that work on namespaces and dropped tables."""

    store: Store
    origin: str

    @property
    @abstractmethod
    def actor(self) -> str: ...

    @abstractmethod
    def begin(
        self, message: str | None = None, lock: Sequence[str] | None = None, tables: Sequence[str] | None = None
    ) -> CatalogTransaction: ...

    @abstractmethod
    def finish_promotion(self, table: TableRow) -> TableRow: ...

    # -- namespaces

    def namespaces(self, parent: str | None = None) -> list[str]:
        """Return the names of all namespaces, or of those nested in one, at any depth."""
        with self.store.read(single=True) as conn:
            rows = namespaces.list_namespaces(conn)
        sees = current_access().sees_namespace
        return [row.namespace for row in _inside(rows, parent) if sees(row.namespace)]

    def namespace(self, name: str) -> Namespace:
        """Return a namespace with its properties, and when it was created and last changed."""
        with self.store.read(single=True) as conn:
            row = _require(namespaces.find_namespace(conn, parse_namespace(name)), name)
        return _shown(row, name)

    def create_namespace(
        self, name: str, properties: Mapping[str, Any] | None = None, *, exist_ok: bool = False
    ) -> Namespace:
        """Create a namespace. Its parents need not exist; a table's namespace is created with the table."""
        namespace = parse_namespace(name)
        access = current_access()
        if not access.is_trusted:
            self._require_creatable(access, namespace, exist_ok=exist_ok)
        property_texts = self._check_properties(properties or {}, namespace)
        with self.store.write() as conn:
            now_ms = registry.next_change_ms(conn)
            created = namespaces.ensure_namespace(conn, namespace, at_ms=now_ms, properties=property_texts)
            if not created and not exist_ok:
                raise TableExistsError(f"the namespace {namespace} exists already")
            if created:
                self._audit(conn, "create namespace", now_ms, {"namespace": namespace, "properties": property_texts})
                if access.owner is not None:
                    own_namespace(conn, namespace, access.owner, now_ms)
            found = _require(namespaces.find_namespace(conn, namespace), name)
        return found if created else _shown(found, name)

    def _require_creatable(self, access: Access, namespace: str, *, exist_ok: bool) -> None:
        """Raise unless the caller may create a namespace, or may see one that exists and is to be kept."""
        with self.store.read(single=True) as conn:
            existing, rows = namespaces.find_namespace(conn, namespace), namespaces.list_namespaces(conn)
        is_seen = existing is not None and access.sees_namespace(namespace)
        if is_seen and exist_ok:
            return
        if existing is not None and not is_seen:
            raise access.refused(f"create the namespace {namespace}")
        if not access.allows(Right.CREATE, SecuredObject.of_namespace(namespace)):
            raise access.refused(f"create the namespace {namespace}")
        # The creator will manage what is in it: nothing that others manage may be there already.
        inner = map(SecuredObject.of_namespace, (row.namespace for row in _inside(rows, namespace)))
        if not all(access.allows(Right.MANAGE, on) for on in inner):
            raise access.refused(f"create the namespace {namespace} around namespaces that others manage")

    def drop_namespace(self, name: str, *, cascade: bool = False, dry_run: bool = False) -> list[str]:
        """Drop a namespace that holds no tables and no namespaces. Tables dropped in it can still be undropped.

        With `cascade`, all its tables and those of nested namespaces are dropped first, in one transaction: if one
        cannot be dropped, none is. Returns the locations of the dropped tables.
        """
        namespace = parse_namespace(name)
        if name_key(namespace) == DEFAULT_NAMESPACE:
            raise DeltaError(f"the namespace {DEFAULT_NAMESPACE} stays: names without a namespace are in it")
        self._require_managed(namespace)
        dropped = self._drop_tables_in(namespace, dry_run=dry_run) if cascade else []
        inner = self.namespaces(namespace) if cascade else []
        with self.store.write() as conn:
            to_drop = [
                self._lock_namespace(conn, inner_name) for inner_name in sorted({namespace, *inner}, key=name_key)
            ]
            for current in reversed(to_drop):  # inner namespaces first
                holds = None if dry_run and cascade else namespaces.contents_of(conn, current.namespace)
                if holds is not None:
                    raise NamespaceNotEmptyError(
                        f"the namespace {current.namespace} is not empty: it holds {holds}; drop or rename that first"
                    )
                if dry_run:
                    continue
                now_ms = registry.next_change_ms(conn)
                namespaces.drop_namespace(conn, current, at_ms=now_ms)
                remove_grants_of_namespace(conn, current.namespace)
                self._audit(conn, "drop namespace", now_ms, {"namespace": current.namespace})
        return dropped

    def _drop_tables_in(self, namespace: str, *, dry_run: bool) -> list[str]:
        """Drop all tables of a namespace and of nested ones, or none; return their locations."""
        with self.store.read() as conn:
            _require(namespaces.find_namespace(conn, namespace), namespace)
            rows = within(registry.list_tables(conn), namespace)
        if not rows:
            return []
        if not dry_run:
            rows = [self.finish_promotion(row) for row in rows]
        with self.begin(tables=[row.full_name for row in rows]) as tx:
            for row in rows:
                tx.drop_table(row.full_name)
            if dry_run:
                tx.rollback()
        return [row.location for row in rows]

    def set_namespace_properties(self, name: str, properties: Mapping[str, Any]) -> Namespace:
        """Set properties of a namespace; others stay, and None removes one."""
        self._require_managed(parse_namespace(name))
        property_texts = self._check_properties(properties, name)
        with self.store.write() as conn:
            current = self._lock_namespace(conn, name)
            merged = {**current.properties, **property_texts}
            new_properties = {key: value for key, value in merged.items() if value is not None}
            now_ms = registry.next_change_ms(conn)
            namespaces.set_namespace_properties(conn, current, new_properties, at_ms=now_ms)
            self._audit(
                conn, "set namespace properties", now_ms, {"namespace": current.namespace, "properties": property_texts}
            )
            return _require(namespaces.find_namespace(conn, current.namespace), name)

    def _require_managed(self, namespace: str) -> None:
        access = current_access()
        if access.is_trusted:
            return
        if not access.sees_namespace(namespace):
            raise _no_such_namespace(namespace)
        access.require_object(Right.MANAGE, SecuredObject.of_namespace(namespace), f"the namespace {namespace}")

    def _check_properties(self, properties: Mapping[str, Any], namespace: str) -> dict[str, str | None]:
        """Return the properties as texts; raise if a location among them is in the folder of a table."""
        texts = _as_texts(properties, namespace)
        location = texts.get(namespaces.LOCATION)
        if location is not None:
            with self.store.read() as conn:
                owner = locations.owner_around(conn, location, now_ms=conn.now_ms())
            folder = _log_around(location) if owner is None else redact(owner.location)
            if folder is not None:
                table = "a Delta table" if owner is None else f"the table {owner.table_name}"
                raise LocationOwnedError(
                    f"tables of {namespace} cannot go to {redact(location)}: {folder} is the folder of {table}, and a "
                    "table's VACUUM deletes what is in its folder; choose a folder outside of it"
                )
        return texts

    def _lock_namespace(self, conn: Connection, name: str) -> Namespace:
        """Lock a namespace and return it: nothing is created or dropped in it until the transaction ends."""
        namespace = parse_namespace(name)
        conn.one("lock_namespace", namespace_key=name_key(namespace))
        return _require(namespaces.find_namespace(conn, namespace), name)

    def _audit(self, conn: Connection, action: str, at_ms: int, details: Mapping[str, object]) -> None:
        write_audit(conn, action=action, at_ms=at_ms, actor=self.actor, origin=self.origin, details=details)

    # -- dropped tables

    def dropped_tables(self, namespace: str | None = None) -> list[DroppedTable]:
        """Return the dropped tables that can be undropped, the last dropped first."""
        with self.store.read() as conn:
            rows = [row for row, _ in dropped_rows(conn)]
            heads = {row["table_id"]: registry.read_head(conn, row["table_id"]) for row in rows}
        table_ids = {table.table_id for table in within(list(map(last_named, rows)), namespace)}
        return [DroppedTable.of(row, heads[row["table_id"]]) for row in rows if row["table_id"] in table_ids]

    def undrop_table(self, name: str, as_: str | None = None) -> None:
        """Bring a dropped table back with its files and history, under its old name or a new one."""
        with self.begin() as tx:
            tx.undrop_table(name, as_)


def _inside(rows: list[Namespace], parent: str | None) -> list[Namespace]:
    if parent is None:
        return rows
    key = f"{name_key(parse_namespace(parent))}."
    return [row for row in rows if name_key(row.namespace).startswith(key)]


def _require(found: Namespace | None, name: str) -> Namespace:
    if found is None:
        raise _no_such_namespace(name)
    return found


def _no_such_namespace(name: str) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(f"there is no namespace {name}; `dl namespace list` lists those that exist")


def _shown(found: Namespace, name: str) -> Namespace:
    """Return a namespace as the caller may see it: whoever only sees something in it does not see its properties."""
    access = current_access()
    if access.allows(Right.READ, SecuredObject.of_namespace(found.namespace)):
        return found
    if not access.sees_namespace(found.namespace):
        raise _no_such_namespace(name)
    return replace(found, properties={})


def _as_texts(properties: Mapping[str, Any], namespace: str) -> dict[str, str | None]:
    for key, value in properties.items():
        if not isinstance(value, str | int | float | None):
            raise ConfigError(
                f"namespace {namespace}: the property {key} must be a text or a number, not a {type(value)}"
            )
    refuse_secrets(properties, what=f"namespace {namespace}")
    texts = {str(key): None if value is None else str(value) for key, value in properties.items()}
    location = texts.get(namespaces.LOCATION)
    return texts if location is None else {**texts, namespaces.LOCATION: _as_location(location, namespace)}


def _log_around(location: str) -> str | None:
    """Return the folder of a Delta table that a location is, or is inside; None also if the storage does not answer."""
    from deltalakedb.operations.folder import has_log

    with suppress(DeltaError):
        return next((redact(folder) for folder in locations.around(location) if has_log(folder)), None)
    return None


def _as_location(location: str, namespace: str) -> str:
    """Return the canonical location of the folder for new tables of a namespace."""
    from deltalakedb.operations.folder import refuse_ambiguous
    from deltalakedb.storage.location import canonical_location

    canonical = canonical_location(location)
    if canonical.rstrip("/") == "file:":
        raise ConfigError(
            f"tables of {namespace} cannot go to {canonical}: a whole disk is no place for them; name a folder"
        )
    refuse_ambiguous(canonical, what=f"the namespace {namespace}")
    return canonical
