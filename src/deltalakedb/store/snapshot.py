"""SqlSnapshot: a table's state at one version, read lazily from SQL; and consistent cuts of several tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltalakedb.exceptions import StoreError
from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.codec import to_sql_text
from deltalakedb.log.protocol.rows import (
    app_transaction_from_row,
    domain_metadata_from_row,
    metadata_from_row,
    protocol_from_row,
)
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, NEWEST_FIRST, TOMBSTONES_SCHEMA
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.store.connection import Connection, Row, Store, select_columns
from deltalakedb.store.kept_versions import check_kept, explain_absence, require_version
from deltalakedb.store.names import name_key
from deltalakedb.store.pages import iter_file_pages, iter_tombstone_pages
from deltalakedb.store.planning import PlannedFiles, plan
from deltalakedb.store.registry import Head, OpenTable, TableRow, read_head, to_head, to_open_table, to_table_row
from deltalakedb.store.vacuums import PURGED, purged

LARGE_RESULT = 20_000
"""From this many rows on, an engine's bulk path is worth its set-up."""


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Totals over the files of a version; num_records counts only files whose statistics have it."""

    num_files: int
    size_bytes: int
    num_records: int
    files_without_records: int


class SqlSnapshot:
    """A table at a pinned version: later commits do not change the results."""

    def __init__(self, store: Store, table: TableRow, version: int, timestamp_ms: int) -> None:
        self._store = store
        self._table = table
        self.version = version
        self.timestamp_ms = timestamp_ms

    @classmethod
    def of_open_table(cls, store: Store, opened: OpenTable) -> SqlSnapshot:
        """Makes the snapshot of an opened head without reading protocol and metadata again."""
        snapshot = cls(store, opened.table, opened.head.current_version, opened.head.last_commit_ms)
        snapshot.__dict__.update(protocol=opened.protocol, metadata=opened.metadata, fenced=opened.fenced)
        return snapshot

    def __repr__(self) -> str:
        return f"SqlSnapshot({self._table.full_name!r}, version={self.version})"

    @cached_property
    def protocol(self) -> Protocol:
        """The logical protocol; `fenced` says whether the mirror adds our table feature to it."""
        return protocol_from_row(self._one("select_protocol"))

    @cached_property
    def fenced(self) -> bool:
        return bool(self._one("select_protocol")["fenced"])

    @cached_property
    def metadata(self) -> Metadata:
        return metadata_from_row(self._one("select_metadata"))

    def metadata_history(self) -> list[Metadata] | None:
        """The metadata of every version up to this one; None if SQL does not begin with version 0."""
        rows = self._all("select_metadata_history")
        return [metadata_from_row(row) for row in rows] if rows and rows[0]["version"] == 0 else None

    def app_transactions(self) -> Mapping[str, AppTransaction]:
        actions = map(app_transaction_from_row, self._all("select_app_transactions"))
        return {action.app_id: action for action in actions}

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """The transaction of one application, without reading the others."""
        rows = self._all("select_app_transaction", app_id=to_sql_text(app_id))
        return app_transaction_from_row(rows[0]) if rows else None

    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        actions = map(domain_metadata_from_row, self._all("select_domain_metadata"))
        return {action.domain: action for action in actions}

    def files(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The live files, in pages if they are many; `columns` selects some columns."""
        schema = _files_schema(columns)
        with self._store.read() as conn:
            _, num_rows = self._files_query(conn)
        if num_rows < LARGE_RESULT:
            return self.files_table(columns).to_reader()
        pages = iter_file_pages(self._store, self._table, self.version, schema)
        return pa.RecordBatchReader.from_batches(schema, pages)

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The live files as one table, newest first."""
        schema = _files_schema(columns)
        names = [*schema.names, *NEWEST_FIRST]
        with self._store.read() as conn:
            query, num_rows = self._files_query(conn)
            text = select_columns(names, query)
            ids = {"table_id": self._table.table_id}
            if query == "select_live_files":
                if num_rows < LARGE_RESULT:
                    table = conn.sql_arrow(text, **ids)
                else:
                    table = conn.live_files(names, **ids, version=self.version)
            elif num_rows < LARGE_RESULT:
                table = conn.sql_arrow(text, **ids, version=self.version)
            else:
                table = conn.sql_large(text, **ids, version=self.version)
        if num_rows >= LARGE_RESULT:  # may have been read outside of the transaction
            check_kept(self._store, self._table, self.version)
        return table.sort_by(list(NEWEST_FIRST.items())).select(schema.names).cast(schema)

    def plan(
        self, predicate: Predicate, columns: Sequence[str] | None = None, *, explain: bool = False
    ) -> PlannedFiles:
        """The live files that may hold a row for which the predicate is true; see `planning.plan`."""
        with self._store.read() as conn:
            # Reads the head again: a commit since the version was opened may have deleted bounds.
            opened = OpenTable(self._table, self._head(conn), self.protocol, self.metadata, fenced=False)
            return plan(conn, opened, predicate, version=self.version, columns=columns, explain=explain)

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        """The tombstones, or those newer than an instant, in pages."""
        pages = iter_tombstone_pages(self._store, self._table, self.version, deleted_after_ms)
        return pa.RecordBatchReader.from_batches(TOMBSTONES_SCHEMA, pages)

    def totals(self) -> FileTotals:
        """Totals of the files: stored at the head, computed for an older version."""
        with self._store.read() as conn:
            head = self._head(conn)
            if head.current_version == self.version:
                return FileTotals(head.num_files, head.size_bytes, head.num_records, head.files_without_records)
            require_version(conn, self._table, self.version)
            row = conn.one("count_files_at", table_id=self._table.table_id, version=self.version)
        assert row is not None
        return FileTotals(**{name: int(value or 0) for name, value in row.items()})

    def _files_query(self, conn: Connection) -> tuple[str, int]:
        """The query to use and an upper bound of its rows: at the head the live files, before it the side of the
        history with fewer rows."""
        head = self._head(conn)
        if head.current_version == self.version:
            return "select_live_files", head.num_files
        row = require_version(conn, self._table, self.version)
        head_row = require_version(conn, self._table, head.current_version)
        added_up_to = row["total_added"]
        removed_after = head_row["total_added"] - row["total_closed"]
        if added_up_to <= removed_after:
            return "select_files_added_up_to", added_up_to
        return "select_files_removed_after", removed_after

    def _head(self, conn: Connection) -> Head:
        head = read_head(conn, self._table.table_id)
        if head is None:
            raise StoreError(f"table {self._table.full_name} is no longer in the database")
        if head.vacuumed_version == PURGED:
            raise purged(self._table.full_name, head.current_version)
        return head

    def check_kept(self) -> None:
        """Raises if `dl gc` has removed the version since it was opened."""
        check_kept(self._store, self._table, self.version)

    def _all(self, query: str, **parameters: str) -> list[Row]:
        """Rows in force at this version; raises if `dl gc` has removed it."""
        ids = {"table_id": self._table.table_id, "version": self.version}
        with self._store.read() as conn:
            rows, version_rows = conn.gather([(query, ids | parameters), ("select_version", ids)])
            if not version_rows:
                raise explain_absence(conn, self._table, self.version)
        return rows

    def _one(self, query: str) -> Row:
        rows = self._all(query)
        if not rows:
            raise StoreError(f"table {self._table.full_name}: {query} finds nothing at version {self.version}")
        return rows[0]


def _files_schema(columns: Sequence[str] | None) -> pa.Schema:
    return FILES_SCHEMA if columns is None else pa.schema([FILES_SCHEMA.field(name) for name in columns])


FEW_TABLES = 32
"""Up to this many tables, metadata and protocols are read with the heads; for more, when a table is used."""

PAGE_ROWS = 256


def pin_all(store: Store) -> list[Row]:
    """Every registered table with its head, in one read; no lock and no connection is held afterwards.

    Returns rows, for `to_pinned`: a transaction uses few of thousands of tables.
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


def to_pinned(store: Store, row: Row) -> tuple[TableRow, Head, SqlSnapshot | None]:
    """Builds a table of a cut from its row, with the snapshot of its head; None for an Iceberg table or view."""
    if row.get("metadata_id") is not None:
        opened = to_open_table(row)
        return opened.table, opened.head, SqlSnapshot.of_open_table(store, opened)
    table, head = to_table_row(row), to_head(row)
    if not table.is_delta:
        return table, head, None
    return table, head, SqlSnapshot(store, table, head.current_version, head.last_commit_ms)
