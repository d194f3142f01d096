"""Consistent cuts: the heads of all tables at one instant, and a table's version at an instant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.names import name_key
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.store.snapshot import SqlSnapshot

FEW_TABLES = 32
"""Up to this many tables, metadata and protocols are read with the heads; for more, when a table is used."""

PAGE_ROWS = 256


@dataclass(frozen=True, slots=True)
class Pin:
    """A table as it was at the cut."""

    table: TableRow
    head: Head
    metadata: Metadata | None = None
    protocol: Protocol | None = None

    def snapshot(self, store: Store) -> SqlSnapshot:
        """The snapshot of the pinned version, without reading again what the cut has read."""
        snapshot = SqlSnapshot(store, self.table, self.head.current_version, self.head.last_commit_ms)
        if self.metadata is not None and self.protocol is not None:
            snapshot.__dict__.update(metadata=self.metadata, protocol=self.protocol)
        return snapshot


def pin_all(store: Store) -> list[Row]:
    """Every registered table with its head, in one read; no lock and no connection is held afterwards.

    Returns rows, for `to_pin`: a transaction uses few of thousands of tables.
    """
    with store.read(single=True) as conn:
        rows = conn.all("select_pinned_tables", max_rows=FEW_TABLES + 1)
    if len(rows) <= FEW_TABLES:
        return rows
    with store.read(single=True) as conn:  # a new cut, which replaces the first read
        return conn.all("select_pinned_heads")


def pin_some(store: Store, names: Iterable[tuple[str, str]]) -> list[Row]:
    """The tables of these (namespace, name) that exist, in one snapshot."""
    keys = [{"namespace_key": name_key(namespace), "name_key": name_key(name)} for namespace, name in names]
    with store.read(single=len(keys) == 1) as conn:
        return [row for key in keys for row in conn.all("open_table", **key)]


def version_at(conn: Connection, table_id: int, at_ms: int) -> int | None:
    """The newest version committed at or before an instant, by the time of its transaction if it has one.

    A version's own time is mostly that of its transaction. It is later if the table's times would otherwise go
    backwards, and earlier if an engine set its own timestamp. So the own times only give a starting point: from there
    the search goes back to the last version whose transaction is not later, then forward while transactions are not.
    """
    version_row = conn.one("select_version_at", table_id=table_id, at_ms=at_ms)
    if version_row is not None:
        version_row = conn.one(
            "select_version_by_transaction", table_id=table_id, version=version_row["version"], at_ms=at_ms
        )
    version: int | None = None if version_row is None else version_row["version"]
    while True:
        last_version = -1 if version is None else version
        rows = conn.all("select_transactions_of_versions", table_id=table_id, version=last_version, max_rows=PAGE_ROWS)
        early_versions = [row["version"] for row in rows if row["committed_at_ms"] <= at_ms]
        version = early_versions[-1] if early_versions else version
        if len(early_versions) < PAGE_ROWS:
            return version


def to_pin(row: Row) -> Pin:
    """Builds a Pin from a row of the cut."""
    table, head = registry.to_table_row(row), registry.to_head(row)
    if row.get("metadata_id") is None:
        return Pin(table, head)
    opened = registry.to_open_table(row)
    return Pin(table, head, opened.metadata, opened.protocol)
