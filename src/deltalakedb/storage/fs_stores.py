"""The storage behind DeltaStorageHandler: a folder on disk or in an object store, with one interface."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from deltalakedb.storage.location import Location
from deltalakedb.storage.options import Credentials, open_object_store


class Found(NamedTuple):
    """A file in storage."""

    key: str
    size: int
    modified_ns: int


class Store(Protocol):
    """Files by key below one folder. A missing file raises FileNotFoundError, any other failure OSError."""

    def head(self, key: str) -> Found: ...

    def list(self, key: str) -> tuple[list[str], list[Found]]:
        """Return the folders and the files directly in a folder; none if it does not exist."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes: ...

    def open_writer(self, key: str, buffer_size: int) -> Any: ...

    def copy(self, source: str, target: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, key: str) -> None: ...


@contextmanager
def _not_found(path: str) -> Iterator[None]:
    """Raise FileNotFoundError with `deltalake`'s message."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"Object at location {path} not found: {error.strerror} (os error 2)") from None


class DiskStore:
    """A local folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def exists(self) -> bool:
        return os.path.isdir(self._folder)

    def head(self, key: str) -> Found:
        path = self._path(key)
        if os.path.isdir(path):
            raise FileNotFoundError(f"Object at location {path} not found: is directory")
        with _not_found(path):
            return self._found(key, os.stat(path))

    def list(self, key: str) -> tuple[list[str], list[Found]]:
        folders, files = [], []
        try:
            with os.scandir(self._path(key)) as entries:
                for entry in entries:
                    entry_key = f"{key}/{entry.name}" if key else entry.name
                    if entry.is_dir():
                        folders.append(entry_key)
                    elif entry.is_file():
                        files.append(self._found(entry_key, entry.stat()))
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        return folders, files

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(length)

    def open_writer(self, key: str, buffer_size: int) -> Any:  # noqa: ARG002  a disk accepts writes of any size
        return open(self._made(key), "wb")

    def copy(self, source: str, target: str) -> None:
        with _not_found(self._path(source)):
            shutil.copyfile(self._path(source), self._made(target))

    def rename(self, source: str, target: str) -> None:
        with _not_found(self._path(source)):
            os.stat(self._path(source))  # raise before a folder is created for the target
        os.replace(self._path(source), self._made(target))

    def delete(self, key: str) -> None:
        with _not_found(self._path(key)):
            os.unlink(self._path(key))

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, key) if key else self._folder

    def _made(self, key: str) -> str:
        """Create the folder of a file and return the file's path."""
        path = self._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @staticmethod
    def _found(key: str, stat: os.stat_result) -> Found:
        return Found(key, stat.st_size, stat.st_mtime_ns)


class ObjectStore:
    """A prefix of a bucket."""

    def __init__(self, place: Location, options: Mapping[str, str]) -> None:
        self._store = open_object_store(place, options, Credentials.of(options))
        self._prefix = f"{place.path}/" if place.path else ""

    def head(self, key: str) -> Found:
        return self._found(self._store.head(self._prefix + key))

    def list(self, key: str) -> tuple[list[str], list[Found]]:
        listed = self._store.list_with_delimiter((self._prefix + key).rstrip("/") or None)
        cut = len(self._prefix)
        return [prefix[cut:] for prefix in listed["common_prefixes"]], [self._found(item) for item in listed["objects"]]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return bytes(self._store.get_range(self._prefix + key, start=start, length=length))

    def open_writer(self, key: str, buffer_size: int) -> Any:
        from obstore import open_writer

        return open_writer(self._store, self._prefix + key, buffer_size=buffer_size)

    def copy(self, source: str, target: str) -> None:
        self._store.copy(self._prefix + source, self._prefix + target)

    def rename(self, source: str, target: str) -> None:
        self._store.rename(self._prefix + source, self._prefix + target)

    def delete(self, key: str) -> None:
        self._store.delete(self._prefix + key)

    def _found(self, item: Mapping[str, Any]) -> Found:
        return Found(item["path"][len(self._prefix) :], item["size"], _nanoseconds(item["last_modified"]))


def _nanoseconds(time: datetime) -> int:
    """Return nanoseconds since the epoch, without a float, which would lose digits."""
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000
