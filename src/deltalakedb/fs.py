"""DeltaStorageHandler: a table's folder as a file system of PyArrow's, which behaves as an object store does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from .exceptions import DeltaError, TableNotFoundError
from .files.location import canonical_location, parse_location
from .fs_stores import DiskStore, ObjectStore, Store

_BUFFER_BYTES: Final = 5 * 1024 * 1024
_SMALL_BUFFER: Final = (
    "You specified a `max_buffer_size` of {given} bytes, less than {least}. Most object stores expect parts of at "
    "least that size, you may experience issues"
)


class DeltaStorageHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Paths are relative to the table. Wrap it: `pyarrow.fs.PyFileSystem(DeltaStorageHandler(uri, options))`.

    Folders are there while a file is in them, as in an object store: none is made, and a folder that is not there is
    an empty one.
    """

    def __init__(
        self, table_uri: str, options: Mapping[str, str] | None = None, known_sizes: Mapping[str, int] | None = None
    ) -> None:
        """`known_sizes` of files are taken as they are: such a file is opened without asking for its size."""
        self._location = canonical_location(table_uri)
        self._options = _checked("options", options, str)
        self._sizes = _checked("known_sizes", known_sizes, int)
        place = parse_location(self._location, self._options)
        self._store: Store
        if place.scheme != "file":
            self._store = ObjectStore(place, self._options)
            return
        self._store = DiskStore(place.path)
        if not self._store.exists():
            raise TableNotFoundError(f'Local path "{place.path}" does not exist or you don\'t have access!')

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
        return _key(path) + ("/" if path.endswith("/") else "")

    # -- what is there

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(_key(path)) for path in paths]

    def _info(self, key: str) -> FileInfo:
        if any(self._store.list(key)):
            return FileInfo(key, FileType.Directory)
        try:
            found = self._store.head(key)
        except FileNotFoundError:
            return FileInfo(key, FileType.NotFound)
        return FileInfo(key, FileType.File, size=found.size, mtime=found.modified)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        folders, files = self._store.list(_key(selector.base_dir))
        waiting = list(folders) if selector.recursive else []
        while waiting:
            below, more = self._store.list(waiting.pop())
            waiting += below
            folders, files = folders + below, files + more
        return [FileInfo(folder, FileType.Directory) for folder in folders] + [
            FileInfo(found.key, FileType.File, size=found.size, mtime=found.modified) for found in files
        ]

    # -- reading and writing

    def open_input_file(self, path: str) -> pa.NativeFile:
        key, size = _key(path), self._sizes.get(path)
        return pa.PythonFile(_Input(self._store, key, self._store.head(key).size if size is None else size), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:  # noqa: ARG002  as in `deltalake`
        given = self._options.get("max_buffer_size", "")
        size = int(given) if given.isdecimal() else _BUFFER_BYTES
        if size < _BUFFER_BYTES:
            warnings.warn(_SMALL_BUFFER.format(given=size, least=_BUFFER_BYTES), UserWarning, stacklevel=2)
        return pa.PythonFile(_Output(self._store.open_writer(_key(path), max(size, 1))), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        raise NotImplementedError(f"{path}: files of a table are never appended to")

    # -- changing

    def copy_file(self, src: str, dst: str) -> None:
        self._store.copy(_key(src), _key(dst))

    def move(self, src: str, dest: str) -> None:
        self._store.rename(_key(src), _key(dest))

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """Nothing is made: a folder is there with its first file."""

    def delete_file(self, path: str) -> None:
        self._store.delete(_key(path))

    def delete_dir(self, path: str) -> None:
        """All files below the folder."""
        for key in list(self._files_below(_key(path))):
            self._store.delete(key)

    def delete_dir_contents(self, path: str, *, accept_root_dir: bool = False, missing_dir_ok: bool = False) -> None:  # noqa: ARG002  none is missing
        if not _key(path) and not accept_root_dir:
            raise DeltaError(f"the whole folder {self._location} would be emptied; say `accept_root_dir`")
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir("")

    def _files_below(self, key: str) -> Iterator[str]:
        folders, files = self._store.list(key)
        yield from (found.key for found in files)
        for folder in folders:
            yield from self._files_below(folder)


def _key(path: str) -> str:
    """The key of a path: no slash at its ends, and no way out of the table."""
    parts = [part for part in path.split("/") if part]
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)


def _checked(name: str, given: Mapping[str, Any] | None, kind: type) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: '{type(given).__name__}' object is not an instance of 'dict'")
    for value in given.values():
        if not isinstance(value, kind):
            raise TypeError(f"{name}: '{type(value).__name__}' object is not an instance of '{kind.__name__}'")
    return dict(given)


class _Input:
    """A file as pyarrow reads it, a range at a time."""

    mode = "rb"

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._position = 0
        self.closed = False

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        position = offset + (0, self._position, self._size)[whence]
        if not 0 <= position <= self._size:
            where = "for negative position" if position < 0 else "past end of file"
            raise OSError(f"Cannot seek {where}.")
        self._position = position
        return position

    def read(self, nbytes: int | None = None) -> bytes:
        left = self._size - self._position
        length = left if nbytes is None else min(nbytes, left)
        data = self._store.get_range(self._key, self._position, length) if length > 0 else b""
        self._position += len(data)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _Output:
    """A file as pyarrow writes it; an object is there once it is closed."""

    mode = "wb"

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
