"""CatalogGrants: the part of Catalog that grants and revokes rights, and tells who has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from deltalakedb.catalog.entries import no_such_table
from deltalakedb.exceptions import ConfigError, NamespaceNotFoundError, TableNotFoundError
from deltalakedb.rights import CATALOG, Grantee, Right, SecuredObject, current_access
from deltalakedb.rights.grants import around
from deltalakedb.store import Connection, Store, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.grants import Grant, add_grant, grants_on, lock_grants, remove_grant
from deltalakedb.store.names import name_key, parse_namespace, parse_table_name
from deltalakedb.store.namespaces import list_namespaces
from deltalakedb.store.registry import TableRow

CATALOG_NAME = "catalog"
_NAMESPACE, _TABLE = "namespace:", "table:"


@dataclass(frozen=True, slots=True)
class GrantInForce:
    """A grant that holds on an object: on the object itself, or on what it is in."""

    right: str
    to: str
    """`user:NAME` or `group:NAME`."""
    on: str
    """What the right was granted on: `catalog`, `namespace:NAME` or `table:NAME`."""
    granted_by: str | None
    granted_at_ms: int


@dataclass(frozen=True, slots=True)
class _Target:
    """An object that a user has named."""

    object: SecuredObject
    shown: str
    table: TableRow | None = None


class CatalogGrants(ABC):
    """The methods of `Catalog` that work on grants; they hold for callers of `dl serve` while `rights.mode` is on."""

    store: Store
    origin: str

    @property
    @abstractmethod
    def actor(self) -> str: ...

    def grant(self, right: str, on: str, to: str) -> bool:
        """Grant a right to `user:NAME` or `group:NAME`; return False if it was granted before.

        `right` is discover, read, write, create or manage. `on` names a table, a view or a namespace, which includes
        everything in it, or is `catalog`. Write `table:NAME` or `namespace:NAME` if both have the name.
        """
        return self._change("grant", Right.parse(right), on, Grantee.parse(to))

    def revoke(self, right: str, on: str, to: str) -> bool:
        """Revoke what `grant` has granted on the same object; return False if it was not granted.

        Rights that come from another grant stay: `who_can` lists them.
        """
        return self._change("revoke", Right.parse(right), on, Grantee.parse(to))

    def who_can(self, on: str, right: str | None = None) -> list[GrantInForce]:
        """Return the grants in force on an object, those on what it is in included; `right`: only those that give it.

        `manage` gives every right, `write` also `read` and `discover`, `read` also `discover`.
        """
        wanted = None if right is None else Right.parse(right)
        with self.store.read() as conn:
            target = _find(conn, on)
            namespaces = () if target.object.kind == "catalog" else around(target.object.namespace_key)
            grants = grants_on(conn, namespaces, target.object.table_id)
            names = {name_key(row.namespace): row.namespace for row in list_namespaces(conn)}
        current_access().require_object(Right.MANAGE, target.object, target.shown)
        shown = {"catalog": CATALOG_NAME, "table": target.shown}
        in_force = [
            GrantInForce(
                grant.granted_right,
                f"{grant.grantee_kind}:{grant.grantee}",
                shown.get(grant.object_kind) or _NAMESPACE + names.get(grant.namespace_key, grant.namespace_key),
                grant.granted_by,
                grant.granted_at_ms,
            )
            for grant in grants
            if wanted is None or wanted in Right(grant.granted_right).included
        ]
        return sorted(in_force, key=lambda grant: (grant.to, grant.on, list(Right).index(Right(grant.right))))

    def _change(self, action: str, right: Right, on: str, to: Grantee) -> bool:
        with self.store.read() as conn:
            target = _find(conn, on)
        if right is Right.CREATE and target.table is not None:
            raise ConfigError(f"create is a right on a namespace or the catalog, and {target.shown} is neither")
        current_access().now().require_object(Right.MANAGE, target.object, target.shown)
        with self.store.write() as conn:
            lock_grants(conn)
            if _find(conn, on).object != target.object:
                raise TableNotFoundError(f"{on} was renamed or dropped meanwhile; nothing was changed: run it again")
            now_ms = conn.now_ms()
            kind, namespace_key, table_id = target.object.key
            grant = Grant(kind, namespace_key, table_id, to.kind, to.name, right.value, self.actor, now_ms)
            is_changed = add_grant(conn, grant) if action == "grant" else remove_grant(conn, grant)
            if is_changed:
                write_audit(
                    conn,
                    action=action,
                    at_ms=now_ms,
                    actor=self.actor,
                    origin=self.origin,
                    table=target.table,
                    details={"right": right.value, "on": target.shown, "to": str(to)},
                )
        return is_changed


def _find(conn: Connection, text: str) -> _Target:
    """Return the object that a text names; an error if there is none, or a table and a namespace of this name."""
    if text == CATALOG_NAME:
        return _Target(CATALOG, CATALOG_NAME)
    if text.startswith(_NAMESPACE):
        found = _find_namespace(conn, text.removeprefix(_NAMESPACE))
        if found is None:
            raise NamespaceNotFoundError(f"there is no {text}; `dl namespace list` lists those that exist")
        return found
    if text.startswith(_TABLE):
        name = parse_table_name(text.removeprefix(_TABLE))
        table = _find_table(conn, text.removeprefix(_TABLE))
        if table is None:
            raise no_such_table(conn, name)
        return table
    table, namespace = _find_table(conn, text), _find_namespace(conn, text)
    if table is not None and namespace is not None:
        raise ConfigError(
            f"{text} is a table and a namespace; write {table.shown} for the table, or {namespace.shown} for "
            "everything in the namespace"
        )
    target = table or namespace
    if target is None:
        raise no_such_table(conn, parse_table_name(text))
    return target


def _find_table(conn: Connection, text: str) -> _Target | None:
    name = parse_table_name(text)
    row = registry.resolve_table(conn, name.namespace, name.name)
    if row is None or not current_access().sees(row):
        return None
    return _Target(SecuredObject.of_table(row), _TABLE + row.full_name, row)


def _find_namespace(conn: Connection, text: str) -> _Target | None:
    """A namespace, also one that exists only because another one is inside it."""
    key = name_key(parse_namespace(text))
    if not current_access().sees_namespace(key):
        return None
    for row in list_namespaces(conn):
        row_key = name_key(row.namespace)
        if key in around(row_key):
            shown = row.namespace if row_key == key else parse_namespace(text)
            return _Target(SecuredObject("namespace", key), _NAMESPACE + shown)
    return None
