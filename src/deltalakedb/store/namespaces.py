"""Namespaces in SQL: created explicitly or on first use, dropped when empty, with properties and a history."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.names import name_key, quote_part

LOCATION = "location"
"""The property with the location of new tables directly in the namespace; without it they go to the warehouse."""

NOW = LIVE - 1
"""An instant after every change: what is valid then is valid now."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as users write it: its parts joined by dots, in backticks if they need them."""

    namespace: str
    properties: Mapping[str, Any]
    created_at_ms: int
    updated_at_ms: int
    """When its properties were last changed."""


def list_namespaces(conn: Connection, at_ms: int = NOW) -> list[Namespace]:
    """All namespaces now, or at an instant."""
    return [_to_namespace(row) for row in conn.all("select_namespaces", at_ms=at_ms)]


def find_namespace(conn: Connection, namespace: str) -> Namespace | None:
    """Finds a namespace by its name, ignoring case."""
    row = conn.one("select_namespace", namespace_key=name_key(namespace))
    return None if row is None else _to_namespace(row)


def ensure_namespace(
    conn: Connection, namespace: str, *, at_ms: int, properties: Mapping[str, Any] | None = None
) -> bool:
    """Creates the namespace if it does not exist; returns whether it was created."""
    key = name_key(namespace)
    if conn.one("select_namespace", namespace_key=key) is not None:
        return False
    conn.one("select_next_table_id")  # locks the catalog's row, so that concurrent creations run one after the other
    return _insert(conn, namespace, properties or {}, created_at_ms=at_ms, from_ms=at_ms) > 0


def set_namespace_properties(
    conn: Connection, current: Namespace, properties: Mapping[str, Any], *, at_ms: int
) -> None:
    """Replaces a namespace's properties from an instant on. The caller has locked its row."""
    from_ms = max(at_ms, current.updated_at_ms + 1)
    conn.run("end_namespace", namespace_key=name_key(current.namespace), until_ms=from_ms)
    _insert(conn, current.namespace, properties, created_at_ms=current.created_at_ms, from_ms=from_ms)


def drop_namespace(conn: Connection, current: Namespace, *, at_ms: int) -> None:
    """Ends an empty namespace. The caller has locked its row."""
    until_ms = max(at_ms, current.updated_at_ms + 1)
    conn.run("end_namespace", namespace_key=name_key(current.namespace), until_ms=until_ms)


def contents_of(conn: Connection, namespace: str) -> str | None:
    """Names something that a namespace still holds, for an error message; None if it is empty."""
    key = name_key(namespace)
    # Names inside begin with the key and a dot; a slash is the next character after the dot.
    row = conn.one("select_namespace_contents", namespace_key=key, first_inside=f"{key}.", after_inside=f"{key}/")
    if row is None or (row["table_name"] is None and row["namespace"] is None):
        return None
    if row["table_name"] is not None:
        return f"the table {quote_part(row['table_name'])}"
    return f"the namespace {row['namespace']}"


def _insert(
    conn: Connection, namespace: str, properties: Mapping[str, Any], *, created_at_ms: int, from_ms: int
) -> int:
    return conn.run(
        "insert_namespace",
        namespace_key=name_key(namespace),
        namespace=namespace,
        properties=json.dumps(properties, ensure_ascii=True, separators=(",", ":"), sort_keys=True),
        created_at_ms=created_at_ms,
        from_ms=from_ms,
    )


def _to_namespace(row: Row) -> Namespace:
    return Namespace(row["namespace"], json.loads(row["properties"]), row["created_at_ms"], row["from_ms"])
