"""Where data files are written and read: local disk, with everything synced, or an object store.

Paths are relative to the table's root and decoded. This layer does not open locations or interpret options: it gets an
opened store.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from obstore import open_writer
from obstore.exceptions import BaseError

from deltalakedb.exceptions import DeltaError, MissingFileError, redact
from deltalakedb.log.protocol.paths import check_path, decode_path, is_absolute
from deltalakedb.storage.syncing import make_folders, sync_all

Elsewhere: TypeAlias = Callable[[str, int | None], pa.NativeFile]

_BUFFER_BYTES = 256 * 1024
_PART_BYTES = 8 * 1024 * 1024
# Objects up to this size are fetched with one request.
_SMALL_BYTES = 16 * 1024 * 1024
# Files on a disk up to this size are read whole.
_TINY_BYTES = 256 * 1024


class Written(NamedTuple):
    """A finished file."""

    size: int
    modified_ms: int


class NewFile(Protocol):
    """A file that is being written; it is valid only after `finish` returned."""

    @property
    def sink(self) -> pa.NativeFile: ...

    def finish(self) -> Written:
        """Close the file; it is durable after the storage's `sync`."""
        ...

    def abandon(self) -> None:
        """Discard the file, if possible."""
        ...


class DataStorage(Protocol):
    """The data files of one table."""

    @property
    def location(self) -> str:
        """The table's canonical location, without credentials."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether finishing a file waits for a response, so that several should be finished concurrently."""
        ...

    def create(self, path: str) -> NewFile: ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make finished files and their names durable."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file that no commit names; a missing one is no error."""
        ...

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A seekable file; its size, if given, saves a request. FileNotFoundError if the file is missing."""
        ...

    def open_elsewhere(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A file outside of the table, by its absolute path or URI in the log: clones have such files."""
        ...


def open_logged(storage: DataStorage, path: str, size: int | None = None) -> pa.NativeFile:
    """Open a file by its path in an action: encoded, relative to the table or absolute."""
    try:
        if is_absolute(path):
            return storage.open_elsewhere(path, size)
        check_path(path, where=storage.location)
        return storage.open(decode_path(path), size)
    except FileNotFoundError:
        raise MissingFileError(
            f"Object at location {storage.location}/{redact(path)} not found: the log names this data file, and it was "
            "deleted or vacuumed",
            path=path,
            advice="a newer version of the table may not need it",
        ) from None
    except OSError as error:
        raise DeltaError(f"cannot read {redact(path)} of {storage.location}: {error.strerror or error}") from error


class LocalDataStorage:
    """A table's folder on a local or mounted disk."""

    is_remote = False

    def __init__(self, root: str, location: str, elsewhere: Elsewhere) -> None:
        self.location = location
        self._root = root
        self._elsewhere = elsewhere

    def __repr__(self) -> str:
        return f"LocalDataStorage({self.location!r})"

    def create(self, path: str) -> NewFile:
        full_path = f"{self._root}/{path}"
        try:
            try:
                return _LocalFile(full_path)
            except FileNotFoundError:
                make_folders(os.path.dirname(full_path))
                return _LocalFile(full_path)
        except OSError as error:
            raise DeltaError(f"cannot write {self.location}/{path}: {error.strerror or error}") from error

    def sync(self, paths: Sequence[str]) -> None:
        # A folder's name is durable once its parent is synced, and the writer that created it may not have done that.
        folders = {""}
        for path in paths:
            folder = path.rpartition("/")[0]
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        try:
            sync_all([f"{self._root}/{path}" for path in (*folders, *paths)])
        except OSError as error:
            failed_path = error.filename or self.location
            raise DeltaError(f"cannot write {failed_path} of {self.location}: {error.strerror or error}") from error

    def delete(self, path: str) -> None:
        folder, slash, name = path.rpartition("/")
        try:
            # Hadoop puts a checksum beside each file that it writes to a disk.
            for file in (path, f"{folder}{slash}.{name}.crc"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._root}/{file}")
        except OSError as error:
            raise DeltaError(f"cannot delete {self.location}/{path}: {error.strerror}") from error

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        if size is not None and 0 < size <= _TINY_BYTES:
            content = _read_once(f"{self._root}/{path}", size + 1)
            if len(content) == size:
                return pa.BufferReader(content)
        # Not memory-mapped: a file that is truncated while it is read must raise an error, not kill the process.
        return pa.OSFile(f"{self._root}/{path}")

    def open_elsewhere(self, path: str, size: int | None = None) -> pa.NativeFile:
        return self._elsewhere(path, size)


