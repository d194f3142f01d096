"""DeltaStorageHandler: a table's folder as a PyArrow file system, with the semantics of an object store."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from deltalakedb.catalog.uri import is_catalog_uri
from deltalakedb.exceptions import DeltaError, StorageError, TableNotFoundError
from deltalakedb.runtime.arguments import check_sequence, check_text, wrong_type
from deltalakedb.storage.interface import ListedFile, NewFile, Storage
from deltalakedb.storage.location import open_storage, parse_location
from deltalakedb.table import DeltaTable
from deltalakedb.tables.raw import RawDeltaTable

_BUFFER_BYTES: Final = 5 * 1024 * 1024
_SMALL_BUFFER: Final = (
    "You specified a `max_buffer_size` of {given} bits less than {least} bits. Most object stores expect parts of at "
    "least that size, you may experience issues"
)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _with_os_errors(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Raise OSError, as `deltalake` does and pyarrow expects, where the storage fails."""

    @wraps(method)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except StorageError as error:
            raise OSError(str(error)) from error

    return wrapper


class DeltaStorageHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Paths are relative to the table. Wrap it: `pyarrow.fs.PyFileSystem(DeltaStorageHandler(uri, options))`.

    As in an object store, a folder exists while it contains a file: none is created, and a folder that does not exist
    is empty.
    """

    def __init__(
        self, table_uri: str, options: Mapping[str, str] | None = None, known_sizes: Mapping[str, int] | None = None
    ) -> None:
        """Files in `known_sizes` are opened without asking the storage for their size."""
        check_text(table_uri, required=True)
        if not table_uri:
            raise TableNotFoundError('Local path "" does not exist or you don\'t have access!')
        self._options = _checked("options", options, str)
        self._sizes = _checked("known_sizes", known_sizes, int)
        if is_catalog_uri(table_uri):
            with closing(DeltaTable(table_uri, storage_options=self._options)) as table:
                table_uri, self._options = table.table_uri, table._storage_options or {}
        place = parse_location(table_uri, self._options)
        self._location = place.uri
        self._storage = open_storage(table_uri, self._options)
        if place.scheme == "file" and not os.path.isdir(place.path):
            raise TableNotFoundError(f'Local path "{place.path}" does not exist or you don\'t have access!')

    @classmethod
    def from_table(
        cls, table: Any, options: Mapping[str, str] | None = None, known_sizes: Mapping[str, int] | None = None
    ) -> DeltaStorageHandler:
        """Open the folder of a DeltaTable, with the table's storage options unless `options` are given."""
        raw = table if isinstance(table, RawDeltaTable) else getattr(table, "_table", None)
        if not isinstance(raw, RawDeltaTable):
            raise wrong_type(table, "RawDeltaTable")
        return cls(raw.table_uri(), raw._storage_options if options is None else options, known_sizes)

    def equals(self, other: Any) -> bool:
        """Return whether both have the same location; `==` compares identity, as in `deltalake`."""
        return isinstance(other, DeltaStorageHandler) and self._location == other._location

    def get_type_name(self) -> str:
        return "object-store"

    def normalize_path(self, path: str) -> str:
        return _key(path) + ("/" if path.endswith("/") else "")

    # -- listing

    @_with_os_errors
    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        check_sequence(paths)
        return [self._info(_key(path)) for path in paths]

    def _info(self, key: str) -> FileInfo:
        folder = self._storage.list(key)
        if folder.files or folder.folders:
            return FileInfo(key, FileType.Directory)
        try:
            stored_file = self._storage.stat(key)
        except FileNotFoundError:
            return FileInfo(key, FileType.NotFound)
        return FileInfo(key, FileType.File, size=stored_file.size, mtime_ns=stored_file.modified_ns)

    @_with_os_errors
    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        folders: list[str] = []
        files: list[ListedFile] = []
        pending = [_key(selector.base_dir)]
        while pending:
            content = self._storage.list(pending.pop())
            folders += content.folders
            files += content.files
            if selector.recursive:
                pending += content.folders
        return [FileInfo(folder, FileType.Directory) for folder in folders] + [
            FileInfo(file.path, FileType.File, size=file.size, mtime_ns=file.modified_ns) for file in files
        ]

    # -- reading and writing

    @_with_os_errors
    def open_input_file(self, path: str) -> pa.NativeFile:
        key, size = _key(path), self._sizes.get(path)
        return pa.PythonFile(
            _Input(self._storage, key, self._storage.stat(key).size if size is None else size), mode="r"
        )

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    @_with_os_errors
    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:  # noqa: ARG002  ignored, as in `deltalake`
        size_option = self._options.get("max_buffer_size", "")
        size = int(size_option) if size_option.isdecimal() else _BUFFER_BYTES
        if size < _BUFFER_BYTES:
            warnings.warn(_SMALL_BUFFER.format(given=size, least=_BUFFER_BYTES), UserWarning, stacklevel=2)
        return pa.PythonFile(_Output(self._storage.create(_key(path), part_bytes=max(size, 1))), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        raise NotImplementedError(f"{path}: files of a table are never appended to")

    # -- changing

    @_with_os_errors
    def copy_file(self, src: str, dst: str) -> None:
        self._storage.copy(_key(src), _key(dst))

    @_with_os_errors
    def move(self, src: str, dest: str) -> None:
        self._storage.rename(_key(src), _key(dest))

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """Do nothing: a folder exists as soon as it contains a file."""

    @_with_os_errors
    def delete_file(self, path: str) -> None:
        if not self._storage.is_remote:
            self._storage.stat(_key(path))  # a missing file is an error on a disk, as in `deltalake`
        self._storage.delete(_key(path), with_checksums=False)

    @_with_os_errors
    def delete_dir(self, path: str) -> None:
        """Delete all files below the folder."""
        pending = [_key(path)]
        while pending:
            content = self._storage.list(pending.pop())
            self._storage.delete(*[file.path for file in content.files])
            pending += content.folders

    def delete_dir_contents(self, path: str, *, accept_root_dir: bool = False, missing_dir_ok: bool = False) -> None:  # noqa: ARG002  a missing folder is empty
        if not _key(path) and not accept_root_dir:
            raise DeltaError(f"the whole folder {self._location} would be emptied; say `accept_root_dir`")
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir("")


def _key(path: str) -> str:
    """Return the key of a path: without leading and trailing slashes, and inside the table."""
    parts = [part for part in path.split("/") if part]
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)


def _checked(name: str, given: Mapping[str, Any] | None, kind: type) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: {wrong_type(given, 'dict')}")
    for value in given.values():
        if not isinstance(value, kind):
            raise TypeError(f"{name}: {wrong_type(value, kind.__name__)}")
    return dict(given)


class _Input:
    """A file that pyarrow reads in ranges."""

    mode = "rb"

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        self._storage, self._key, self._size = storage, key, size
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
        data = self._storage.get_range(self._key, self._position, length) if length > 0 else b""
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
    """A file that pyarrow writes; an object exists once it is closed."""

    mode = "wb"

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._file.sink.write(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.finish()
