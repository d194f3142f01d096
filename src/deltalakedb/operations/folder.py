"""The folder of a table: where a new one is created, and whether it has a log already."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace

from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    DeltaProtocolError,
    FilesPurgedError,
    TableExistsError,
    TableNameError,
    TableNotFoundError,
    redact,
)
from deltalakedb.files.log_folder import LOG_FOLDER, is_log_name
from deltalakedb.log.protocol.fence import shows_iceberg
from deltalakedb.storage.location import parse_location
from deltalakedb.store.names import TableName, check_part, join_namespace, namespace_parts

MAX_FOLDER_LENGTH = 255
"""The longest folder name that common file systems allow."""

ESCAPE = "~"
"""Precedes the two hexadecimal digits of an escaped byte. Not a percent sign: some readers (`deltalake`, Polars) decode
those once too often and look in another folder. This character is unchanged in paths and URLs."""


def default_location(warehouse: str | None, name: TableName, *, suffix: str = "", apart: bool = False) -> str:
    """`<warehouse>/<namespace>/<name>`. A nested namespace is one folder: no table's folder is inside another's.

    A suffix is added to the table's folder, or with `apart` to its namespace's.
    """
    if warehouse is None:
        raise ConfigError(
            f"where the files of {name} go is not known: give a location, or a warehouse for all tables "
            "(connect(..., warehouse=...), dl --warehouse, ?warehouse=... in its address, DL_WAREHOUSE)"
        )
    base = parse_location(warehouse)
    folder = "/".join(folders_of(name, suffix=suffix, apart=apart))
    # On local disk the path begins with a slash, in a bucket it does not.
    path = f"{base.path.rstrip('/')}/{folder}" if base.path else folder
    return replace(base, path=path).uri


def namespace_location(location: str, name: TableName, *, suffix: str = "") -> str:
    """`<location>/<name>`: the location of a table whose namespace has a location of its own."""
    return f"{location.rstrip('/')}/{folders_of(name, suffix=suffix)[1]}"


def refuse_ambiguous(location: str, *, what: str) -> None:
    """Refuse a location for new tables that other readers would decode to another one, such as `a%20b`."""
    path = parse_location(location).path
    bad_char = next((char for char in path if char in "%\\" or unicodedata.category(char) == "Cc"), None)
    if bad_char is not None:
        sign = {"%": "a percent sign", "\\": "a backslash"}.get(
            bad_char, f"the control character U+{ord(bad_char):04X}"
        )
        raise ConfigError(
            f"{what} cannot be at {redact(path)!r}: the path contains {sign}, and other Delta readers would look in "
            "another folder; choose a location without it"
        )


def folders_of(name: TableName, *, suffix: str = "", apart: bool = False) -> tuple[str, str]:
    """The folder of a namespace, and of the table in it; unique for each name, even if case is ignored."""
    outer: list[str] = []
    for part in namespace_parts(name.namespace):
        outer += [".", *_escape(part, also=".")]
    ending = f"-{suffix}" if suffix else ""
    return _join(outer[1:], ending if apart else ""), _join(_escape(name.name), "" if apart else ending)


def name_of_folders(namespace: str, table: str) -> TableName | None:
    """The name for which these are the folders; None if there is none, or it was cut. The inverse of `folders_of`."""
    try:
        parts = [_unescape(part) for part in (*namespace.split("."), table)]
        *outer, last = [check_part(part, whole=f"{namespace}/{table}") for part in parts]
    except (TableNameError, UnicodeError):
        return None
    name = TableName(join_namespace(outer), last)
    return name if folders_of(name) == (namespace, table) else None


def _escape(part: str, *, also: str = "") -> list[str]:
    """The characters of a part, with all but ASCII letters, digits, `_`, `-` and dots escaped.

    A leading `_` or dot is escaped, because hidden folders are not searched for tables, and a trailing dot, because
    some file systems drop it.
    """
    escaped = []
    for position, char in enumerate(part):
        is_plain = char.isascii() and (char.isalnum() or char in "_-.") and char not in also
        if (char in "_." and position == 0) or (char == "." and position == len(part) - 1):
            is_plain = False
        escaped.append(char if is_plain else "".join(f"{ESCAPE}{byte:02X}" for byte in char.encode()))
    return escaped


def _unescape(part: str) -> str:
    return re.sub(
        rb"~([0-9A-F]{2})", lambda byte: bytes.fromhex(byte[1].decode()), part.encode(errors="surrogateescape")
    ).decode()


def _join(characters: list[str], ending: str = "") -> str:
    """A folder's name; one that is too long is cut, and ends with a hash of the whole."""
    full_name = "".join(characters)
    if len(full_name + ending) <= MAX_FOLDER_LENGTH:
        return full_name + ending
    tail = ESCAPE * 2 + hashlib.sha256(full_name.encode()).hexdigest()[:16] + ending
    prefix = ""
    for char in characters:
        if len(prefix + char + tail) > MAX_FOLDER_LENGTH:
            break
        prefix += char
    return prefix + tail


def is_unused(location: str, options: Mapping[str, str] | None) -> bool:
    """Whether a folder that the catalog would choose for a new table has no files, at any depth."""
    from deltalakedb.storage.location import open_storage

    return next(open_storage(location, options).walk(), None) is None


def has_log(location: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether a folder has a Delta log."""
    from deltalakedb.storage.location import open_storage

    return any(map(is_log_name, open_storage(location, options).names(LOG_FOLDER)))


def shows_iceberg_table(location: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether a folder has a Delta log that only shows the Iceberg table there to Delta readers."""
    from deltalakedb.files.reader import FileTxnLogReader

    try:
        return shows_iceberg(FileTxnLogReader(location, options).snapshot().metadata)
    except (TableNotFoundError, DeltaProtocolError):
        return False


def refuse_missing_files(
    location: str,
    options: Mapping[str, str] | None,
    *,
    table: str,
    is_mirrored: bool,
    data_file: str | None,
) -> None:
    """Raise FilesPurgedError if the log of a dropped table, or this data file, is missing, so that it is not undropped.

    A storage that does not respond is no reason to refuse: reading the table will report it.
    """
    from deltalakedb.storage.location import open_storage

    missing = LOG_FOLDER
    try:
        if not is_mirrored or has_log(location, options):
            if data_file is None:
                return
            missing = data_file
            open_storage(location, options).stat(data_file)
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
    """Refuse to create a table where one exists: its commits would become this table's history."""
    if has_log(location, options) and not unless():
        where = redact(location)
        raise TableExistsError(
            f"{table} cannot be created at {where}: a Delta table is there already; `dl import {where} --as {table}` "
            "takes it over, or choose another location"
        )
