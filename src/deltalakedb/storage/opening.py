"""Opens the storage of a table's data files: the one module that knows both locations and the data layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.storage.data_storage import DataStorage, LocalDataStorage, ObjectDataStorage
from deltalakedb.storage.location import parse_location
from deltalakedb.storage.options import Credentials, check_process, open_object_store

_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


def open_data_storage(location: str, options: Mapping[str, str] | None = None) -> DataStorage:
    """Open the storage of the data files at a table's location; `options` are `deltalake`'s, with defaults from the
    environment.

    The same location and options return the same object, so that many small writes share connections.
    """
    if location.startswith(("file:", "/")):
        return _open(location, (), ())
    environment = (item for item in os.environ.items() if item[0].startswith(_CLOUD_VARIABLES))
    check_process()
    return _open(location, tuple(sorted((options or {}).items())), tuple(sorted(environment)))


@lru_cache(maxsize=64)
def _open(location: str, options: tuple[tuple[str, str], ...], _environment: tuple[Any, ...]) -> DataStorage:
    options_dict = dict(options)

    def open_elsewhere(path: str, size: int | None = None) -> pa.NativeFile:
        folder, _, name = (decode_path(path) if path.startswith("/") else path).rpartition("/")
        return open_data_storage(folder, options_dict).open(name if path.startswith("/") else decode_path(name), size)

    place = parse_location(location, options_dict)
    if place.scheme == "file":
        return LocalDataStorage(place.path, place.uri, open_elsewhere)
    credentials = Credentials.of(options_dict)
    store = open_object_store(place, options_dict, credentials)
    return ObjectDataStorage(store, place.path, place.uri, open_elsewhere, credentials.explain)
