"""Opens the place of a table's data files: the one module that knows both locations and the data plane."""

from __future__ import annotations

from collections.abc import Mapping

from deltalakedb.data.storage import DataStorage, LocalDataStorage, ObjectDataStorage
from deltalakedb.files.location import parse_location
from deltalakedb.files.options import Credentials, open_object_store


def open_data_storage(location: str, options: Mapping[str, str] | None = None) -> DataStorage:
    """The data files below a table's location; `options` are those of `deltalake`, the environment fills the rest."""
    place = parse_location(location, options)
    if place.scheme == "file":
        return LocalDataStorage(place.path, place.uri)
    credentials = Credentials.of(options or {})
    store = open_object_store(place, options or {}, credentials)
    return ObjectDataStorage(store, place.path, place.uri, credentials.explain)
