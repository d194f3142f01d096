"""Opens the place of a table's data files: the one module that knows both locations and the data plane."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from deltalakedb.data.storage import DataStorage, LocalDataStorage, ObjectDataStorage
from deltalakedb.files.location import parse_location
from deltalakedb.files.options import Credentials, open_object_store
from deltalakedb.log.paths import decode_path


def open_data_storage(location: str, options: Mapping[str, str] | None = None) -> DataStorage:
    """The data files below a table's location; `options` are those of `deltalake`, the environment fills the rest."""

    def open_elsewhere(path: str, size: int | None = None) -> pa.NativeFile:
        folder, _, name = (decode_path(path) if path.startswith("/") else path).rpartition("/")
        return open_data_storage(folder, options).open(name if path.startswith("/") else decode_path(name), size)

    place = parse_location(location, options)
    if place.scheme == "file":
        return LocalDataStorage(place.path, place.uri, open_elsewhere)
    credentials = Credentials.of(options or {})
    store = open_object_store(place, options or {}, credentials)
    return ObjectDataStorage(store, place.path, place.uri, open_elsewhere, credentials.explain)
