"""Deletes a table's folder: its data first, its log last, so that one can tell whose it is while anything is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from obstore.exceptions import BaseError

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.files.location import Location, parse_location
from deltalakedb.files.options import Credentials, open_object_store
from deltalakedb.steps import reached

_DELETE_AT_ONCE = 1_000
_MAX_LISTINGS = 100


def delete_table(location: str, options: Mapping[str, str] | None = None) -> None:
    """Remove a table's folder with all that is in it; what is gone already is fine."""
    place = parse_location(location, options)
    if not place.path.strip("/"):
        raise DeltaError(f"{redact(location)} is a whole disk or bucket: it is not purged; delete the files yourself")
    if place.scheme == "file":
        _delete_local(place)
    else:
        _delete_objects(place, options or {})


def _delete_local(place: Location) -> None:
    try:
        with suppress(FileNotFoundError):
            for name in os.listdir(place.path):
                if name != LOG_FOLDER:
                    _delete(os.path.join(place.path, name))
            reached("drop.data_deleted")
            _delete(os.path.join(place.path, LOG_FOLDER))
            os.rmdir(place.path)
    except OSError as error:
        raise _not_deleted(place, error.strerror or str(error)) from error


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _delete_objects(place: Location, options: Mapping[str, str]) -> None:
    credentials = Credentials.of(options)
    store: Any = open_object_store(place, options, credentials)
    log = f"{place.path}/{LOG_FOLDER}/"
    try:
        for batch in _listed(store, f"{place.path}/", lambda path: not path.startswith(log)):
            store.delete(batch)
        reached("drop.data_deleted")
        for batch in _listed(store, log, lambda _: True):
            store.delete(batch)
    except BaseError as error:
        raise _not_deleted(place, credentials.explain(error)) from None


def _listed(store: Any, prefix: str, wanted: Callable[[str], bool]) -> Iterator[list[str]]:
    """Batches of what is there; listed anew until there is nothing, as a listing is not continued over what it lost."""
    for _ in range(_MAX_LISTINGS):
        found = False
        for page in store.list(prefix, chunk_size=_DELETE_AT_ONCE):
            batch = [meta["path"] for meta in page if wanted(meta["path"])]
            if batch:
                found = True
                yield batch
        if not found:
            return


def _not_deleted(place: Location, reason: str) -> DeltaError:
    return DeltaError(
        f"cannot delete {place.uri}: {reason}; `dl mirror once` tries again, or delete by hand what is left"
    )
