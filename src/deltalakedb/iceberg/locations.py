"""Locations in Iceberg's metadata: clients take them as they are, where this package's own are percent-encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping

from deltalakedb.log.protocol.paths import decode_path, is_absolute, resolve
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import open_storage, parse_location

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")


def from_iceberg(location: str) -> str:
    """Return a location of Iceberg's metadata as this package spells it; a path without a scheme stays as it is."""
    return location.replace("%", "%25") if _SCHEME.match(location) else location


def to_iceberg(location: str) -> str:
    """Return a location of this package as Iceberg clients read it, who do not decode it."""
    place = parse_location(location)
    return f"file://{place.path}" if place.scheme == "file" else location


def client_path(location: str, path: str) -> str:
    """Return the path of a file of a Delta log as Iceberg clients read it; `location` is the table's."""
    return to_iceberg(resolve(location, path)) if is_absolute(path) else f"{to_iceberg(location)}/{decode_path(path)}"


def open_file(path: str, options: Mapping[str, str] | None) -> tuple[Storage, str]:
    """Return the storage of the folder of a file in Iceberg's metadata, and the file's name there."""
    folder, _, name = path.rpartition("/")
    return open_storage(from_iceberg(folder) or "/", options), name
