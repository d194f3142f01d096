"""The half of Catalog that deals with names: namespaces, and tables that were dropped and can come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .exceptions import (
    ConfigError,
    DeltaError,
    LocationOwnedError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableExistsError,
    redact,
)
from .log.secret_checks import refuse_secrets
from .names import DEFAULT_NAMESPACE, name_key, parse_namespace
from .registered import DroppedTable, last_named, within
from .store import Connection, Store, locations, namespaces, registry
from .store.audit import write_audit
from .store.namespaces import Namespace
from .store.registry import TableRow

if TYPE_CHECKING:
    from .transactions.transaction import CatalogTransaction


class CatalogNames(ABC):
    """What a catalog does with namespaces and dropped tables; `Catalog` is the whole."""

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
        """The names of all namespaces, or of those inside one, however deep."""
        with self.store.read(single=True) as conn:
            return [row.namespace for row in _inside(namespaces.list_namespaces(conn), parent)]

    def namespace(self, name: str) -> Namespace:
        """A namespace with its properties, and when it was made and last changed."""
        with self.store.read(single=True) as conn:
            return _require(namespaces.find_namespace(conn, parse_namespace(name)), name)

    def create_namespace(
        self, name: str, properties: Mapping[str, Any] | None = None, *, exist_ok: bool = False
    ) -> Namespace:
        """Make a namespace. Those around it need not exist; a table's own is made with the table."""
        wanted = parse_namespace(name)
        given = self._checked(properties or {}, wanted)
        with self.store.write() as conn:
            now_ms = registry.next_change_ms(conn)
            created = namespaces.ensure_namespace(conn, wanted, at_ms=now_ms, properties=given)
            if not created and not exist_ok:
                raise TableExistsError(f"the namespace {wanted} exists already")
            if created:
                self._audit(conn, "create namespace", now_ms, {"namespace": wanted, "properties": given})
            return _require(namespaces.find_namespace(conn, wanted), name)

    def drop_namespace(self, name: str, *, cascade: bool = False, dry_run: bool = False) -> list[str]:
        """Remove a namespace that holds no tables and no namespaces. What was dropped in it can still be undropped.

        With `cascade` all its tables are dropped first, and those of the namespaces inside it, in one transaction: one
        that cannot be dropped keeps them all. The answer is the locations that they had.
        """
        wanted = parse_namespace(name)
        if name_key(wanted) == DEFAULT_NAMESPACE:
            raise DeltaError(f"the namespace {DEFAULT_NAMESPACE} stays: names without a namespace are in it")
        dropped = self._drop_tables_in(wanted, dry_run=dry_run) if cascade else []
        inner = self.namespaces(wanted) if cascade else []
        with self.store.write() as conn:
            doomed = [self._locked(conn, one) for one in sorted({wanted, *inner}, key=name_key)]
            for current in reversed(doomed):  # those inside before those around them
                held = None if dry_run and cascade else namespaces.contents_of(conn, current.namespace)
                if held is not None:
                    raise NamespaceNotEmptyError(
                        f"the namespace {current.namespace} is not empty: it holds {held}; drop or rename that first"
                    )
                if dry_run:
                    continue
                now_ms = registry.next_change_ms(conn)
                namespaces.drop_namespace(conn, current, at_ms=now_ms)
                self._audit(conn, "drop namespace", now_ms, {"namespace": current.namespace})
        return dropped

    def _drop_tables_in(self, namespace: str, *, dry_run: bool) -> list[str]:
        """Drop all tables of a namespace and of those inside it, or none; where they were."""
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
        """Set properties of a namespace, others stay; None removes one."""
        given = self._checked(properties, name)
        with self.store.write() as conn:
            current = self._locked(conn, name)
            merged = {**current.properties, **given}
            kept = {key: value for key, value in merged.items() if value is not None}
            now_ms = registry.next_change_ms(conn)
            namespaces.set_namespace_properties(conn, current, kept, at_ms=now_ms)
            self._audit(conn, "set namespace properties", now_ms, {"namespace": current.namespace, "properties": given})
            return _require(namespaces.find_namespace(conn, current.namespace), name)

    def _checked(self, properties: Mapping[str, Any], namespace: str) -> dict[str, str | None]:
        """Properties as texts; a location among them is a folder that is no table's."""
        texts = _as_texts(properties, namespace)
        location = texts.get(namespaces.LOCATION)
        if location is not None:
            with self.store.read() as conn:
                owner = locations.owner_around(conn, location, now_ms=conn.now_ms())
            at = _log_around(location) if owner is None else redact(owner.location)
            if at is not None:
                table = "a Delta table" if owner is None else f"the table {owner.table_name}"
                raise LocationOwnedError(
                    f"tables of {namespace} cannot go to {redact(location)}: {at} is the folder of {table}, and a "
                    "table's VACUUM deletes what is in its folder; choose a folder outside of it"
                )
        return texts

    def _locked(self, conn: Connection, name: str) -> Namespace:
        """A namespace in which nobody creates or drops anything until the transaction ends."""
        wanted = parse_namespace(name)
        conn.one("lock_namespace", namespace_key=name_key(wanted))
        return _require(namespaces.find_namespace(conn, wanted), name)

    def _audit(self, conn: Connection, action: str, at_ms: int, details: Mapping[str, object]) -> None:
        write_audit(conn, action=action, at_ms=at_ms, actor=self.actor, origin=self.origin, details=details)

    # -- dropped tables

    def dropped_tables(self, namespace: str | None = None) -> list[DroppedTable]:
        """The tables that were dropped and can be undropped, the last one first."""
        with self.store.read() as conn:
            rows = conn.all("select_dropped_tables")
            heads = {row["table_id"]: registry.read_head(conn, row["table_id"]) for row in rows}
        inside = {table.table_id for table in within([last_named(row) for row in rows], namespace)}
        return [DroppedTable.of(row, heads[row["table_id"]]) for row in rows if row["table_id"] in inside]

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
        raise NamespaceNotFoundError(f"there is no namespace {name}; `dl namespace list` lists those that exist")
    return found


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
    """The folder of a Delta table that a location is, or lies in; a storage that does not answer has none."""
    from .definitions.folder import has_log

    with suppress(DeltaError):
        return next((redact(one) for one in locations.around(location) if has_log(one)), None)
    return None


def _as_location(location: str, namespace: str) -> str:
    """The one spelling of the folder in which new tables of a namespace go."""
    from .definitions.folder import refuse_ambiguous
    from .files.location import canonical_location

    at = canonical_location(location)
    if at.rstrip("/") == "file:":
        raise ConfigError(f"tables of {namespace} cannot go to {at}: a whole disk is no place for them; name a folder")
    refuse_ambiguous(at, what=f"the namespace {namespace}")
    return at
