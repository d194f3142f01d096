"""Paths that are tables of a catalog: found by their location, and registered when that is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from .catalog import Catalog
from .exceptions import LocationOwnedError, SchemaMismatchError, TableExistsError, TableNotFoundError, redact
from .log.types import StructType, parse_schema
from .names import DEFAULT_NAMESPACE, MAX_PART_LENGTH, TableName, is_name_character, join_namespace
from .registered import ATTACHED_BY
from .storage_options import as_properties
from .store import registry
from .store.registry import TableRow

BY_PATH, BY_CREATE = "path", "create"
"""Why a table was attached (`registered.ATTACHED_BY`)."""

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

    With `register_paths` a table that the catalog does not have is attached; the first write makes it managed. Where
    there is no table yet, the name it is to get is the answer to who writes. For who writes `only_new` tables, one that
    is there is neither written nor registered.
    """
    row = _registered(catalog, location)
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
        return None  # dropped, or about to be: whoever reads the path sees its files


def find_registered(catalog: Catalog, location: str) -> TableName | None:
    """The name of the table that the catalog has at a location; nothing is changed."""
    row = _registered(catalog, location)
    return None if row is None else TableName(row.namespace, row.name)


def _registered(catalog: Catalog, location: str) -> TableRow | None:
    """Detached tables do not count: their files decide, and nothing tells the catalog what they hold."""
    with catalog.store.read(single=True) as conn:
        row = registry.table_by_location(conn, location)
    return None if row is None or row.mode == "detached" else row


def _brought_up(catalog: Catalog, row: TableRow, storage_options: Mapping[str, str] | None) -> TableName:
    """Who opens a path expects the newest version: a follower takes in what its files have by now."""
    name = TableName(row.namespace, row.name)
    if row.mode == "follower":
        catalog.follow(str(name), storage_options)
    return name


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a CREATE asks of the table that is at its location already; None and nothing: as it is."""

    schema: StructType | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def attach_existing(
    catalog: Catalog, name: TableName, location: str, wanted: Wanted, storage_options: Mapping[str, str] | None
) -> bool:
    """Attach the table that is at a location under the name that was to be created there; False when none is there.

    SchemaMismatchError when the table is not what was asked for.
    """
    if not _is_table(location, storage_options):
        return False
    _refuse_other_table(str(name), location, wanted, storage_options)
    _attach_as(catalog, name, location, storage_options, BY_CREATE)
    return True


def _refuse_other_table(name: str, location: str, wanted: Wanted, storage_options: Mapping[str, str] | None) -> None:
    from .files.reader import FileTxnLogReader

    metadata = FileTxnLogReader(location, storage_options, table=name).snapshot().metadata
    there = _columns_of(parse_schema(metadata.schema_string))
    asked = there if wanted.schema is None else _columns_of(wanted.schema)
    parts = metadata.partition_columns if wanted.schema is None and not wanted.partition_by else wanted.partition_by
    problems = []
    if asked != there:
        problems.append(f"its columns are {', '.join(there)}")
    if [part.lower() for part in parts] != [part.lower() for part in metadata.partition_columns]:
        problems.append(f"it is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}")
    others = [key for key, value in wanted.properties.items() if metadata.configuration.get(key) != value]
    if others:
        problems.append(f"its properties differ in {', '.join(others)}")
    if wanted.description is not None and wanted.description != metadata.description:
        problems.append("its description is another one")
    if problems:
        raise SchemaMismatchError(
            f"{name} cannot be created at {redact(location)}: a Delta table is there already, and "
            f"{'; '.join(problems)}. Leave that out to take the table as it is, or choose another location"
        )


def _columns_of(schema: StructType) -> list[str]:
    return [f"{one.name.lower()} {one.type}{'' if one.nullable else ' not null'}" for one in schema.fields]


def _is_table(location: str, storage_options: Mapping[str, str] | None) -> bool:
    from .files.reader import FileTxnLogReader

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
            if row is not None:
                return TableName(row.namespace, row.name)
            if name == _free_name(catalog, location):
                raise
        else:
            return name


def _attach_as(
    catalog: Catalog, name: TableName, location: str, storage_options: Mapping[str, str] | None, attached_by: str
) -> None:
    from .mirror.importer import attach

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
