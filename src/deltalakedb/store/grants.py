"""Grants in SQL: who was granted which right on what, and how often that has changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

from deltalakedb.store.connection import Connection
from deltalakedb.store.locations import lock_locations
from deltalakedb.store.names import name_key
from deltalakedb.store.queries import named_queries

ObjectKind = Literal["catalog", "namespace", "table"]
GranteeKind = Literal["user", "group"]
ObjectKey = tuple[ObjectKind, str, int]
"""What a grant is on: its kind, the key of a namespace or '', the id of a table or 0."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One right of one user or group on one object."""

    object_kind: ObjectKind
    namespace_key: str
    table_id: int
    grantee_kind: GranteeKind
    grantee: str
    granted_right: str
    granted_by: str | None = None
    granted_at_ms: int = 0

    @property
    def on(self) -> ObjectKey:
        return self.object_kind, self.namespace_key, self.table_id


def add_grant(conn: Connection, grant: Grant) -> bool:
    """Grants a right; returns False if it was granted before."""
    return _changed(conn, conn.run("insert_grant", **asdict(grant)))


def remove_grant(conn: Connection, grant: Grant) -> bool:
    """Revokes a right; returns False if it was not granted."""
    values = asdict(grant)
    del values["granted_by"], values["granted_at_ms"]
    return _changed(conn, conn.run("delete_grant", **values))


def remove_grants_of_namespace(conn: Connection, namespace: str) -> None:
    """Revokes what was granted on a namespace itself, not what was granted on tables and namespaces in it."""
    _changed(conn, conn.run("delete_grants_of_namespace", namespace_key=name_key(namespace)))


def own_table(conn: Connection, table_id: int, user: str, at_ms: int) -> None:
    """Lets the user who creates a table manage it."""
    add_grant(conn, Grant("table", "", table_id, "user", user, "manage", user, at_ms))


def own_namespace(conn: Connection, namespace: str, user: str, at_ms: int) -> None:
    """Lets the user who creates a namespace manage it."""
    add_grant(conn, Grant("namespace", name_key(namespace), 0, "user", user, "manage", user, at_ms))


def lock_grants(conn: Connection) -> None:
    """Lets one transaction at a time change grants; taken before any other lock, in the order of commits."""
    lock_locations(conn)


def read_epoch(conn: Connection) -> int:
    """How often grants were changed."""
    row = conn.one("select_grants_epoch")
    return 0 if row is None else int(row["grants_epoch"])


def grants_of(conn: Connection, user: str, groups: Collection[str]) -> list[Grant]:
    """The grants of a user and of the user's groups."""
    text, keys = _with_groups("select_grants_of", groups)
    return [Grant(**row) for row in conn.sql(text, grantee=user, **keys)]


def grants_on(conn: Connection, namespace_keys: Sequence[str], table_id: int) -> list[Grant]:
    """The grants on the catalog, on these namespaces and on a table (0: none)."""
    keys = {f"key_{number}": key for number, key in enumerate(namespace_keys or [""])}
    text = _listed("select_grants_on", ":namespace_key", tuple(keys))
    return [Grant(**row) for row in conn.sql(text, table_id=table_id, **keys)]


def namespaces_of_granted(conn: Connection, user: str, groups: Collection[str]) -> list[str]:
    """The namespaces of the tables on which a user, or one of the user's groups, was granted something."""
    text, keys = _with_groups("select_namespaces_of_granted", groups)
    return [str(row["namespace"]) for row in conn.sql(text, grantee=user, **keys)]


def _changed(conn: Connection, count: int) -> bool:
    if count == 0:
        return False
    if conn.run("advance_grants_epoch") == 0:
        conn.run("begin_grants_epoch")
    return True


def _with_groups(query: str, groups: Collection[str]) -> tuple[str, dict[str, str]]:
    keys = {f"group_{number}": group for number, group in enumerate(sorted(groups) or [""])}
    return _listed(query, ":grantee_group", tuple(keys)), keys


@lru_cache(maxsize=256)
def _listed(query: str, parameter: str, keys: tuple[str, ...]) -> str:
    """Returns a query with one parameter replaced by several."""
    return named_queries()[query].replace(parameter, ", ".join(f":{key}" for key in keys))
