"""CatalogTables: the Iceberg tables and views of a catalog for PyIceberg; each change commits at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalakedb.iceberg.catalog import IcebergCatalog, LoadedTable
from deltalakedb.iceberg.file_io import open_file_io
from deltalakedb.transactions.drafts import IcebergFiles

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from deltalakedb.catalog.catalog import Catalog


class CatalogTables(IcebergCatalog):
    """The tables, views and namespaces of a catalog as they are now. Locations are not limited: the caller is trusted.

    `storage_options` are used for all tables.
    """

    def __init__(self, catalog: Catalog, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(catalog, IcebergFiles(None, storage_options))

    @property
    def address(self) -> str:
        return str(self.catalog.uri)

    def open_io(self, table: LoadedTable) -> FileIO:
        """Return the FileIO of a table."""
        return open_file_io(table.metadata["location"], table.options)

    # -- namespaces

    def namespaces(self) -> list[str]:
        """Return all namespaces."""
        return self.catalog.namespaces()

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        return dict(self.catalog.namespace(namespace).properties)

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Create a namespace."""
        self.catalog.create_namespace(namespace, properties)

    def drop_namespace(self, namespace: str) -> None:
        """Drop an empty namespace."""
        self.catalog.drop_namespace(namespace)

    def set_namespace_properties(self, namespace: str, changes: Mapping[str, str | None]) -> None:
        """Set properties of a namespace; None removes one."""
        self.catalog.set_namespace_properties(namespace, changes)
