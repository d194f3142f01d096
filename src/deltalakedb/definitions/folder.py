"""The folder of a table: where a new one goes, and whether a log is there already."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace

from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    FilesPurgedError,
    TableExistsError,
    TableNameError,
    redact,
)
from deltalakedb.files.listing import LOG_FOLDER, is_log_name
from deltalakedb.files.location import parse_location
from deltalakedb.names import TableName, check_part, join_namespace, namespace_parts

MAX_FOLDER_LENGTH = 255
"""The longest name of a folder that common file systems take."""

ESCAPE = "~"
"""Stands before the two hexadecimal digits of a byte. Not a percent sign: readers decode those once too often, and look
for the table in another folder (`deltalake`, Polars), while this one is left alone in paths and in URLs."""


def default_location(warehouse: str | None, name: TableName, *, suffix: str = "", apart: bool = False) -> str:
    """`<warehouse>/<namespace>/<name>`. A nested namespace is one folder: no table's folder lies in another's.

    A suffix goes to the table's folder, or with `apart` to that of its namespace.
    """
    if warehouse is None:
        raise ConfigError(
            f"where the files of {name} go is not known: give a location, or a warehouse for all tables "
            "(connect(..., warehouse=...), dl --warehouse, ?warehouse=... in its address, DL_WAREHOUSE)"
        )
    place = parse_location(warehouse)
    folder = "/".join(folders_of(name, suffix=suffix, apart=apart))
    # On local disk the path begins with a slash, in a bucket it does not.
    inside = f"{place.path.rstrip('/')}/{folder}" if place.path else folder
    return replace(place, path=inside).uri


def namespace_location(location: str, name: TableName, *, suffix: str = "") -> str:
    """`<location>/<name>`: where a table goes whose namespace has a location of its own."""
    return f"{location.rstrip('/')}/{folders_of(name, suffix=suffix)[1]}"


def refuse_ambiguous(location: str, *, what: str) -> None:
    """Refuse a place for new tables that other readers take for another one, such as `a%20b`: they decode it."""
    path = parse_location(location).path
    found = next((char for char in path if char in "%\\" or unicodedata.category(char) == "Cc"), None)
    if found is not None:
        shown = {"%": "a percent sign", "\\": "a backslash"}.get(found, f"the control character U+{ord(found):04X}")
        raise ConfigError(
            f"{what} cannot be at {redact(path)!r}: the path contains {shown}, and other Delta readers would look in "
            "another folder; choose a location without it"
        )


def folders_of(name: TableName, *, suffix: str = "", apart: bool = False) -> tuple[str, str]:
    """The folder of a namespace, and of the table in it; no two names have the same, even where case does not count."""
    outer: list[str] = []
    for part in namespace_parts(name.namespace):
        outer += [".", *_escape(part, also=".")]
    ending = f"-{suffix}" if suffix else ""
    return _join(outer[1:], ending if apart else ""), _join(_escape(name.name), "" if apart else ending)


def name_of_folders(namespace: str, table: str) -> TableName | None:
    """The name whose folders these are; None if there is none, or if it was cut. The inverse of `folders_of`."""
    try:
        parts = [_unescape(part) for part in (*namespace.split("."), table)]
        *outer, last = [check_part(part, whole=f"{namespace}/{table}") for part in parts]
    except (TableNameError, UnicodeError):
        return None
    name = TableName(join_namespace(outer), last)
    return name if folders_of(name) == (namespace, table) else None


def _escape(part: str, *, also: str = "") -> list[str]:
    """The characters of a part, with all but ASCII letters, digits, `_`, `-` and dots escaped.

    Hidden folders are not searched for tables, and some file systems drop a dot at the end: neither begins a folder's
    name, nor does a dot end it.
    """
    escaped = []
    for place, char in enumerate(part):
        kept = char.isascii() and (char.isalnum() or char in "_-.") and char not in also
        if (char in "_." and place == 0) or (char == "." and place == len(part) - 1):
            kept = False
        escaped.append(char if kept else "".join(f"{ESCAPE}{byte:02X}" for byte in char.encode()))
    return escaped


def _unescape(part: str) -> str:
    return re.sub(
        rb"~([0-9A-F]{2})", lambda byte: bytes.fromhex(byte[1].decode()), part.encode(errors="surrogateescape")
    ).decode()


def _join(characters: list[str], ending: str = "") -> str:
    """A folder's name; one that is too long is cut, and ends with a hash of the whole."""
    whole = "".join(characters)
    if len(whole + ending) <= MAX_FOLDER_LENGTH:
        return whole + ending
    tail = ESCAPE * 2 + hashlib.sha256(whole.encode()).hexdigest()[:16] + ending
    kept = ""
    for char in characters:
        if len(kept + char + tail) > MAX_FOLDER_LENGTH:
            break
        kept += char
    return kept + tail


def is_unused(location: str, options: Mapping[str, str] | None) -> bool:
    """Whether no file lies in a folder that the catalog would choose for a new table, however deep."""
    from deltalakedb.files.tree import list_files

    return next(iter(list_files(location, options)), None) is None


def has_log(location: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether a folder has a Delta log in it."""
    from deltalakedb.files.storage import open_storage

    return any(map(is_log_name, open_storage(location, options).names(LOG_FOLDER)))


def refuse_missing_files(
    location: str,
    options: Mapping[str, str] | None,
    *,
    table: str,
    is_mirrored: bool,
    data_file: str | None,
) -> None:
    """A table does not come back without its files: FilesPurgedError when its log, or this file of it, is not there.

    A storage that does not answer is no reason: whoever reads the table will hear of it.
    """
    from deltalakedb.files.storage import open_storage

    missing = LOG_FOLDER
    try:
        if not is_mirrored or has_log(location, options):
            if data_file is None:
                return
            missing = data_file
            open_storage(location, options).modified_ms(data_file)
            return
    except FileNotFoundError:
        pass
    except (DeltaError, OSError):
        return
    raise FilesPurgedError(
        f"table {table} cannot be undropped: its files are gone, {redact(location)} has no {redact(missing)} any more; "
        "put the folder back from a backup and undrop the table again"
    )


def refuse_existing_log(
    location: str,
    options: Mapping[str, str] | None,
    *,
    table: str,
    unless: Callable[[], bool] = lambda: False,
) -> None:
    """A new table is not made over one that is there: its commits would be somebody else's history."""
    if has_log(location, options) and not unless():
        shown = redact(location)
        raise TableExistsError(
            f"{table} cannot be created at {shown}: a Delta table is there already; `dl import {shown} --as {table}` "
            "takes it over, or choose another location"
        )
