"""IcebergAccess: the method `iceberg` of a catalog, of a transaction and of a catalog at an instant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from deltalakedb.iceberg.pyiceberg_catalog import PyIcebergCatalog, Table


class IcebergAccess(ABC):
    """Opens Iceberg tables in PyIceberg; this needs the extra `iceberg`."""

    @abstractmethod
    def _open_iceberg(self, storage_options: Mapping[str, str] | None) -> PyIcebergCatalog: ...

    @overload
    def iceberg(self, name: None = None, *, storage_options: Mapping[str, str] | None = None) -> PyIcebergCatalog: ...

    @overload
    def iceberg(self, name: str, *, storage_options: Mapping[str, str] | None = None) -> Table: ...

    def iceberg(
        self, name: str | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> PyIcebergCatalog | Table:
        """Open an Iceberg table as a PyIceberg `Table`, or without a name a PyIceberg `Catalog` of all tables.

        A commit of PyIceberg is one transaction of this catalog. In a transaction it is staged instead, and becomes
        visible with the transaction; if another one changes a table that was opened here, the commit of this one fails
        with VersionTakenError. At an instant, tables are read-only.

        `storage_options` are those of `deltalake` or of PyIceberg (`s3.endpoint`); the environment supplies the rest.
        """
        opened = self._open_iceberg(storage_options)
        return opened if name is None else opened.open_table(name)
