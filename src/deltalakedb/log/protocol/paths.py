"""Owns the paths of data files: relative or absolute, RFC 2396 encoded in the log, resolved against a location."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from deltalakedb.exceptions import MalformedLogError, redact

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):/")
_SHOWN_CHARS = 1000
_SEPARATOR = re.compile(r"[/\\]")


def decode_path(path: str) -> str:
    """Decodes a path of the log to that of the file system: %XX as UTF-8; invalid escapes are kept."""
    if "%" not in path:
        return path
    return unquote(path) if _is_utf8_escaped(path) else path


def _is_utf8_escaped(path: str) -> bool:
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def encode_path(path: str) -> str:
    """Encodes a path for the log; the inverse of `decode_path`."""
    return quote(path, safe="/!$&'()*+,;=:@~-._")


def is_absolute(path: str) -> bool:
    return path.startswith("/") or _SCHEME.match(path) is not None


def check_path(path: str, *, where: str = "") -> None:
    """Raises if a relative path leaves the table's folder, however its dots are spelled."""
    if ".." not in path and "%" not in path:
        return
    if is_absolute(path):
        return
    if ".." in _SEPARATOR.split(path) or ".." in _SEPARATOR.split(unquote(path, errors="replace")):
        prefix = f"{where}: " if where else ""
        raise MalformedLogError(redact(f"{prefix}the path {path[:_SHOWN_CHARS]} leaves the table's folder"))


def resolve(table_location: str, path: str) -> str:
    """The location of a data file: a `file:` URI is encoded, an object URL or a plain path is not.

    The table's location has the same form: `file:///...` encoded, `s3://bucket/key` and `/folder` not.
    """
    if is_absolute(path):
        if path.startswith("/"):
            return _as_file_uri(decode_path(path)) if table_location.startswith("file:") else decode_path(path)
        return path if path.startswith("file:") else decode_path(path)
    check_path(path)
    relative = decode_path(path)
    if table_location.startswith("file:"):
        relative = encode_path(relative)
    return f"{table_location.rstrip('/')}/{relative}"


def _as_file_uri(path: str) -> str:
    return f"file://{encode_path(path)}"


def local_path(location: str) -> str | None:
    """The local path of a `file:` URI or a plain path; None for anything else."""
    match = _SCHEME.match(location)
    if match is None:
        return location
    if match.group(1).lower() != "file":
        return None
    rest = location[len("file:") :]
    if rest.startswith("//"):
        rest = rest[2:].removeprefix("localhost")
    return decode_path(rest)
