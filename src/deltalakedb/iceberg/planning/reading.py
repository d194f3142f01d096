"""Reads metadata files of Iceberg tables by the paths that other metadata has for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final, Protocol, TypeVar

from deltalakedb.exceptions import ConfigError, MalformedLogError, MissingFileError, redact
from deltalakedb.iceberg.planning.avro import MAX_FILE_BYTES
from deltalakedb.storage.location import open_storage

MAX_READS: Final = 8
"""How many files are read at the same time, and so how many are in memory."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")


class ReadFile(Protocol):
    """Returns the content of a file."""

    def __call__(self, path: str) -> bytes: ...


class StoredFiles:
    """Reads files with the storage options of a table."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = options

    def __call__(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        # Iceberg's paths are never percent-encoded, locations are.
        location = folder.replace("%", "%25") if _SCHEME.match(folder) else folder
        try:
            with open_storage(location or "/", self._options).open(name) as file:
                if file.size() > MAX_FILE_BYTES:
                    raise MalformedLogError(f"the file {redact(path)} is larger than {MAX_FILE_BYTES} bytes")
                return bytes(file.read())
        except FileNotFoundError:
            raise MissingFileError(
                f"the table's metadata names the file {redact(path)}, which does not exist",
                path=path,
                advice="an expired snapshot cannot be read",
            ) from None
        except (ConfigError, OSError) as error:
            raise MalformedLogError(
                f"the table's metadata names {redact(path)}, which cannot be read: {error}"
            ) from error


class CheckedFiles:
    """Reads files in folders that a table may name: a client could have named a file of somebody else."""

    def __init__(self, read: ReadFile, is_allowed: Callable[[str], bool]) -> None:
        self._read = read
        self._is_allowed = is_allowed
        self._folders: dict[str, bool] = {}

    def __call__(self, path: str) -> bytes:
        self.check(path)
        return self._read(path)

    def check(self, path: str) -> None:
        """Raise MalformedLogError for a file that the table may not name, whether it exists or not."""
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            self._folders[folder] = self._is_allowed(folder)
        if not self._folders[folder]:
            raise MalformedLogError(f"the table's metadata names {redact(path)}, which is in no folder of the table")


Item = TypeVar("Item")


def read_ahead(items: Iterable[Item], path_of: dict[Item, str], read: ReadFile) -> Iterator[tuple[Item, bytes]]:
    """Yields each item with the content of its file, in order; the next files are read meanwhile."""
    remaining = iter(items)
    with ThreadPoolExecutor(MAX_READS, thread_name_prefix="deltalakedb-manifests") as executor:
        reading: list[tuple[Item, Future[bytes]]] = []
        try:
            while True:
                next_items = islice(remaining, MAX_READS - len(reading))
                reading += [(item, executor.submit(read, path_of[item])) for item in next_items]
                if not reading:
                    return
                item, content = reading.pop(0)
                yield item, content.result()
        finally:
            for _, waiting in reading:
                waiting.cancel()
