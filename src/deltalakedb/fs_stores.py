"""Owns the bytes behind DeltaStorageHandler: a folder on disk and one in an object store, asked in the same words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from .files.location import Location
from .files.options import Credentials, open_object_store


class Found(NamedTuple):
    """A file that is there."""

    key: str
    size: int
    modified: datetime


class Store(Protocol):
    """Files by keys below one folder; what is not there is a FileNotFoundError, anything else that fails an OSError."""

    def head(self, key: str) -> Found: ...

    def list(self, key: str) -> tuple[list[str], list[Found]]:
        """The folders and the files directly in a folder; none if it is not there."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes: ...

    def open_writer(self, key: str, buffer_size: int) -> Any: ...

    def copy(self, source: str, target: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, key: str) -> None: ...


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
        return self._found(key, os.stat(path))

    def list(self, key: str) -> tuple[list[str], list[Found]]:
        folders, files = [], []
        try:
            with os.scandir(self._path(key)) as entries:
                for entry in entries:
                    below = f"{key}/{entry.name}" if key else entry.name
                    if entry.is_dir():
                        folders.append(below)
                    elif entry.is_file():
                        files.append(self._found(below, entry.stat()))
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        return folders, files

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(length)

    def open_writer(self, key: str, buffer_size: int) -> Any:  # noqa: ARG002  a disk takes writes of any size
        return open(self._made(key), "wb")

    def copy(self, source: str, target: str) -> None:
        shutil.copyfile(self._path(source), self._made(target))

    def rename(self, source: str, target: str) -> None:
        os.stat(self._path(source))  # before a folder is made for the target
        os.replace(self._path(source), self._made(target))

    def delete(self, key: str) -> None:
        os.unlink(self._path(key))

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, key) if key else self._folder

    def _made(self, key: str) -> str:
        """The path of a file that is to be written: its folder is there."""
        path = self._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @staticmethod
    def _found(key: str, stat: os.stat_result) -> Found:
        return Found(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


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
        return Found(item["path"][len(self._prefix) :], item["size"], item["last_modified"])
