"""Paths that are tables of a catalog: found by their location, and registered when that is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from .catalog import Catalog
from .exceptions import TableExistsError, TableNotFoundError
from .names import DEFAULT_NAMESPACE, MAX_PART_LENGTH, TableName, is_name_character, join_namespace
from .storage_options import as_properties
from .store import registry
from .store.registry import TableRow

ATTACHED_BY = "attached_by"
BY_PATH = "path"
"""The property of a table that was attached because its path was opened; a first write may make it managed."""

_MOST_NAMES = 100


def find_by_path(
    catalog: Catalog,
    location: str,
    storage_options: Mapping[str, str] | None,
    *,
    writes: bool,
    only_new: bool = False,
) -> TableName | None:
    """The name of the table at a location; None when its files alone decide, or there is none to be read.

    With `register_paths` a table that the catalog does not have is attached to be read, and imported to be written;
    where there is no table yet, the name it is to get is the answer to who writes. For who writes `only_new` tables,
    one that is there is neither written nor registered.
    """
    row = _registered(catalog, location)
    if row is not None:
        return _brought_up(catalog, row, storage_options, writes=writes and not only_new)
    if not catalog.config.register_paths:
        return None
    if not _is_table(location, storage_options):
        return _free_name(catalog, location) if writes else None
    if only_new:
        return None
    name = _attach(catalog, location, storage_options)
    if writes:
        catalog.promote_table(str(name), storage_options)
    return name


def find_registered(catalog: Catalog, location: str) -> TableName | None:
    """The name of the table that the catalog has at a location; nothing is changed."""
    row = _registered(catalog, location)
    return None if row is None else TableName(row.namespace, row.name)


def _registered(catalog: Catalog, location: str) -> TableRow | None:
    """Detached tables do not count: their files decide, and nothing tells the catalog what they hold."""
    with catalog.store.read(single=True) as conn:
        row = registry.table_by_location(conn, location)
    return None if row is None or row.mode == "detached" else row


def _brought_up(
    catalog: Catalog, row: TableRow, storage_options: Mapping[str, str] | None, *, writes: bool
) -> TableName:
    """Who opens a path expects the newest version: a follower takes in what its files have by now."""
    name = TableName(row.namespace, row.name)
    if row.mode == "follower":
        mine = row.properties.get(ATTACHED_BY) == BY_PATH
        if writes and mine and catalog.config.register_paths:
            catalog.promote_table(str(name), storage_options)
        else:
            catalog.follow(str(name), storage_options)
    return name


def _is_table(location: str, storage_options: Mapping[str, str] | None) -> bool:
    from .files.reader import FileTxnLogReader

    try:
        FileTxnLogReader(location, storage_options).latest_version()
    except TableNotFoundError:
        return False
    return True


def _attach(catalog: Catalog, location: str, storage_options: Mapping[str, str] | None) -> TableName:
    """Attach under the first free name; another process may take it, or attach the same path, meanwhile."""
    from .mirror.importer import attach

    while True:
        name = _free_name(catalog, location)
        try:
            attach(
                catalog.store,
                location,
                namespace=name.namespace,
                name=name.name,
                storage_options=storage_options,
                properties={**as_properties(storage_options), ATTACHED_BY: BY_PATH},
                actor=catalog.actor,
                origin=catalog.origin,
            )
        except TableExistsError:
            with catalog.store.read() as conn:
                row = registry.table_by_location(conn, location)
            if row is not None:
                return TableName(row.namespace, row.name)
            if name == _free_name(catalog, location):
                raise
        else:
            return name


def _free_name(catalog: Catalog, location: str) -> TableName:
    """The name a location suggests, with a number at its end where other tables have it."""
    wanted = name_of_path(location)
    with catalog.store.read() as conn:
        for number in range(1, _MOST_NAMES + 1):
            ending = "" if number == 1 else f"_{number}"
            name = TableName(wanted.namespace, wanted.name[: MAX_PART_LENGTH - len(ending)] + ending)
            row = registry.resolve_table(conn, name.namespace, name.name)
            if row is None or row.location == location:
                return name
    raise TableExistsError(
        f"{_MOST_NAMES} tables are called {wanted} already, with or without a number; register {location} under a name "
        f"of your own with `dl attach {location} --as namespace.name`"
    )


def name_of_path(location: str) -> TableName:
    """The last folder is the table, the one above it the namespace; dots, slashes and quotes become `_`."""
    path = unquote(location).partition("://")[2]
    if not location.startswith("file:"):
        path = path.partition("/")[2]  # the bucket is no folder
    parts = [part for part in path.split("/") if part]
    name = _as_part(parts[-1]) if parts else "table"
    above = [_as_part(part) for part in parts[-2].split(".") if part] if len(parts) > 1 else []
    return TableName(join_namespace(above or [DEFAULT_NAMESPACE]), name)


def _as_part(text: str) -> str:
    return "".join(char if is_name_character(char) else "_" for char in text)[:MAX_PART_LENGTH] or "_"
