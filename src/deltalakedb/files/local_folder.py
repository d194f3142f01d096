"""Writes a `_delta_log` on local disk with system calls: files appear whole, durable, and in one step."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from deltalakedb.exceptions import MirrorError
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.files.put import PUT_TIMEOUT_SECONDS, Failures, LogFile, PutResult
from deltalakedb.files.renaming import rename_without_replacing
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import Location

TEMPORARY_SUFFIX = ".deltalakedb.tmp"
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_SUCH_RENAME = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
_ADVICE = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk",
    errno.EROFS: "the disk is mounted read-only",
    errno.ENOENT: "the folder is gone: put it back, or let `dl validate TABLE --repair` write the log again",
    errno.EACCES: "give this user the right to write there",
}
_counter = itertools.count()


class LocalFolder:
    """The log of a table on a local or mounted disk."""

    def __init__(self, location: Location, *, table: str, folder: str = LOG_FOLDER) -> None:
        self.location = f"{location.uri}/{folder}"
        self._folder = f"{location.path}/{folder}"
        self._failures = Failures(table, self.location)

    def __repr__(self) -> str:
        return f"LocalFolder({self.location!r})"

    def put(
        self,
        name: str,
        data: bytes,
        *,
        modified_ms: int | None = None,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,  # noqa: ARG002 a disk has no time-outs
        step: str = "",
        lasting: bool = True,
        decides: bool = True,  # noqa: ARG002 a disk decides for every file
        creates_folder: bool = True,
    ) -> PutResult:
        linked = False
        try:
            if os.path.lexists(self._at(name)):
                return self._exists()
            temporary = self._write_temporary(name, data, modified_ms, creates_folder)
            try:
                if step:
                    reached(f"{step}_temp")
                self._drop_hadoop_checksum(name)
                self._link(temporary, name)
                if step:
                    reached(f"{step}_linked")
            except FileExistsError:
                return self._exists()
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            linked = True
            if lasting:
                _sync_folder(self._folder)
        except OSError as error:
            failure = self._failure("write", name, error)
            failure.uncertain = linked  # the file exists, but may be lost in a power failure
            raise failure from error
        return "written"

    def _link(self, temporary: str, name: str) -> None:
        """Give a file its name unless the name is taken: this decides between two writers."""
        try:
            # Unlike rename(2), link(2) fails if the name is taken.
            os.link(temporary, self._at(name))
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            try:
                rename_without_replacing(temporary, self._at(name))
            except OSError as rename_error:
                if rename_error.errno not in _NO_SUCH_RENAME:
                    raise
                reason = (
                    "this file system has no hard links, and cannot rename a file without replacing another "
                    "(renameat2), so two writers could overwrite each other's commits"
                )
                raise self._failures.error("write", name, reason, "keep the table elsewhere") from error

    def sync(self) -> None:
        try:
            _sync_folder(self._folder)
        except OSError as error:
            raise self._failure("write", "", error) from error

    def replace(self, name: str, data: bytes) -> None:
        with self.upload(name) as file:
            file.write(data)

    @contextmanager
    def upload(self, name: str) -> Iterator[BinaryIO]:
        try:
            temporary, descriptor = self._open_temporary(name)
        except OSError as error:
            raise self._failure("write", name, error) from error
        try:
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            self._drop_hadoop_checksum(name)
            os.rename(temporary, self._at(name))
            _sync_folder(self._folder)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError):
                raise self._failure("write", name, error) from error
            raise

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._at(name), "rb", buffering=0) as file:
                return file.readall()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure("read", name, error) from error

    def modified_ms(self, name: str) -> int | None:
        try:
            return os.stat(self._at(name)).st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure("read", name, error) from error

    def list(self, subfolder: str = "") -> Iterator[LogFile]:
        prefix = f"{subfolder}/" if subfolder else ""
        try:
            with os.scandir(self._at(subfolder)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        stat = entry.stat()
                        if entry.is_file():
                            yield LogFile(prefix + entry.name, stat.st_mtime_ns // 1_000_000, stat.st_size)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._failure("list", subfolder, error) from error

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._drop_hadoop_checksum(name)
                with suppress(FileNotFoundError):
                    os.unlink(self._at(name))
            except OSError as error:
                raise self._failure("delete", name, error) from error

    def sweep(self, before_ms: int) -> tuple[str, ...]:
        # A commit's temporary file has the commit's own mtime; its ctime tells its age.
        old_names = [f.name for f in self.list() if _is_temporary(f.name) and self._changed_ms(f.name) < before_ms]
        self.delete(old_names)
        return tuple(sorted(old_names))

    def _changed_ms(self, name: str) -> int:
        try:
            return os.stat(self._at(name)).st_ctime_ns // 1_000_000
        except OSError:
            return time.time_ns() // 1_000_000

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _drop_hadoop_checksum(self, name: str) -> None:
        """Delete `.name.crc`, which Spark keeps beside its files on local disk: it refuses files that do not match."""
        folder, slash, file = name.rpartition("/")
        with suppress(FileNotFoundError):
            os.unlink(self._at(f"{folder}{slash}.{file}.crc"))

    def _exists(self) -> PutResult:
        # The writer that linked it may not have synced the name yet, and the caller relies on it from now on.
        _sync_folder(self._folder)
        return "exists"

    def _write_temporary(self, name: str, data: bytes, modified_ms: int | None, creates_folder: bool) -> str:
        temporary, descriptor = self._open_temporary(name, creates_folder)
        try:
            try:
                _write_all(descriptor, data)
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

    def _open_temporary(self, name: str, creates_folder: bool = True) -> tuple[str, int]:
        """A new hidden file beside its target: log readers ignore names that begin with a dot."""
        temporary = self._at(f".{name}.{os.getpid()}.{next(_counter)}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)

        def create() -> int:
            return os.open(temporary, flags, 0o666)

        return temporary, self._in_folder(create) if creates_folder else create()

    def _in_folder(self, create: Callable[[], int]) -> int:
        try:
            return create()
        except FileNotFoundError:
            _make_folders(self._folder)
            return create()

    def _failure(self, verb: str, name: str, error: OSError) -> MirrorError:
        return self._failures.error(verb, name, error.strerror or str(error), _ADVICE.get(error.errno or 0, ""))


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written < len(data):
        view = memoryview(data)
        while written < len(data):
            written += os.write(descriptor, view[written:])


def _make_folders(folder: str) -> None:
    """Create a folder and its parents, each made durable in its parent."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        _make_folders(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
