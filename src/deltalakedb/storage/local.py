"""LocalStorage: files on a local or mounted disk, by system calls; what is put appears whole, durable and in one step.

System calls, because obstore's local store takes three times as long to read a small commit and twenty times as long to
list a log (measured), and cannot sync.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from stat import S_ISDIR
from typing import BinaryIO, Final, NoReturn

import pyarrow as pa

from deltalakedb.exceptions import SigningNotSupportedError, StorageError
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.disk import (
    CREATE,
    CannotLinkError,
    LocalFile,
    delete_tree,
    in_folder,
    link,
    read_chunks,
    read_once,
    sync,
    sync_all,
    write_all,
)
from deltalakedb.storage.interface import (
    NO_LOCK,
    PUT_TIMEOUT_SECONDS,
    SIGNED_SECONDS,
    FileStream,
    Folder,
    ListedFile,
    Method,
    NewFile,
    PutResult,
    Puts,
    Storage,
)
from deltalakedb.storage.location import Location

TEMPORARY_SUFFIX: Final = ".deltalakedb.tmp"
# Data files up to this size are read whole.
_TINY_BYTES: Final = 256 * 1024
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_ADVICE: Final = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk",
    errno.EROFS: "the disk is mounted read-only",
    errno.ENOENT: "the folder is gone: put it back, or let `dl validate TABLE --repair` write the log again",
    errno.EACCES: "give this user the right to write there",
}
_counter = itertools.count()


class LocalStorage:
    """The files below a folder of a disk."""

    is_remote = False

    def __init__(self, place: Location) -> None:
        self.location = place.uri
        self.options: Mapping[str, str] = {}
        self._root = place.path

    def __repr__(self) -> str:
        return f"LocalStorage({self.location!r})"

    # -- reading

    def get(self, path: str) -> bytes:
        with self._reading(path), open(self._at(path), "rb", buffering=0) as file:
            return file.readall()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._reading(path), open(self._at(path), "rb") as file:  # buffered: one read(2) ends at 2 GiB
            file.seek(start)
            # The space for `length` bytes is taken before they are read.
            return file.read(min(length, max(os.fstat(file.fileno()).st_size - start, 0)))

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        with self._reading(path):
            if size is not None and 0 < size <= _TINY_BYTES:
                content = read_once(self._at(path), size + 1)
                if len(content) == size:
                    return pa.BufferReader(content)
            # Not memory-mapped: a file that is truncated while it is read must raise an error, not kill the process.
            return pa.OSFile(self._at(path))

    def stream(self, path: str) -> FileStream:
        with self._reading(path):
            file = open(self._at(path), "rb", buffering=0)  # noqa: SIM115 closed when all chunks are read
        stat = os.fstat(file.fileno())
        return FileStream(stat.st_size, stat.st_mtime_ns // 1_000_000, read_chunks(file))

    def stream_many(self, paths: Iterable[str]) -> Iterator[FileStream]:
        return map(self.stream, paths)

    def stat(self, path: str) -> ListedFile:
        with self._reading(path):
            stat = os.stat(self._at(path))
        if S_ISDIR(stat.st_mode):
            raise FileNotFoundError(f"Object at location {self._at(path)} not found: is directory")
        return ListedFile(path, stat.st_size, stat.st_mtime_ns)

    # -- listing

    def names(self, folder: str, *, start_after: str = "") -> Iterator[str]:
        try:
            names = os.listdir(self._at(folder))
        except _MISSING:
            return iter(())
        except OSError as error:
            raise self._failure("list", folder, error) from error
        return (name for name in names if name > start_after)

    def folders(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._at(folder)) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except (*_MISSING, PermissionError):
            return []

    def list(self, folder: str) -> Folder:
        files: list[ListedFile] = []
        folders: list[str] = []
        prefix = f"{folder}/" if folder else ""
        try:
            with os.scandir(self._at(folder)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        if entry.is_dir():
                            folders.append(prefix + entry.name)
                        elif entry.is_file():
                            stat = entry.stat()
                            files.append(ListedFile(prefix + entry.name, stat.st_size, stat.st_mtime_ns))
        except _MISSING:
            pass
        except OSError as error:
            raise self._failure("list", folder, error) from error
        return Folder(tuple(files), tuple(folders))

    def walk(self, folder: str = "") -> Iterator[ListedFile]:
        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # nothing was written yet, or another process deletes here too
                raise self._failure("list", folder, error) from error

        for parent, _, names in os.walk(self._at(folder), onerror=fail):
            for name in names:
                with suppress(FileNotFoundError):
                    full_path = os.path.join(parent, name)
                    stat = os.lstat(full_path)
                    yield ListedFile(os.path.relpath(full_path, self._root), stat.st_size, stat.st_mtime_ns)

    def newest_ms(self, folder: str) -> int:
        times = [0]
        for parent, _, names in os.walk(self._at(folder)):
            for path in (parent, *(os.path.join(parent, name) for name in names)):
                with suppress(FileNotFoundError):
                    times.append(os.stat(path).st_mtime_ns // 1_000_000)
        return max(times)

    # -- writing

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        modified_ms: int | None = None,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,  # noqa: ARG002 a disk has no time-outs
        step: str = "",
        lasting: bool = True,
        decides: bool = True,  # noqa: ARG002 a disk decides for every file
        creates_folder: bool = True,
        puts: Puts = NO_LOCK,  # noqa: ARG002 a disk refuses to overwrite
    ) -> PutResult:
        linked = False
        folder = os.path.dirname(self._at(path))
        try:
            if os.path.lexists(self._at(path)):
                return _exists(folder)
            temporary = self._write_temporary(path, data, modified_ms, creates_folder)
            try:
                if step:
                    reached(f"{step}_temp")
                self._delete_hadoop_checksum(path)
                link(temporary, self._at(path))
                if step:
                    reached(f"{step}_linked")
            except FileExistsError:
                return _exists(folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            linked = True
            if lasting:
                sync(folder)
        except OSError as error:
            failure = self._failure("write", path, error)
            failure.uncertain = linked  # the file exists, but may be lost in a power failure
            raise failure from error
        return "written"

    def put(self, path: str, data: bytes) -> None:
        try:
            descriptor = in_folder(self._at(path), partial(os.open, self._at(path), CREATE, 0o666))
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._failure("write", path, error) from error

    def replace(self, path: str, data: bytes) -> None:
        with self.upload(path) as file:
            file.write(data)

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        try:
            temporary, descriptor = self._open_temporary(path)
        except OSError as error:
            raise self._failure("write", path, error) from error
        try:
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            self._delete_hadoop_checksum(path)
            os.rename(temporary, self._at(path))
            sync(os.path.dirname(self._at(path)))
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise self._failure("write", path, error) from error
            raise

    def create(self, path: str, *, part_bytes: int | None = None) -> NewFile:  # noqa: ARG002 a disk has no parts
        try:
            return in_folder(self._at(path), partial(LocalFile, self._at(path)))
        except OSError as error:
            raise self._failure("write", path, error) from error

    def sync(self, paths: Sequence[str]) -> None:
        try:
            sync_all(self._to_sync(paths))
        except OSError as error:
            raise self._sync_failure(error) from error

    def _to_sync(self, paths: Sequence[str]) -> Sequence[str]:
        """The files, and all folders that they are in."""
        # A folder's name is durable once its parent is synced, and the writer that created it may not have done that.
        folders = {""}
        for path in paths:
            folder = path.rpartition("/")[0]
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        return [self._at(path) for path in (*folders, *paths)]

    def sync_folder(self, folder: str) -> None:
        try:
            sync(self._at(folder))
        except OSError as error:
            raise self._failure("write", folder, error) from error

    def copy(self, source: str, target: str) -> None:
        self._transfer(shutil.copyfile, source, target)

    def rename(self, source: str, target: str) -> None:
        self._transfer(os.replace, source, target)

    def _transfer(self, transfer: Callable[[str, str], object], source: str, target: str) -> None:
        with self._reading(source):
            os.stat(self._at(source))  # raises before a folder is created for the target
        try:
            os.makedirs(os.path.dirname(self._at(target)), exist_ok=True)
            transfer(self._at(source), self._at(target))
        except OSError as error:
            raise self._failure("write", target, error) from error

    # -- deleting

    def delete(self, *paths: str, with_checksums: bool = True) -> None:
        for path in paths:
            try:
                if with_checksums:
                    self._delete_hadoop_checksum(path)
                with suppress(*_MISSING):
                    os.unlink(self._at(path))
            except OSError as error:
                raise self._failure("delete", path, error) from error

    def delete_folder(self, folder: str, *, keep: str = "") -> None:
        try:
            if not keep:
                delete_tree(self._at(folder))
                return
            with suppress(FileNotFoundError):
                for name in os.listdir(self._at(folder)):
                    if name != keep:
                        delete_tree(os.path.join(self._at(folder), name))
        except OSError as error:
            raise self._failure("delete", folder, error) from error

    def delete_empty_folders(self) -> None:
        for folder, _, _ in os.walk(self._root, topdown=False):
            with suppress(OSError):  # not empty
                os.rmdir(folder)

    def delete_temporary(self, folder: str, *, before_ms: int) -> tuple[str, ...]:
        # A commit's temporary file has the commit's own mtime; its ctime tells its age.
        names = [name for name in self.names(folder) if name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)]
        old_names = sorted(name for name in names if self._changed_ms(f"{folder}/{name}") < before_ms)
        self.delete(*(f"{folder}/{name}" for name in old_names))
        return tuple(old_names)

    def sign(self, path: str, method: Method = "GET", *, expires_seconds: int = SIGNED_SECONDS) -> NoReturn:  # noqa: ARG002
        raise SigningNotSupportedError(
            f"{self.location}/{path} has no signed URL: it is on a local disk; keep the table in an object store, or "
            "let clients read its files by path"
        )

    # -- parts of the above

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _changed_ms(self, path: str) -> int:
        try:
            return os.stat(self._at(path)).st_ctime_ns // 1_000_000
        except OSError:
            return time.time_ns() // 1_000_000

    def _delete_hadoop_checksum(self, path: str) -> None:
        """Delete `.name.crc`, which Hadoop keeps beside its files on local disk: Spark refuses files that differ."""
        folder, slash, name = path.rpartition("/")
        with suppress(*_MISSING):
            os.unlink(self._at(f"{folder}{slash}.{name}.crc"))

    def _write_temporary(self, path: str, data: bytes, modified_ms: int | None, creates_folder: bool) -> str:
        temporary, descriptor = self._open_temporary(path, creates_folder)
        try:
            try:
                write_all(descriptor, data)
                if modified_ms is not None:
                    os.utime(descriptor, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary

    def _open_temporary(self, path: str, creates_folder: bool = True) -> tuple[str, int]:
        """A new hidden file beside its target: log readers ignore names that begin with a dot."""
        folder, _, name = self._at(path).rpartition("/")
        temporary = f"{folder}/.{name}.{os.getpid()}.{next(_counter)}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
        create = partial(os.open, temporary, CREATE, 0o666)
        return temporary, in_folder(temporary, create) if creates_folder else create()

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except _MISSING as error:
            where = self._at(path)
            raise FileNotFoundError(f"Object at location {where} not found: {error.strerror} (os error 2)") from None
        except OSError as error:
            raise self._failure("read", path, error) from error

    def _sync_failure(self, error: OSError) -> StorageError:
        return self._failure("write", os.path.relpath(error.filename, self._root) if error.filename else "", error)

    def _failure(self, verb: str, path: str, error: OSError) -> StorageError:
        if isinstance(error, CannotLinkError):
            advice = "keep the table elsewhere"
        else:
            advice = "" if verb in ("read", "list") else _ADVICE.get(error.errno or 0, "")
        target = f"{self.location}/{path}" if path else self.location
        return StorageError(f"cannot {verb} {target}: {error.strerror or error}", advice)


def sync_together(files: Mapping[Storage, Sequence[str]]) -> None:
    """Make files of several storages durable: those on disks at the same time."""
    on_disks = {
        storage: storage._to_sync(paths) for storage, paths in files.items() if isinstance(storage, LocalStorage)
    }
    try:
        sync_all([place for places in on_disks.values() for place in places])
    except OSError as error:
        failed = next((disk for disk, places in on_disks.items() if error.filename in places), next(iter(on_disks)))
        raise failed._sync_failure(error) from error
    for other, paths in files.items():
        if other not in on_disks:
            other.sync(paths)


def _exists(folder: str) -> PutResult:
    # The writer that linked it may not have synced the name yet, and the caller relies on it from now on.
    sync(folder)
    return "exists"
