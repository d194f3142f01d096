"""Reservations: which name a first commit at a location takes, known to every endpoint of the catalog for an hour."""

from __future__ import annotations

import hashlib

from deltalakedb.names import TableName, parse_table_name
from deltalakedb.store import Store
from deltalakedb.store.connection import LIVE

RESERVED_MS = 3_600_000
"""How long a name may wait for the first commit at the location that was given out for it."""


class Reservations:
    """Kept in SQL: who commits may ask another endpoint, or the same one after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, location: str, name: TableName) -> None:
        """The latest one holds: an earlier CREATE that failed must not keep the place."""
        with self._store.write() as conn:
            until_ms = conn.now_ms() + RESERVED_MS
            conn.run("take_lease", lease=_lease(location), holder=str(name), until_ms=until_ms, now_ms=LIVE)

    def get(self, location: str) -> TableName | None:
        with self._store.read() as conn:
            found = conn.one("select_lease", lease=_lease(location))
            is_over = found is None or found["until_ms"] < conn.now_ms()
        return None if found is None or is_over else parse_table_name(found["holder"])

    def drop(self, location: str, name: TableName) -> None:
        """The first commit is made: the location has an owner now."""
        with self._store.write() as conn:
            conn.run("release_lease", lease=_lease(location), holder=str(name))


def _lease(location: str) -> str:
    # A location may be longer than what an index takes.
    return f"reserved:{hashlib.sha256(location.encode()).hexdigest()}"