def _read_once(path: str, size: int) -> bytes:
    """The first bytes of a file, by one system call instead of one for each column."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, size)
    finally:
        os.close(file)


class _LocalFile:
    def __init__(self, path: str) -> None:
        self._path = path
        # Parquet writes in many small pieces; buffered, a small file is one system call, not twenty
        self.sink: pa.NativeFile = pa.BufferedOutputStream(pa.OSFile(path, "wb"), _BUFFER_BYTES)

    def finish(self) -> Written:
        self.sink.close()
        stat = os.stat(self._path)
        return Written(stat.st_size, stat.st_mtime_ns // 1_000_000)

    def abandon(self) -> None:
        try:
            self.sink.close()
        finally:
            os.unlink(self._path)


class ObjectDataStorage:
    """A table's prefix in S3, GCS, Azure or memory; `store` is an obstore store, `explain` words its errors."""

    is_remote = True

    def __init__(
        self, store: Any, prefix: str, location: str, elsewhere: Elsewhere, explain: Callable[[BaseException], str]
    ) -> None:
        self.location = location
        self._elsewhere = elsewhere
        self._store = store
        self._prefix = prefix
        self._explain = explain

    def __repr__(self) -> str:
        return f"ObjectDataStorage({self.location!r})"

    def create(self, path: str) -> NewFile:
        return _ObjectFile(self, path, self._store, self._key(path))

    def sync(self, paths: Sequence[str]) -> None:
        """Does nothing: an object is durable when its put returns."""

    def delete(self, path: str) -> None:
        try:
            self._store.delete(self._key(path))
        except FileNotFoundError:
            pass
        except BaseError as error:
            raise self.failure("delete", path, error) from None

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        try:
            if size is not None and size <= _SMALL_BYTES:
                return pa.BufferReader(self._store.get(self._key(path)).bytes())
            object_size: int = self._store.head(self._key(path))["size"] if size is None else size
        except FileNotFoundError:
            raise
        except BaseError as error:
            raise self.failure("read", path, error) from None
        return pa.PythonFile(_Ranges(lambda start, end: self._range(path, start, end), object_size), mode="r")

    def _range(self, path: str, start: int, end: int) -> bytes:
        try:
            return bytes(self._store.get_range(self._key(path), start=start, end=end))
        except FileNotFoundError:
            raise
        except BaseError as error:
            raise self.failure("read", path, error) from None

    def open_elsewhere(self, path: str, size: int | None = None) -> pa.NativeFile:
        return self._elsewhere(path, size)

    def failure(self, verb: str, path: str, error: BaseException) -> DeltaError:
        return DeltaError(f"cannot {verb} {self.location}/{path}: {self._explain(error)}")

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path


class _Ranges:
    """An object as a file: each read requests exactly its bytes; Parquet reads whole column chunks."""

    closed = False

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0

    def read(self, count: int = -1) -> bytes:
        end = self._size if count < 0 else min(self._position + count, self._size)
        if end <= self._position:
            return b""
        data = self._fetch(self._position, end)
        self._position = end
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True


class _ObjectFile:
    """An upload: one put if small, else in parts. Without `finish` no object is created."""

    def __init__(self, storage: ObjectDataStorage, path: str, store: Any, key: str) -> None:
        self._storage = storage
        self._path = path
        self._upload = _Upload(open_writer(store, key, buffer_size=_PART_BYTES))
        self.sink: pa.NativeFile = pa.PythonFile(self._upload, mode="w")

    def finish(self) -> Written:
        try:
            self._upload.writer.close()
        except BaseError as error:
            raise self._storage.failure("write", self._path, error) from None
        return Written(self._upload.size, time.time_ns() // 1_000_000)

    def abandon(self) -> None:
        """Do nothing: sent parts are never assembled; the bucket's rule for incomplete uploads deletes them."""


class _Upload:
    """The file interface for pyarrow; `close` does not end the upload, because pyarrow closes abandoned files too."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        # pyarrow's buffers have signed bytes, which an object store's writer refuses.

        octets = memoryview(data).cast("B")
        self.writer.write(octets)
        self.size += len(octets)
        return len(octets)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True
