"""Opens Iceberg tables in PyIceberg: of a catalog, of a transaction, of a catalog at an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalakedb.exceptions import MissingExtraError

try:
    from deltalakedb.iceberg.catalog_tables import CatalogTables
    from deltalakedb.iceberg.instant_tables import READ_ONLY, InstantTables
    from deltalakedb.iceberg.mirror.mirroring import MirroredTable, mirror_table
    from deltalakedb.iceberg.pyiceberg_catalog import PyIcebergCatalog, Table
    from deltalakedb.iceberg.transaction_tables import TransactionTables
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyiceberg", "fastavro"):
        raise
    raise MissingExtraError("Iceberg tables in Python", "iceberg") from None

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.catalog import LoadedTable
    from deltalakedb.transactions.transaction import CatalogTransaction

__all__ = [
    "MirroredTable",
    "PyIcebergCatalog",
    "Table",
    "mirror_table",
    "open_at",
    "open_catalog",
    "open_in_transaction",
    "open_loaded",
]

_NO_NAMESPACES = (
    "a transaction does not change namespaces: use `create_namespace`, `set_namespace_properties` or `drop_namespace` "
    "of the catalog, outside of it"
)


def open_catalog(catalog: Catalog, storage_options: Mapping[str, str] | None = None) -> PyIcebergCatalog:
    """Return a catalog for PyIceberg; each change commits at once."""
    tables = CatalogTables(catalog, storage_options)
    return PyIcebergCatalog(tables, tables, tables)


def open_in_transaction(tx: CatalogTransaction, storage_options: Mapping[str, str] | None = None) -> PyIcebergCatalog:
    """Return a catalog for PyIceberg whose changes are staged in a transaction."""
    tables = TransactionTables(tx, storage_options)
    return PyIcebergCatalog(tables, tables, None, read_only=_NO_NAMESPACES)


def open_at(catalog: Catalog, at_ms: int, storage_options: Mapping[str, str] | None = None) -> PyIcebergCatalog:
    """Return the catalog as it was at an instant for PyIceberg, read-only."""
    return PyIcebergCatalog(InstantTables(catalog, at_ms, storage_options), None, None, read_only=READ_ONLY)


def open_loaded(catalog: Catalog, loaded: LoadedTable) -> Table:
    """Return a loaded version of a table, to read it."""
    return open_catalog(catalog).to_table(loaded)
