"""InstantTables: Iceberg tables and views as they were at an instant, read-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalakedb.catalog.entries import require_table
from deltalakedb.catalog.instants import to_iso
from deltalakedb.exceptions import FilesPurgedError, NamespaceNotFoundError, VersionNotFoundError
from deltalakedb.iceberg.catalog import LoadedTable
from deltalakedb.iceberg.file_io import open_file_io, refuse_writes
from deltalakedb.iceberg.statements import no_such
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE
from deltalakedb.store.iceberg import read_iceberg_version
from deltalakedb.store.names import TableName, name_key
from deltalakedb.store.namespaces import list_namespaces
from deltalakedb.store.registry import ICEBERG, VIEW
from deltalakedb.store.snapshot import version_at

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from deltalakedb.catalog.catalog import Catalog

READ_ONLY = "this is the catalog as it was at an instant, which is read-only; change tables in the catalog of today"


class InstantTables:
    """The Iceberg tables and views of a catalog, as they were at an instant."""

    def __init__(self, catalog: Catalog, at_ms: int, storage_options: Mapping[str, str] | None = None) -> None:
        self._catalog = catalog
        self._at_ms = at_ms
        self._options = storage_options

    @property
    def address(self) -> str:
        return f"{self._catalog.uri} at {to_iso(self._at_ms)}"

    # -- reading

    def list_tables(self, namespace: str) -> list[str]:
        """Return the names that tables directly in a namespace had, those of Delta tables included."""
        return [name for name, mode in self._names(namespace) if mode != VIEW]

    def list_views(self, namespace: str) -> list[str]:
        """Return the names that views directly in a namespace had."""
        return [name for name, mode in self._names(namespace) if mode == VIEW]

    def _names(self, namespace: str) -> list[tuple[str, str]]:
        self.namespace_properties(namespace)
        with self._catalog.store.read(single=True) as conn:
            rows = registry.list_tables(conn, self._at_ms)
        return [(row.name, row.mode) for row in rows if name_key(row.namespace) == name_key(namespace)]

    def load_table(self, name: TableName) -> LoadedTable:
        """Load the table that had this name, at its version of the instant."""
        return self._load(name, "table")

    def load_view(self, name: TableName) -> LoadedTable:
        """Load the view that had this name, at its version of the instant."""
        return self._load(name, "view")

    def _load(self, name: TableName, kind: str) -> LoadedTable:
        with self._catalog.store.read() as conn:
            row = require_table(conn, name, at_ms=self._at_ms)
            if row.mode != (VIEW if kind == "view" else ICEBERG):
                raise no_such(name, kind, is_delta=row.is_delta)
            head = registry.read_head(conn, row.table_id)
            if head is not None and head.vacuumed_version == LIVE:
                raise FilesPurgedError(
                    f"there was a table {row.full_name} at {to_iso(self._at_ms)}, and it was purged since: its files "
                    "are deleted. Its history can still be read with `dl sql`"
                )
            version = version_at(conn, row.table_id, self._at_ms)
            if version is None:
                raise VersionNotFoundError(
                    f"{row.full_name} has no version from {to_iso(self._at_ms)} any more: `dl gc` has removed it"
                )
            found = read_iceberg_version(conn, row.table_id, version)
        options = {**(self._catalog.storage_options_of(row) or {}), **(self._options or {})} or None
        full_name = TableName(row.namespace, row.name)
        return LoadedTable(
            full_name, row.table_id, row.table_uuid, version, found.metadata_location, found.metadata, options
        )

    def table_exists(self, name: TableName) -> bool:
        """Return whether an Iceberg table had this name."""
        return self._mode_of(name) == ICEBERG

    def view_exists(self, name: TableName) -> bool:
        """Return whether a view had this name."""
        return self._mode_of(name) == VIEW

    def _mode_of(self, name: TableName) -> str | None:
        with self._catalog.store.read(single=True) as conn:
            row = registry.resolve_table(conn, name.namespace, name.name, at_ms=self._at_ms)
        return None if row is None else row.mode

    def open_io(self, table: LoadedTable) -> FileIO:
        """Return a FileIO that creates no files."""
        return refuse_writes(open_file_io(table.metadata["location"], table.options), READ_ONLY)

    def namespaces(self) -> list[str]:
        """Return the namespaces that existed."""
        with self._catalog.store.read(single=True) as conn:
            return [row.namespace for row in list_namespaces(conn, self._at_ms)]

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties that a namespace had."""
        with self._catalog.store.read(single=True) as conn:
            rows = list_namespaces(conn, self._at_ms)
        for row in rows:
            if name_key(row.namespace) == name_key(namespace):
                return dict(row.properties)
        raise NamespaceNotFoundError(f"Namespace did not exist at {to_iso(self._at_ms)}: {namespace}")
