"""The folder of a table: where a new one goes, and whether a log is there already."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from deltalakedb.exceptions import ConfigError, TableExistsError, TableNameError, redact
from deltalakedb.files.listing import LOG_FOLDER, is_log_name
from deltalakedb.files.location import parse_location
from deltalakedb.names import TableName, check_part, join_namespace, namespace_parts

MAX_FOLDER_BYTES = 255
"""The longest name of a folder that common file systems take, in UTF-8."""

_CUT_MARK = "~"
"""Stands before the hash of a folder's name that was cut; in any other one it is encoded."""


def default_location(warehouse: str | None, name: TableName, *, suffix: str = "") -> str:
    """`<warehouse>/<namespace>/<name>`. A nested namespace is one folder: no table's folder lies in another's."""
    if warehouse is None:
        raise ConfigError(
            f"where the files of {name} go is not known: give a location, or a warehouse for all tables "
            "(connect(..., warehouse=...), dl --warehouse, ?warehouse=... in its address, DL_WAREHOUSE)"
        )
    place = parse_location(warehouse)
    folder = "/".join(folders_of(name, suffix=suffix))
    # On local disk the path begins with a slash, in a bucket it does not.
    inside = f"{place.path.rstrip('/')}/{folder}" if place.path else folder
    return replace(place, path=inside).uri


def folders_of(name: TableName, *, suffix: str = "") -> tuple[str, str]:
    """The folder of a namespace, and of the table in it. No two names have the same, on any file system."""
    outer: list[str] = []
    for part in namespace_parts(name.namespace):
        outer += [".", *_encode(part, also=".")]
    return _join(outer[1:]), _join(_encode(name.name), f"-{suffix}" if suffix else "")


def name_of_folders(namespace: str, table: str) -> TableName | None:
    """The name whose folders these are; None if there is none, or if it was cut. The inverse of `folders_of`."""
    try:
        parts = [unquote(part, errors="strict") for part in (*namespace.split("."), table)]
        *outer, last = [check_part(part, whole=f"{namespace}/{table}") for part in parts]
    except (TableNameError, UnicodeDecodeError):
        return None
    name = TableName(join_namespace(outer), last)
    return name if folders_of(name) == (namespace, table) else None


def _encode(part: str, *, also: str = "") -> list[str]:
    """The characters of a part as a folder's name has them: what a file system, a URL, Hadoop or a search for tables
    would refuse or misread is percent-encoded."""
    # File systems that ignore case may also take ß for ss, and a letter and its accent for one character.
    is_stable = unicodedata.normalize("NFC", part.casefold()) == part.lower()
    last, encoded = len(part) - 1, []
    for place, char in enumerate(part):
        if char in "._":
            kept = place > 0  # hidden folders are not searched for tables
        elif char.isascii():
            kept = char.isalnum() or char in "- "
        else:
            kept = is_stable and char.isprintable()
        if char in also or (char in ". " and place in (0, last)):
            kept = False
        encoded.append(char if kept else "".join(f"%{byte:02X}" for byte in char.encode()))
    return encoded


def _join(characters: list[str], ending: str = "") -> str:
    """A folder's name; one that is too long is cut, and ends with a hash of the whole."""
    whole = "".join(characters)
    if len((whole + ending).encode()) <= MAX_FOLDER_BYTES:
        return whole + ending
    tail = _CUT_MARK + hashlib.sha256(whole.encode()).hexdigest()[:16] + ending
    kept = ""
    for char in characters:
        if len((kept + char + tail).encode()) > MAX_FOLDER_BYTES:
            break
        kept += char
    return kept + tail


def refuse_existing_log(location: str, options: Mapping[str, str] | None, *, table: str) -> None:
    """A new table is not made over one that is there: its commits would be somebody else's history."""
    from deltalakedb.files.storage import open_storage

    storage = open_storage(location, options)
    if any(map(is_log_name, storage.names(LOG_FOLDER))):
        shown = redact(location)
        raise TableExistsError(
            f"{table} cannot be created at {shown}: a Delta table is there already; `dl import {shown} --as {table}` "
            "takes it over, or choose another location"
        )
