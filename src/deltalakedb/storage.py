"""Opens the place of a table's data files: the one module that knows both locations and the data plane."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from deltalakedb.data.storage import DataStorage, LocalDataStorage, ObjectDataStorage
from deltalakedb.files.location import parse_location
from deltalakedb.files.options import Credentials, check_process, open_object_store
from deltalakedb.log.paths import decode_path

_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


def open_data_storage(location: str, options: Mapping[str, str] | None = None) -> DataStorage:
    """The data files below a table's location; `options` are those of `deltalake`, the environment fills the rest.

    A place that was opened before is the same object: many small writes then share connections.
    """
    if location.startswith(("file:", "/")):
        return _open(location, (), ())
    environment = (item for item in os.environ.items() if item[0].startswith(_CLOUD_VARIABLES))
    check_process()
    return _open(location, tuple(sorted((options or {}).items())), tuple(sorted(environment)))


@lru_cache(maxsize=64)
def _open(location: str, options: tuple[tuple[str, str], ...], _environment: tuple[Any, ...]) -> DataStorage:
    given = dict(options)

    def open_elsewhere(path: str, size: int | None = None) -> pa.NativeFile:
        folder, _, name = (decode_path(path) if path.startswith("/") else path).rpartition("/")
        return open_data_storage(folder, given).open(name if path.startswith("/") else decode_path(name), size)

    place = parse_location(location, given)
    if place.scheme == "file":
        return LocalDataStorage(place.path, place.uri, open_elsewhere)
    credentials = Credentials.of(given)
    store = open_object_store(place, given, credentials)
    return ObjectDataStorage(store, place.path, place.uri, open_elsewhere, credentials.explain)
