"""Consistent cuts: the heads of all tables at one moment, and the version a table had at an instant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.names import name_key
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.store.snapshot import SqlSnapshot

FEW_TABLES = 32
"""Up to so many tables, metadata and protocols are read with the heads; of more, each table's when it is used."""

PAGE_ROWS = 256


@dataclass(frozen=True, slots=True)
class Pin:
    """A table as it was when the cut was made."""

    table: TableRow
    head: Head
    metadata: Metadata | None = None
    protocol: Protocol | None = None

    def snapshot(self, store: Store) -> SqlSnapshot:
        """The pinned version; what the cut has read is not read again."""
        snapshot = SqlSnapshot(store, self.table, self.head.current_version, self.head.last_commit_ms)
        if self.metadata is not None and self.protocol is not None:
            snapshot.__dict__.update(metadata=self.metadata, protocol=self.protocol)
        return snapshot


def pin_all(store: Store) -> list[Row]:
    """Every registered table with its head, in one read; no lock and no connection is held afterwards.

    Rows, for `to_pin`: of thousands of tables a transaction uses a few.
    """
    with store.read(single=True) as conn:
        rows = conn.all("select_pinned_tables", max_rows=FEW_TABLES + 1)
    if len(rows) <= FEW_TABLES:
        return rows
    with store.read(single=True) as conn:  # a cut of its own: what the first read saw is forgotten
        return conn.all("select_pinned_heads")


def pin_some(store: Store, names: Iterable[tuple[str, str]]) -> list[Row]:
    """The tables of these (namespace, name) that exist, in one snapshot."""
    keys = [{"namespace_key": name_key(namespace), "name_key": name_key(name)} for namespace, name in names]
    with store.read(single=len(keys) == 1) as conn:
        return [row for key in keys for row in conn.all("open_table", **key)]


def version_at(conn: Connection, table_id: int, at_ms: int) -> int | None:
    """The newest version committed at or before an instant; by the transaction's time where there is one.

    A version's own time mostly is its transaction's. It lies after it where own times would step back within a table,
    and before it where an engine stamped its commit itself. So what the own times say is a start: the last version of
    those that does not belong to a later instant, and a few versions more may.
    """
    found = conn.one("select_version_at", table_id=table_id, at_ms=at_ms)
    if found is not None:
        found = conn.one("select_version_by_transaction", table_id=table_id, version=found["version"], at_ms=at_ms)
    version: int | None = None if found is None else found["version"]
    while True:
        after = -1 if version is None else version
        rows = conn.all("select_transactions_of_versions", table_id=table_id, version=after, max_rows=PAGE_ROWS)
        early = [row["version"] for row in rows if row["committed_at_ms"] <= at_ms]
        version = early[-1] if early else version
        if len(early) < PAGE_ROWS:
            return version


def to_pin(row: Row) -> Pin:
    """A table of the cut, from the row it was read as."""
    table, head = registry.to_table_row(row), registry.to_head(row)
    if "metadata_id" not in row:
        return Pin(table, head)
    opened = registry.to_open_table(row)
    return Pin(table, head, opened.metadata, opened.protocol)
