"""The catalog: its names, namespaces, views, addresses and instants, and the registry as users see it."""

from typing import TYPE_CHECKING

from deltalakedb.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog, begin, connect, open_catalog
    from deltalakedb.catalog.view import CatalogView

__all__ = ["Catalog", "CatalogView", "begin", "connect", "open_catalog"]

# Lazy: tables use the catalog's instants and addresses, and the catalog hands out tables.
__getattr__ = lazy_names(
    __name__,
    {
        "Catalog": "deltalakedb.catalog.catalog",
        "CatalogView": "deltalakedb.catalog.view",
        "begin": "deltalakedb.catalog.catalog",
        "connect": "deltalakedb.catalog.catalog",
        "open_catalog": "deltalakedb.catalog.catalog",
    },
)
