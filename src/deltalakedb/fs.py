"""DeltaStorageHandler: a table's folder as a file system of PyArrow's, on disk or in an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileSystemHandler,
    FileType,
    LocalFileSystem,
    SubTreeFileSystem,
)

from .exceptions import DeltaError
from .files.location import canonical_location, parse_location
from .files.options import Credentials, open_object_store
from .storage import open_data_storage

_PART_BYTES = 8 * 1024 * 1024


class DeltaStorageHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Paths are relative to the table. Wrap it: `pyarrow.fs.PyFileSystem(DeltaStorageHandler(uri, options))`."""

    def __init__(
        self, table_uri: str, options: Mapping[str, str] | None = None, known_sizes: Mapping[str, int] | None = None
    ) -> None:
        """`known_sizes` of files save a request for each of them in an object store."""
        self._location = canonical_location(table_uri)
        self._options = dict(options or {})
        self._sizes = dict(known_sizes or {})
        place = parse_location(self._location, self._options)
        self._prefix = place.path
        self._disk: FileSystem | None = None
        self._store: Any = None
        if place.scheme == "file":
            self._disk = SubTreeFileSystem(place.path, LocalFileSystem())
        else:
            self._store = open_object_store(place, self._options, Credentials.of(self._options))

    @classmethod
    def from_table(
        cls, table: Any, options: Mapping[str, str] | None = None, known_sizes: Mapping[str, int] | None = None
    ) -> DeltaStorageHandler:
        """The folder of an opened DeltaTable, with the storage options it was opened with unless others are given."""
        return cls(table.table_uri, table._storage_options if options is None else options, known_sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeltaStorageHandler) and self._location == other._location

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def equals(self, other: Any) -> bool:
        return bool(self == other)

    def get_type_name(self) -> str:
        return "object-store"

    def normalize_path(self, path: str) -> str:
        return path.strip("/")

    # -- what is there

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        if self._disk is not None:
            return list(self._disk.get_file_info(list(paths)))
        return [self._object_info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        if self._disk is not None:
            return list(self._disk.get_file_info(selector))
        found = self._listed(selector.base_dir)
        if not found and not selector.allow_not_found and selector.base_dir.strip("/"):
            raise FileNotFoundError(f"{self._location} has nothing below {selector.base_dir}")
        depth = selector.base_dir.strip("/").count("/") + (1 if selector.base_dir.strip("/") else 0)
        return [
            FileInfo(path, FileType.File, size=size)
            for path, size in found.items()
            if selector.recursive or path.count("/") == depth
        ]

    def _object_info(self, path: str) -> FileInfo:
        try:
            return FileInfo(path, FileType.File, size=self._store.head(self._key(path))["size"])
        except FileNotFoundError:
            return FileInfo(path, FileType.Directory if self._listed(path) else FileType.NotFound)

    def _listed(self, folder: str) -> dict[str, int]:
        prefix = self._key(folder.strip("/"))
        cut = len(self._prefix) + 1 if self._prefix else 0
        pages = self._store.list(f"{prefix}/" if prefix else None)
        return {item["path"][cut:]: item["size"] for page in pages for item in page}

    # -- reading and writing

    def open_input_file(self, path: str) -> pa.NativeFile:
        if self._disk is not None:
            return self._disk.open_input_file(path)
        return open_data_storage(self._location, self._options).open(path, self._sizes.get(path))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        if self._disk is not None:
            folder = path.rpartition("/")[0]
            self._disk.create_dir(folder, recursive=True)
            return self._disk.open_output_stream(path, metadata=dict(metadata or {}))
        from obstore import open_writer

        return pa.PythonFile(_Upload(open_writer(self._store, self._key(path), buffer_size=_PART_BYTES)), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        raise NotImplementedError(f"{path}: files of a table are never appended to")

    # -- changing

    def copy_file(self, src: str, dst: str) -> None:
        if self._disk is not None:
            self._disk.copy_file(src, dst)
        else:
            self._store.copy(self._key(src), self._key(dst))

    def move(self, src: str, dest: str) -> None:
        if self._disk is not None:
            self._disk.move(src, dest)
        else:
            self._store.rename(self._key(src), self._key(dest))

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """An object store has no folders: there is nothing to make."""
        if self._disk is not None:
            self._disk.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        if self._disk is not None:
            self._disk.delete_file(path)
        else:
            self._store.delete(self._key(path))

    def delete_dir(self, path: str) -> None:
        if self._disk is not None:
            self._disk.delete_dir(path)
        else:
            self._delete_all(path)

    def delete_dir_contents(self, path: str, *, accept_root_dir: bool = False, missing_dir_ok: bool = False) -> None:
        if not path.strip("/") and not accept_root_dir:
            raise DeltaError(f"the whole folder {self._location} would be emptied; say `accept_root_dir`")
        if self._disk is not None:
            self._disk.delete_dir_contents(path, accept_root_dir=accept_root_dir, missing_dir_ok=missing_dir_ok)
        else:
            self._delete_all(path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("", accept_root_dir=True)

    def _delete_all(self, path: str) -> None:
        keys = [self._key(found) for found in self._listed(path)]
        if keys:
            self._store.delete(keys)

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path.strip("/")) if part)


class _Upload:
    """What pyarrow needs of a file; the object is there once it is closed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._writer.write(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._writer.close()
