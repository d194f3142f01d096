"""SqlBacking: a table whose log a catalog keeps in SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalakedb import telemetry
from deltalakedb.catalog.entries import no_such_table, require_table
from deltalakedb.catalog.instants import to_iso
from deltalakedb.exceptions import FilesPurgedError, NameChangedError, TableNotFoundError
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.operations.target import Verb
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE
from deltalakedb.store.names import TableName
from deltalakedb.store.overlay import OverlaySnapshot
from deltalakedb.store.reader import HistoryEntry, SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from deltalakedb.store.snapshot import SqlSnapshot, version_at
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.tables.backing import TableSnapshot

_RENAMES = 5
"""How often a statement is retried if the table was renamed meanwhile."""


class SqlBacking:
    """A table of a catalog; `row` is its registry row as last read."""

    def __init__(self, catalog: Catalog, row: TableRow, storage_options: Mapping[str, str] | None = None) -> None:
        self.catalog = catalog
        self.given_options = dict(storage_options) if storage_options else None
        self.use(row)

    def use(self, row: TableRow) -> None:
        """Take a registry row that was read since: the table may have another name."""
        self.row = row
        self.name = row.full_name
        self.reader = SqlTxnLogReader(self.catalog.store, row)

    @classmethod
    def open(
        cls, catalog: Catalog, name: TableName, storage_options: Mapping[str, str] | None
    ) -> tuple[SqlBacking, SqlSnapshot]:
        """Open the table of this name at its newest version; one row is read, however many files it has."""
        opened = _open(catalog, name)
        backing = cls(catalog, opened.table, storage_options)
        return backing, SqlSnapshot.of_open_table(catalog.store, opened)

    @classmethod
    def open_at(cls, catalog: Catalog, name: TableName, at_ms: int) -> tuple[SqlBacking, TableSnapshot]:
        """Open the table that had this name at an instant, at its version of that instant."""
        with catalog.store.read() as conn:
            row = require_table(conn, name, at_ms=at_ms)
            version = version_at(conn, row.table_id, at_ms)
            head = registry.read_head(conn, row.table_id)
        if head is not None and head.vacuumed_version == LIVE:
            raise FilesPurgedError(
                f"there was a table {row.full_name} at {to_iso(at_ms)}, and it was dropped since: its files are "
                "deleted. Its history can still be read with `dl sql`"
            )
        backing = cls(catalog, row)
        # None: nothing that old is kept, or the log has a gap there; the reader then raises the error that explains it.
        pinned_version = None if row.mode == "follower" else version
        return backing, backing.snapshot(backing.reader.version_at(at_ms) if pinned_version is None else pinned_version)

    @property
    def location(self) -> str:
        return self.row.location

    @property
    def mode(self) -> str:
        return self.row.mode

    def storage_options(self) -> dict[str, str]:
        return {**(self.catalog.storage_options_of(self.row) or {}), **(self.given_options or {})}

    def newest(self) -> SqlSnapshot:
        with self.catalog.store.read(single=True) as conn:
            row = registry.table_by_id(conn, self.row.table_id)
        if row is None:
            raise TableNotFoundError(f"{self.name} was dropped from the catalog {self.catalog.uri}")
        opened = _open(self.catalog, TableName(row.namespace, row.name))
        self.use(opened.table)
        return SqlSnapshot.of_open_table(self.catalog.store, opened)

    def snapshot(self, version: int) -> SqlSnapshot:
        return self.reader.snapshot(version)

    def version_at(self, at_ms: int) -> int:
        """Return the newest version at an instant; if all are later, the oldest one kept, as in `deltalake`."""
        return self.reader.version_at(at_ms, or_oldest=True)

    def vacuumed_version(self) -> int:
        with self.catalog.store.read(single=True) as conn:
            head = registry.read_head(conn, self.row.table_id)
        return 0 if head is None else head.vacuumed_version

    def history(
        self, limit: int | None, *, snapshot: TableSnapshot, since_ms: int | None, until_ms: int | None
    ) -> list[HistoryEntry]:
        latest_ms = snapshot.timestamp_ms  # timestamps increase with versions
        until_ms = latest_ms if until_ms is None else min(latest_ms, until_ms)
        entries = self.reader.history(limit, since_ms=since_ms, until_ms=until_ms)
        if not entries or entries[0].version != snapshot.version:
            assert isinstance(snapshot, SqlSnapshot | OverlaySnapshot)
            snapshot.check_kept()  # raise rather than return what `dl gc` has left
        return entries

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        return self.reader.commits(start, end)

    def run(
        self,
        verb: Verb,
        properties: CommitProperties,
        hooks: PostCommitHookProperties,  # noqa: ARG002  the mirror does both
        *,
        at: TableSnapshot | None = None,
    ) -> dict[str, Any]:
        """Run a verb in a transaction of its own, on a version of the table, and commit.

        The table is identified by its id, so that it may be renamed meanwhile.
        """
        for _ in range(_RENAMES):
            with self.catalog.begin(tables=[self.name]) as tx:
                if tx.is_about(self.name, self.row.table_id, at if isinstance(at, SqlSnapshot) else None):
                    tx.use_options(self.name, self.given_options)
                    return tx.run(self.name, verb, properties)
            self.newest()  # renamed or dropped: read the new name, or raise
        raise NameChangedError(f"table {self.name} was renamed again and again; nothing was committed")

    def close(self) -> None:
        self.catalog.close()


def _open(catalog: Catalog, name: TableName) -> registry.OpenTable:
    started = time.perf_counter()
    with catalog.store.read(single=True) as conn:
        opened = registry.open_table(conn, name.namespace, name.name)
    telemetry.observe_open((time.perf_counter() - started) * 1000)
    if opened is None:
        with catalog.store.read() as conn:
            raise no_such_table(conn, name)
    return opened
