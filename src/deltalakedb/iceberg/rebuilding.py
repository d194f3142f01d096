"""Finds Iceberg tables and views in files, for a catalog that is rebuilt from them.

A metadata file has no name of its table, so the name is that of the folders. Of several metadata files in a folder the
newest counts: by the version in its name, then by the time of its last update.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.files.discovery import find_tables
from deltalakedb.iceberg.locations import from_iceberg, to_iceberg
from deltalakedb.iceberg.metadata.table_metadata import parse_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import parse_view_metadata
from deltalakedb.iceberg.metadata_files import read_metadata_file
from deltalakedb.mirror.rebuild import FoundTable, LeftOut
from deltalakedb.operations.folder import default_location, name_of_folders, shows_iceberg_table
from deltalakedb.storage.location import canonical_location, open_storage
from deltalakedb.store.iceberg import to_commit
from deltalakedb.store.names import DEFAULT_NAMESPACE, TableName
from deltalakedb.store.registry import ICEBERG, VIEW

if TYPE_CHECKING:
    from deltalakedb.storage.interface import Storage

METADATA_FOLDER = "metadata"
_SUFFIX = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)")


def find_iceberg(
    prefix: str | os.PathLike[str], options: Mapping[str, str] | None, warehouse: str | None
) -> tuple[list[FoundTable], list[LeftOut]]:
    """Return the Iceberg tables and views below a prefix, and those whose metadata cannot be read."""
    found: list[FoundTable] = []
    left_out: list[LeftOut] = []
    delta = {location for location in find_tables(prefix, options) if not shows_iceberg_table(location, options)}
    for location, files in _find_metadata_files(prefix, options, delta):
        try:
            found.append(_newest(location, files, options, warehouse))
        except DeltaError as error:
            left_out.append(LeftOut(location, str(error)))
    return found, left_out


def _find_metadata_files(
    prefix: str | os.PathLike[str], options: Mapping[str, str] | None, delta: set[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders of Iceberg tables and their metadata files; Delta tables are not searched."""
    storage = open_storage(prefix, options)
    pending, visited = [""], set()
    while pending:
        folder = pending.pop()
        below = f"{storage.location.rstrip('/')}/{folder.replace('%', '%25')}"
        location = canonical_location(below.rstrip("/"), options)
        if location in delta or location in visited:
            continue
        visited.add(location)
        children = storage.folders(folder)
        files = _metadata_files(storage, folder) if METADATA_FOLDER in children else []
        if files:
            yield location, files
            continue
        visible = [name for name in children if not name.startswith(("_", "."))]
        pending.extend(f"{folder}/{name}".lstrip("/") for name in sorted(visible, reverse=True))


def _metadata_files(storage: Storage, folder: str) -> list[str]:
    """Return the names of a table's metadata files whose version is the newest."""
    names = [name for name in storage.names(f"{folder}/{METADATA_FOLDER}".lstrip("/")) if name.endswith(_SUFFIX)]
    versions = {name: int(match[1]) for name in names if (match := _VERSION.match(name))}
    newest = max(versions.values(), default=None)
    return [name for name in names if versions.get(name) == newest]


def _newest(location: str, names: list[str], options: Mapping[str, str] | None, warehouse: str | None) -> FoundTable:
    folder = f"{to_iceberg(location)}/{METADATA_FOLDER}"
    candidates = []
    for file in names:
        text = read_metadata_file(f"{folder}/{file}", None, options)
        is_view = b'"view-uuid"' in text and b'"table-uuid"' not in text
        metadata: dict[str, Any] = parse_view_metadata(text) if is_view else parse_table_metadata(text)
        candidates.append((_updated_ms(metadata), f"{folder}/{file}", VIEW if is_view else ICEBERG, metadata))
    _, metadata_location, mode, metadata = max(candidates, key=lambda candidate: candidate[:2])
    name = _name_of(location)
    own_location = canonical_location(from_iceberg(metadata["location"]), options)
    commit = to_commit(None, metadata, metadata_location, operation="REBUILD", parameters={})
    return FoundTable(name, own_location, mode, _owner_of(name, own_location, warehouse), commit)


def _updated_ms(metadata: Mapping[str, Any]) -> int:
    """Return when a table was last updated, or when a view got its newest version."""
    if "last-updated-ms" in metadata:
        return int(metadata["last-updated-ms"])
    return max((int(entry["timestamp-ms"]) for entry in metadata.get("version-log", ())), default=0)


def _name_of(location: str) -> TableName:
    *_, namespace, table = ["", *location.rstrip("/").split("/")]
    return name_of_folders(namespace, table) or TableName(DEFAULT_NAMESPACE, table)


def _owner_of(name: TableName, location: str, warehouse: str | None) -> str:
    try:
        return "catalog" if default_location(warehouse, name) == location else "user"
    except ConfigError:  # there is no warehouse
        return "user"
