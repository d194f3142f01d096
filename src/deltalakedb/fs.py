"""DeltaStorageHandler: a table's folder as a PyArrow file system, with the semantics of an object store."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from deltalakedb.exceptions import DeltaError, TableNotFoundError
from deltalakedb.runtime.arguments import check_sequence, check_text, wrong_type
from deltalakedb.storage.fs_stores import DiskStore, ObjectStore, Store
from deltalakedb.storage.location import canonical_location, parse_location
from deltalakedb.tables.raw import RawTable

_BUFFER_BYTES: Final = 5 * 1024 * 1024
_SMALL_BUFFER: Final = (
    "You specified a `max_buffer_size` of {given} bits less than {least} bits. Most object stores expect parts of at "
    "least that size, you may experience issues"
)


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
        self._location = canonical_location(table_uri, self._options)
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
        """Open the folder of a DeltaTable, with the table's storage options unless `options` are given."""
        raw = table if isinstance(table, RawTable) else getattr(table, "_table", None)
        if not isinstance(raw, RawTable):
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

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        check_sequence(paths)
        return [self._info(_key(path)) for path in paths]

    def _info(self, key: str) -> FileInfo:
        if any(self._store.list(key)):
            return FileInfo(key, FileType.Directory)
        try:
            stored_file = self._store.head(key)
        except FileNotFoundError:
            return FileInfo(key, FileType.NotFound)
        return FileInfo(key, FileType.File, size=stored_file.size, mtime_ns=stored_file.modified_ns)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        folders, files = self._store.list(_key(selector.base_dir))
        pending = list(folders) if selector.recursive else []
        while pending:
            subfolders, subfiles = self._store.list(pending.pop())
            pending += subfolders
            folders, files = folders + subfolders, files + subfiles
        return [FileInfo(folder, FileType.Directory) for folder in folders] + [
            FileInfo(file.key, FileType.File, size=file.size, mtime_ns=file.modified_ns) for file in files
        ]

    # -- reading and writing

    def open_input_file(self, path: str) -> pa.NativeFile:
        key, size = _key(path), self._sizes.get(path)
        return pa.PythonFile(_Input(self._store, key, self._store.head(key).size if size is None else size), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:  # noqa: ARG002  ignored, as in `deltalake`
        size_option = self._options.get("max_buffer_size", "")
        size = int(size_option) if size_option.isdecimal() else _BUFFER_BYTES
        if size < _BUFFER_BYTES:
            warnings.warn(_SMALL_BUFFER.format(given=size, least=_BUFFER_BYTES), UserWarning, stacklevel=2)
        return pa.PythonFile(_Output(self._store.open_writer(_key(path), max(size, 1))), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        raise NotImplementedError(f"{path}: files of a table are never appended to")

    # -- changing

    def copy_file(self, src: str, dst: str) -> None:
        self._store.copy(_key(src), _key(dst))

    def move(self, src: str, dest: str) -> None:
        self._store.rename(_key(src), _key(dest))

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """Do nothing: a folder exists as soon as it contains a file."""

    def delete_file(self, path: str) -> None:
        self._store.delete(_key(path))

    def delete_dir(self, path: str) -> None:
        """Delete all files below the folder."""
        for key in list(self._files_below(_key(path))):
            self._store.delete(key)

    def delete_dir_contents(self, path: str, *, accept_root_dir: bool = False, missing_dir_ok: bool = False) -> None:  # noqa: ARG002  a missing folder is empty
        if not _key(path) and not accept_root_dir:
            raise DeltaError(f"the whole folder {self._location} would be emptied; say `accept_root_dir`")
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir("")

    def _files_below(self, key: str) -> Iterator[str]:
        folders, files = self._store.list(key)
        yield from (file.key for file in files)
        for folder in folders:
            yield from self._files_below(folder)


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
    """A file that pyarrow writes; an object exists once it is closed."""

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

    def __del__(self) -> None:
        if isinstance(self._writer, io.IOBase):  # Python would warn about an open file; `deltalake` does not
            self._writer.close()
