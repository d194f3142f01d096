"""Lists every file below a table's location, including the log, with size and time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from obstore.exceptions import BaseError

from deltalakedb.exceptions import DeltaError
from deltalakedb.storage.location import Location, parse_location
from deltalakedb.storage.log_storage import epoch_ms
from deltalakedb.storage.options import Credentials, open_object_store

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file by its decoded path below the table."""

    path: str
    size: int
    modified_ms: int


def list_files(location: str, options: Mapping[str, str] | None = None) -> Iterator[ListedFile]:
    """All files, in no order. A symbolic link on a disk is listed as itself: its target is elsewhere."""
    parsed = parse_location(location, options)
    return _walk(parsed) if parsed.scheme == "file" else _list(parsed, options or {})


def _walk(place: Location) -> Iterator[ListedFile]:
    def fail(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return  # nothing was written yet, or another process deletes here too
        raise DeltaError(f"cannot list {place.uri}: {error.strerror or error}") from error

    for folder, _, names in os.walk(place.path, onerror=fail):
        for name in names:
            with suppress(FileNotFoundError):
                stat = os.lstat(os.path.join(folder, name))
                path = os.path.relpath(os.path.join(folder, name), place.path)
                yield ListedFile(path, stat.st_size, stat.st_mtime_ns // 1_000_000)


def _list(place: Location, options: Mapping[str, str]) -> Iterator[ListedFile]:
    credentials = Credentials.of(options)
    store: Any = open_object_store(place, options, credentials)
    prefix = f"{place.path}/" if place.path else ""
    try:
        for page in store.list(prefix or None, chunk_size=_PAGE):
            for meta in page:
                yield ListedFile(meta["path"].removeprefix(prefix), meta["size"], epoch_ms(meta))
    except BaseError as error:
        raise DeltaError(f"cannot list {place.uri}: {credentials.explain(error)}") from None
