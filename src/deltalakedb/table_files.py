"""The folder of a table: where a new one goes, whether a log is there already, and how all of it is deleted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .exceptions import ConfigError, DeltaError, TableExistsError, redact
from .files.listing import LOG_FOLDER, is_log_name
from .files.location import Location, parse_location
from .names import TableName

_DELETE_AT_ONCE = 1_000


def default_location(warehouse: str | None, name: TableName, *, suffix: str = "") -> str:
    """`<warehouse>/<namespace>/<name>`. A nested namespace is one folder: no table's folder lies in another's."""
    if warehouse is None:
        raise ConfigError(
            f"where the files of {name} go is not known: give a location, or a warehouse for all tables "
            "(connect(..., warehouse=...), DL_WAREHOUSE)"
        )
    place = parse_location(warehouse)
    folder = f"{name.namespace}/{name.name}-{suffix}" if suffix else f"{name.namespace}/{name.name}"
    # On local disk the path begins with a slash, in a bucket it does not.
    inside = f"{place.path.rstrip('/')}/{folder}" if place.path else folder
    return replace(place, path=inside).uri


def refuse_existing_log(location: str, options: Mapping[str, str] | None, *, table: str) -> None:
    """A new table is not made over one that is there: its commits would be somebody else's history."""
    from .files.storage import open_storage

    storage = open_storage(location, options)
    if any(map(is_log_name, storage.names(LOG_FOLDER))):
        shown = redact(location)
        raise TableExistsError(
            f"{table} cannot be created at {shown}: a Delta table is there already; `dl import {shown} --as {table}` "
            "takes it over, or choose another location"
        )


def delete_everything(location: str, options: Mapping[str, str] | None) -> None:
    """Remove a table's folder with all that is in it; what is gone already is fine."""
    place = parse_location(location, options)
    if not place.path.strip("/"):
        raise DeltaError(f"{redact(location)} is a whole disk or bucket: it is not purged; delete the files yourself")
    if place.scheme == "file":
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(place.path)
        except OSError as error:
            raise DeltaError(
                f"cannot delete {place.uri}: {error.strerror}; what is left can be deleted by hand"
            ) from error
        return
    from obstore.exceptions import BaseError

    store, explain = _object_store(place, options)
    try:
        # Listed anew after each batch: a listing is not continued over what it has lost.
        while batch := [
            meta["path"] for meta in next(iter(store.list(f"{place.path}/", chunk_size=_DELETE_AT_ONCE)), ())
        ]:
            store.delete(batch)
    except BaseError as error:
        raise _not_deleted(place, explain(error)) from None


def _not_deleted(place: Location, reason: str) -> DeltaError:
    return DeltaError(f"cannot delete {place.uri}: {reason}; what is left can be deleted by hand")


def _object_store(place: Location, options: Mapping[str, str] | None) -> tuple[Any, Any]:
    from .files.options import Credentials, open_object_store

    credentials = Credentials.of(options or {})
    return open_object_store(place, options or {}, credentials), credentials.explain
