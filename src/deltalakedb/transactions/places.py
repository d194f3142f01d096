"""Locations of new tables: each is reserved in SQL before anything is written there."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from deltalakedb.exceptions import ConfigError, LocationOwnedError
from deltalakedb.operations.folder import (
    default_location,
    is_unused,
    namespace_location,
    refuse_ambiguous,
    refuse_existing_log,
    shows_iceberg_table,
)
from deltalakedb.storage.location import canonical_location
from deltalakedb.store import locations
from deltalakedb.store.locations import Claimant
from deltalakedb.store.names import TableName
from deltalakedb.store.namespaces import LOCATION, find_namespace

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

SUFFIX_LENGTH = 8


def reserve_place(
    catalog: Catalog,
    name: TableName,
    table_uuid: str,
    given: str | os.PathLike[str] | None,
    options: Mapping[str, str] | None,
    *,
    instead_of: Collection[str] = (),
    latest_holds: bool = False,
    is_iceberg: bool = False,
) -> str:
    """Reserve the given location, or choose one, and return it.

    The catalog chooses `<name>` in the location of the namespace, or `<namespace>/<name>` in the warehouse. If that is
    not free, a suffix is added: in the folder of the namespace, or beside it if the folder is inside another table.

    A given location that another table has raises LocationOwnedError. `instead_of` are new tables (uuids) that the
    same transaction dropped again. `latest_holds`: see `store/locations.py: reserve`. An Iceberg table may have a
    folder with a log that shows it to Delta readers.
    """
    if given is not None:
        canonical = canonical_location(given, options)
        if canonical.rstrip("/") == "file:":
            raise ConfigError(
                f"{name} cannot be created at {canonical}: a whole disk is no table's place; name a folder"
            )
        refuse_ambiguous(canonical, what=f"the table {name}")
        _reserve(catalog, canonical, Claimant(table_uuid, str(name), "user"), instead_of, latest_holds)
        try:
            refuse_existing_log(
                canonical,
                options,
                table=str(name),
                unless=lambda: is_iceberg and shows_iceberg_table(canonical, options),
            )
        except BaseException:
            release_places(catalog, [table_uuid])
            raise
        return canonical
    claimant = Claimant(table_uuid, str(name), "catalog")
    canonical = _chosen_place(catalog, name)
    if is_unused(canonical, options):
        try:
            _reserve(catalog, canonical, claimant, instead_of)
        except LocationOwnedError:
            pass  # dropped and not purged yet, or renamed, or being created elsewhere
        else:
            return canonical
    else:
        refuse_existing_log(canonical, options, table=str(name), unless=lambda: _is_left(catalog, canonical, options))
    suffix = table_uuid[:SUFFIX_LENGTH]
    canonical = _chosen_place(catalog, name, suffix=suffix)
    try:
        _reserve(catalog, canonical, claimant, instead_of)
    except LocationOwnedError:
        canonical = default_location(catalog.config.warehouse, name, suffix=suffix, apart=True)
        _reserve(catalog, canonical, claimant, instead_of)
    return canonical


def _chosen_place(catalog: Catalog, name: TableName, *, suffix: str = "") -> str:
    """Return where the catalog puts a table: in its namespace's own location, or in the warehouse."""
    with catalog.store.read(single=True) as conn:
        namespace = find_namespace(conn, name.namespace)
    own_location = None if namespace is None else namespace.properties.get(LOCATION)
    if own_location is not None:
        return namespace_location(str(own_location), name, suffix=suffix)
    return default_location(catalog.config.warehouse, name, suffix=suffix)


def release_places(catalog: Catalog, tables: Collection[str]) -> None:
    """Release the locations of new tables (uuids) that were not created."""
    if tables:
        with catalog.store.write() as conn:
            for table_uuid in tables:
                locations.give_back(conn, table_uuid)


def _reserve(
    catalog: Catalog, at: str, claimant: Claimant, instead_of: Collection[str], latest_holds: bool = False
) -> None:
    with catalog.store.write() as conn:
        now_ms = conn.now_ms()
        locations.reserve(conn, at, claimant, now_ms=now_ms, instead_of=instead_of, latest_holds=latest_holds)


def _is_left(catalog: Catalog, at: str, options: Mapping[str, str] | None) -> bool:
    """Return whether a folder with a log is that of another table, which keeps it."""
    with catalog.store.read() as conn:
        has_owner = not locations.is_free(conn, at, now_ms=conn.now_ms())
    return has_owner or shows_iceberg_table(at, options)
