"""Opens the storage of a location, and files by the paths that a log has for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import MissingFileError, redact
from deltalakedb.log.protocol.paths import check_path, decode_path, is_absolute
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import Location, parse_location

if TYPE_CHECKING:
    import pyarrow as pa


def open_storage(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """The storage with the root `location`. `options` are those of `deltalake`; the environment supplies the rest.

    The same location and options return the same object, so that many small requests share connections.
    """
    place = parse_location(location, options)
    if place.scheme == "file":
        return _open_local(place)
    from deltalakedb.storage.options import check_process, cloud_environment

    check_process()
    return _open_remote(place, tuple(sorted((options or {}).items())), tuple(sorted(cloud_environment().items())))


@lru_cache(maxsize=256)
def _open_local(place: Location) -> Storage:
    from deltalakedb.storage.local import LocalStorage

    return LocalStorage(place)


@lru_cache(maxsize=64)
def _open_remote(place: Location, options: tuple[tuple[str, str], ...], _environment: tuple[Any, ...]) -> Storage:
    from deltalakedb.storage.object_store import ObjectStorage

    return ObjectStorage(place, dict(options))


def open_named(storage: Storage, path: str, size: int | None = None) -> pa.NativeFile:
    """Open a file by its path in an action: encoded, relative to the table, or absolute, as in clones."""
    if not is_absolute(path):
        check_path(path, where=storage.location)
        return storage.open(decode_path(path), size)
    if path.startswith("/"):
        folder, _, name = decode_path(path).rpartition("/")
    else:
        folder, _, name = path.rpartition("/")
        name = decode_path(name)
    return open_storage(folder or "/", storage.options).open(name, size)


def open_logged(storage: Storage, path: str, size: int | None = None) -> pa.NativeFile:
    """Open a data file that a version names, by its path in the action; MissingFileError if it does not exist."""
    try:
        return open_named(storage, path, size)
    except FileNotFoundError:
        raise MissingFileError(
            f"Object at location {storage.location}/{redact(path)} not found: the log names this data file, and it was "
            "deleted or vacuumed",
            path=path,
            advice="a newer version of the table may not need it",
        ) from None
