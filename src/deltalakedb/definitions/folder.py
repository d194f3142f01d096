"""The folder of a table: where a new one goes, and whether a log is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from deltalakedb.exceptions import ConfigError, TableExistsError, redact
from deltalakedb.files.listing import LOG_FOLDER, is_log_name
from deltalakedb.files.location import parse_location
from deltalakedb.names import TableName


def default_location(warehouse: str | None, name: TableName, *, suffix: str = "") -> str:
    """`<warehouse>/<namespace>/<name>`. A nested namespace is one folder: no table's folder lies in another's."""
    if warehouse is None:
        raise ConfigError(
            f"where the files of {name} go is not known: give a location, or a warehouse for all tables "
            "(connect(..., warehouse=...), dl --warehouse, ?warehouse=... in its address, DL_WAREHOUSE)"
        )
    place = parse_location(warehouse)
    folder = f"{name.namespace}/{name.name}-{suffix}" if suffix else f"{name.namespace}/{name.name}"
    # On local disk the path begins with a slash, in a bucket it does not.
    inside = f"{place.path.rstrip('/')}/{folder}" if place.path else folder
    return replace(place, path=inside).uri


def is_unused(location: str, options: Mapping[str, str] | None) -> bool:
    """Whether nothing lies in a folder that the catalog would choose for a new table."""
    from deltalakedb.files.storage import open_storage

    inside = open_storage(location, options).folder("")
    return not inside.files and not inside.folders


def refuse_existing_log(
    location: str,
    options: Mapping[str, str] | None,
    *,
    table: str,
    unless: Callable[[], bool] = lambda: False,
) -> None:
    """A new table is not made over one that is there: its commits would be somebody else's history."""
    from deltalakedb.files.storage import open_storage

    storage = open_storage(location, options)
    if any(map(is_log_name, storage.names(LOG_FOLDER))) and not unless():
        shown = redact(location)
        raise TableExistsError(
            f"{table} cannot be created at {shown}: a Delta table is there already; `dl import {shown} --as {table}` "
            "takes it over, or choose another location"
        )
