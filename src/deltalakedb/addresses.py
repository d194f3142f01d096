"""What a table's address means: a table of a catalog, or a place whose `_delta_log` decides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .catalog import Catalog, open_catalog
from .config import load_config
from .exceptions import CatalogUriError, ConfigError, TableNotFoundError
from .names import TableName, outside_backticks, parse_table_name
from .store import registry
from .uri import is_catalog_uri, parse_catalog_uri


@dataclass(frozen=True, slots=True)
class SqlAddress:
    """A name in a catalog, which was opened for it and is the caller's to close; there may be no such table yet."""

    catalog: Catalog
    name: TableName
    location: str | None = None
    """Where the table is to lie if it has to be created; None: below the warehouse."""


@dataclass(frozen=True, slots=True)
class PathAddress:
    """A place in its one canonical spelling, where there may be a table; no catalog has anything to do with it."""

    location: str
    text: str
    """As the caller wrote it."""

    def not_found(self) -> TableNotFoundError:
        """The error for a place without a table."""
        hint = ""
        if not _looks_like_path(self.text):
            hint = f"; if {self.text!r} is a name in a catalog, set DL_CATALOG or give deltasql://...?table=ns.name"
        return TableNotFoundError(f"there is no Delta table at {self.location}{hint}")


def resolve(
    table_uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    writes: bool = False,
    only_new: bool = False,
    registers: bool = True,
) -> SqlAddress | PathAddress:
    """Where a table is: `deltasql://...?table=ns.name`, a path or URL, or with DL_CATALOG set a name.

    With DL_CATALOG set, a path that is the location of a registered table means that table. With DL_REGISTER_PATHS=1
    one that is not becomes registered: attached to be read, imported or created to be written (see paths.py), unless
    `registers` is False. `only_new`: who writes leaves a table that is there alone.
    """
    text = os.fspath(table_uri)
    if is_catalog_uri(text):
        return SqlAddress(*locate(text))
    if load_config().catalog is None:
        return _place(text, storage_options)
    catalog = open_catalog()
    try:
        found = _in_catalog(catalog, text, storage_options, writes=writes, only_new=only_new, registers=registers)
    except BaseException:
        catalog.close()
        raise
    if isinstance(found, PathAddress):
        catalog.close()
    return found


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
    from .paths import find_by_path, find_registered

    place = _place(text, storage_options)
    if registers:
        found = find_by_path(catalog, place.location, storage_options, writes=writes, only_new=only_new)
    else:
        found = find_registered(catalog, place.location)
    return place if found is None else SqlAddress(catalog, found, place.location)


def _place(text: str, storage_options: Mapping[str, str] | None) -> PathAddress:
    from .files.location import canonical_location

    return PathAddress(canonical_location(text, storage_options), text)


def _looks_like_path(text: str) -> bool:
    return "/" in outside_backticks(text) or os.path.isdir(os.path.join(text, "_delta_log"))


def locate(text: str) -> tuple[Catalog, TableName]:
    """The catalog and the name that a table's address means, for who needs a catalog."""
    if is_catalog_uri(text):
        address = parse_catalog_uri(text)
        if address.table is None:
            raise CatalogUriError(f"{address} names a catalog but no table; add ?table=namespace.name")
        return open_catalog(text), address.table
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
    """A table by its name, else by its location."""
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
