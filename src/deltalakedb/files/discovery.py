"""Finds the Delta tables below a prefix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from deltalakedb.files.log_folder import LOG_FOLDER, is_log_name
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import canonical_location, open_storage


def find_tables(prefix: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Iterator[str]:
    """Canonical locations of the tables at or below `prefix`, sorted by name.

    Folders inside a table and hidden ones (`_x`, `.x`) are not searched.
    """
    storage = open_storage(prefix, options)
    visited: set[str] = set()
    pending = [""]
    while pending:
        folder = pending.pop()
        below = f"{storage.location.rstrip('/')}/{folder.replace('%', '%25')}"
        location = canonical_location(below if folder else storage.location, options)
        if location in visited:  # a symbolic link to a visited folder
            continue
        visited.add(location)
        children = storage.folders(folder)
        if LOG_FOLDER in children and _is_table(storage, folder):
            yield location
            continue
        visible = [name for name in children if not name.startswith(("_", "."))]
        pending.extend(f"{folder}/{name}".lstrip("/") for name in sorted(visible, reverse=True))


def _is_table(storage: Storage, folder: str) -> bool:
    return any(map(is_log_name, storage.names(f"{folder}/{LOG_FOLDER}".lstrip("/"))))
