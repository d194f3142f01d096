"""Finds the table of a catalog at a path, and registers paths if configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import ATTACHED_BY
from deltalakedb.catalog.storage_options import as_properties
from deltalakedb.exceptions import (
    LocationOwnedError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    redact,
)
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.store import registry
from deltalakedb.store.names import DEFAULT_NAMESPACE, MAX_PART_LENGTH, TableName, is_name_character, join_namespace
from deltalakedb.store.registry import TableRow

BY_PATH, BY_CREATE = "path", "create"
"""The reason why a table was attached (`registered.ATTACHED_BY`)."""

_MOST_NAMES = 100


def find_by_path(
    catalog: Catalog,
    location: str,
    storage_options: Mapping[str, str] | None,
    *,
    writes: bool,
    only_new: bool = False,
) -> TableName | None:
    """Return the name of the table at a location; None if the files alone decide, or there is no table to read.

    With `register_paths`, a table that is not in the catalog is attached; its first write makes it managed. If there is
    no table yet, a writer gets the name for the new table. With `only_new`, an existing table is neither written nor
    registered.
    """
    row = _find_row(catalog, location)
    if row is not None:
        return _brought_up(catalog, row, storage_options)
    if not catalog.config.register_paths:
        return None
    if not _is_table(location, storage_options):
        return _free_name(catalog, location) if writes else None
    if only_new:
        return None
    try:
        return _attach(catalog, location, storage_options)
    except LocationOwnedError:
        if writes:
            raise
        return None  # dropped, or being dropped: a reader of the path sees its files


def find_registered(catalog: Catalog, location: str) -> TableName | None:
    """Return the name of the catalog's table at a location; changes nothing."""
    row = _find_row(catalog, location)
    return None if row is None else TableName(row.namespace, row.name)


def _find_row(catalog: Catalog, location: str) -> TableRow | None:
    """Return the catalog's Delta table at a location. Detached tables are ignored: their files decide.

    So are Iceberg tables: what Delta readers find there is their mirror, which nobody may write.
    """
    with catalog.store.read(single=True) as conn:
        row = registry.table_by_location(conn, location)
    return None if row is None or row.mode == "detached" or not row.is_delta else row


def _brought_up(catalog: Catalog, row: TableRow, storage_options: Mapping[str, str] | None) -> TableName:
    """Update a follower from its files, because a path is expected to show the newest version; return its name."""
    name = TableName(row.namespace, row.name)
    if row.mode == "follower":
        catalog.follow(str(name), storage_options)
    return name


@dataclass(frozen=True, slots=True)
class Wanted:
    """The definition that CREATE expects of an existing table at its location; None and empty: any."""

    schema: StructType | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def attach_existing(
    catalog: Catalog, name: TableName, location: str, wanted: Wanted, storage_options: Mapping[str, str] | None
) -> bool:
    """Attach the table at a location, under the name that CREATE was given; return False if there is none.

    Raises SchemaMismatchError if the table differs from what was asked for.
    """
    if not _is_table(location, storage_options):
        return False
    _refuse_other_table(str(name), location, wanted, storage_options)
    _attach_as(catalog, name, location, storage_options, BY_CREATE)
    return True


def _refuse_other_table(name: str, location: str, wanted: Wanted, storage_options: Mapping[str, str] | None) -> None:
    from deltalakedb.files.reader import FileTxnLogReader

    metadata = FileTxnLogReader(location, storage_options, table=name).snapshot().metadata
    existing_columns = _columns_of(parse_schema(metadata.schema_string))
    wanted_columns = existing_columns if wanted.schema is None else _columns_of(wanted.schema)
    parts = metadata.partition_columns if wanted.schema is None and not wanted.partition_by else wanted.partition_by
    problems = []
    if wanted_columns != existing_columns:
        problems.append(f"its columns are {', '.join(existing_columns)}")
    if [part.lower() for part in parts] != [part.lower() for part in metadata.partition_columns]:
        problems.append(f"it is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}")
    different = [key for key, value in wanted.properties.items() if metadata.configuration.get(key) != value]
    if different:
        problems.append(f"its properties differ in {', '.join(different)}")
    if wanted.description is not None and wanted.description != metadata.description:
        problems.append("its description is another one")
    if problems:
        raise SchemaMismatchError(
            f"{name} cannot be created at {redact(location)}: a Delta table is there already, and "
            f"{'; '.join(problems)}. Leave that out to take the table as it is, or choose another location"
        )


def _columns_of(schema: StructType) -> list[str]:
    return [f"{item.name.lower()} {item.type}{'' if item.nullable else ' not null'}" for item in schema.fields]


def _is_table(location: str, storage_options: Mapping[str, str] | None) -> bool:
    from deltalakedb.files.reader import FileTxnLogReader

    try:
        FileTxnLogReader(location, storage_options).latest_version()
    except TableNotFoundError:
        return False
    return True


def _attach(catalog: Catalog, location: str, storage_options: Mapping[str, str] | None) -> TableName:
    """Attach under the first free name; another process may take it, or attach the same path, meanwhile."""
    while True:
        name = _free_name(catalog, location)
        try:
            _attach_as(catalog, name, location, storage_options, BY_PATH)
        except TableExistsError:
            with catalog.store.read() as conn:
                row = registry.table_by_location(conn, location)
            if row is not None and row.is_delta:
                return TableName(row.namespace, row.name)
            if name == _free_name(catalog, location):
                raise
        else:
            return name


def _attach_as(
    catalog: Catalog, name: TableName, location: str, storage_options: Mapping[str, str] | None, attached_by: str
) -> None:
    from deltalakedb.mirror.follow import attach

    attach(
        catalog.store,
        location,
        namespace=name.namespace,
        name=name.name,
        storage_options=storage_options,
        properties={**as_properties(storage_options), ATTACHED_BY: attached_by},
        actor=catalog.actor,
        origin=catalog.origin,
    )


def _free_name(catalog: Catalog, location: str) -> TableName:
    """Return the name that a location suggests, with a number at the end if other tables have that name."""
    base = name_of_path(location)
    with catalog.store.read() as conn:
        for number in range(1, _MOST_NAMES + 1):
            suffix = "" if number == 1 else f"_{number}"
            name = TableName(base.namespace, base.name[: MAX_PART_LENGTH - len(suffix)] + suffix)
            row = registry.resolve_table(conn, name.namespace, name.name)
            if row is None or row.location == location:
                return name
    raise TableExistsError(
        f"{_MOST_NAMES} tables are called {base} already, with or without a number; register {location} under a name "
        f"of your own with `dl attach {location} --as namespace.name`"
    )


def name_of_path(location: str) -> TableName:
    """Return a name from a location: its last folder is the table, the one above the namespace, nested at its dots.

    Other dots, slashes, quotes and control characters become `_`.
    """
    path = unquote(location).partition("://")[2]
    if not location.startswith("file:"):
        path = path.partition("/")[2]  # drop the bucket
    parts = [part for part in path.split("/") if part]
    name = _as_part(parts[-1]) if parts else "table"
    above = [_as_part(part) for part in parts[-2].split(".") if part] if len(parts) > 1 else []
    return TableName(join_namespace(above or [DEFAULT_NAMESPACE]), name)


def _as_part(text: str) -> str:
    return "".join(char if is_name_character(char) else "_" for char in text)[:MAX_PART_LENGTH] or "_"
