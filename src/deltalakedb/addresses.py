"""What a table's address means: a catalog and a name in it, from a catalog URI, a name or a location."""

from __future__ import annotations

import os

from .catalog import Catalog, connect
from .exceptions import CatalogUriError, ConfigError, TableNotFoundError
from .names import TableName, parse_table_name
from .store import registry
from .uri import is_catalog_uri, parse_catalog_uri


def locate(text: str) -> tuple[Catalog, TableName]:
    """The catalog and the name that a table's address means."""
    if is_catalog_uri(text):
        address = parse_catalog_uri(text)
        if address.table is None:
            raise CatalogUriError(f"{address} names a catalog but no table; add ?table=namespace.name")
        return connect(text), address.table
    try:
        catalog = connect()
    except ConfigError as error:
        raise ConfigError(
            f"cannot open {text!r} as a table: {error}; or give deltasql://...?table=namespace.name"
        ) from error
    try:
        return catalog, registered_name(catalog, text)
    except BaseException:
        catalog.close()
        raise


def registered_name(catalog: Catalog, text: str) -> TableName:
    """A table by its name, else by its location."""
    looks_like_path = "/" in text or os.path.isdir(os.path.join(text, "_delta_log"))
    with catalog.store.read() as conn:
        if not looks_like_path:
            return parse_table_name(text)
        from .files.location import canonical_location

        location = canonical_location(text)
        row = registry.table_by_location(conn, location)
    if row is None:
        raise TableNotFoundError(
            f"the catalog {catalog.uri} has no table at {location}; `dl attach {location} --as namespace.name` adds it"
        )
    return TableName(row.namespace, row.name)
