"""Paths of data files as the Delta log has them: relative to the table's location, or absolute, percent-encoded."""

from __future__ import annotations

import re
from typing import Final

from deltalakedb.exceptions import CannotMirrorError, redact
from deltalakedb.log.protocol.paths import encode_path

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3"}


def to_delta_path(path: str, location: str) -> str:
    """Return the path of a data file, both as in Iceberg's metadata, where nothing is encoded."""
    scheme, place = _split(path)
    if not {".", "..", ""}.isdisjoint(place.strip("/").split("/")):
        raise CannotMirrorError(f"the path of the file {redact(path)} is not in its simplest form")
    table_scheme, table_place = _split(location)
    folder = table_place.rstrip("/") + "/"
    if scheme == table_scheme and place.startswith(folder):
        return encode_path(place.removeprefix(folder))
    return f"{scheme}://{encode_path(place)}"


def _split(path: str) -> tuple[str, str]:
    """The scheme of a location, and the rest: bucket and key, or the path on a disk with one slash at its beginning."""
    match = _SCHEME.match(path)
    scheme = "file" if match is None else match[1].lower()
    rest = path if match is None else path[match.end() :]
    if scheme == "file":
        return scheme, "/" + rest.lstrip("/")
    return _SAME_SCHEME.get(scheme, scheme), rest.lstrip("/")
