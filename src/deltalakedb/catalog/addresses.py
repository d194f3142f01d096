"""Resolves a table's address to a table of a catalog, or to a location whose `_delta_log` decides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from deltalakedb.catalog.catalog import Catalog, open_catalog
from deltalakedb.catalog.uri import is_catalog_uri, parse_catalog_uri
from deltalakedb.exceptions import CatalogUriError, ConfigError, TableNotFoundError
from deltalakedb.log.protocol import paths
from deltalakedb.runtime.config import load_config
from deltalakedb.store import registry
from deltalakedb.store.names import TableName, outside_backticks, parse_table_name


@dataclass(frozen=True, slots=True)
class SqlAddress:
    """A name in a catalog that was opened for it, and that the caller must close; the table need not exist yet."""

    catalog: Catalog
    name: TableName
    location: str | None = None
    """Where the table is created if it does not exist; None: in the warehouse."""


@dataclass(frozen=True, slots=True)
class PathAddress:
    """A canonical location where there may be a table, without a catalog."""

    location: str
    text: str
    """The address as the caller wrote it."""

    def not_found(self) -> TableNotFoundError:
        """Return the error for a location without a table."""
        hint = ""
        if not _looks_like_path(self.text):
            hint = f"; if {self.text!r} is a name in a catalog, set DL_CATALOG or give deltasql://...?table=ns.name"
        what = f"there is no Delta table at {self.location}{hint}"
        local = paths.local_path(self.location)
        if local is None or os.path.exists(local):
            return TableNotFoundError(f"No files in log segment: {what}")
        return TableNotFoundError(f'Local path "{self.text}" does not exist or you don\'t have access! {what}')


def resolve(
    table_uri: object,
    storage_options: Mapping[str, str] | None = None,
    *,
    writes: bool = False,
    only_new: bool = False,
    registers: bool = True,
) -> SqlAddress | PathAddress:
    """Find a table by its address: `deltasql://...?table=ns.name`, a path or URL, or a name if DL_CATALOG is set.

    If DL_CATALOG is set, the location of a registered table means that table. With DL_REGISTER_PATHS=1 other paths
    are registered: attached for reading, imported or created for writing (see paths.py), unless `registers` is False.
    `only_new`: the caller writes only if there is no table.
    """
    # Anything else than a str or path is taken as text, as in `deltalake`: no table will be found there.
    text = os.fspath(table_uri) if isinstance(table_uri, str | os.PathLike) else str(table_uri)
    if is_catalog_uri(text):
        return SqlAddress(*locate(text))
    if load_config().catalog is None:
        return _place(text, storage_options)
    catalog = open_catalog()
    try:
        address = _in_catalog(catalog, text, storage_options, writes=writes, only_new=only_new, registers=registers)
    except BaseException:
        catalog.close()
        raise
    if isinstance(address, PathAddress):
        catalog.close()
    return address


def _in_catalog(
    catalog: Catalog,
    text: str,
    storage_options: Mapping[str, str] | None,
    *,
    writes: bool,
    only_new: bool,
    registers: bool,
) -> SqlAddress | PathAddress:
    if not _looks_like_path(text):
        return SqlAddress(catalog, parse_table_name(text))
    from deltalakedb.catalog.registration import find_by_path, find_registered

    place = _place(text, storage_options)
    if registers:
        name = find_by_path(catalog, place.location, storage_options, writes=writes, only_new=only_new)
    else:
        name = find_registered(catalog, place.location)
    return place if name is None else SqlAddress(catalog, name, place.location)


def _place(text: str, storage_options: Mapping[str, str] | None) -> PathAddress:
    from deltalakedb.storage.location import canonical_location

    return PathAddress(canonical_location(text, storage_options), text)


def _looks_like_path(text: str) -> bool:
    return "/" in outside_backticks(text) or os.path.isdir(os.path.join(text, "_delta_log"))


def locate(text: str) -> tuple[Catalog, TableName]:
    """Return the catalog and the table name of an address; raise if there is no catalog."""
    if is_catalog_uri(text):
        address = parse_catalog_uri(text)
        if address.table is None:
            raise CatalogUriError(f"{address} names a catalog but no table; add ?table=namespace.name")
        return open_catalog(address), address.table
    try:
        catalog = open_catalog()
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
    """Return the name of a table given by its name or its location."""
    if not _looks_like_path(text):
        return parse_table_name(text)
    location = _place(text, None).location
    with catalog.store.read() as conn:
        row = registry.table_by_location(conn, location)
    if row is None:
        raise TableNotFoundError(
            f"the catalog {catalog.uri} has no table at {location}; `dl attach {location} --as namespace.name` adds it"
        )
    return TableName(row.namespace, row.name)
