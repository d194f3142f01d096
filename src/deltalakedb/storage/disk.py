"""System calls on a local disk: creates, writes, syncs and deletes files, and links them without replacing others.

A journaling file system commits once for all requests that arrive while it works: a file and its folder synced
concurrently take as long as one of them (measured on a busy ext4: 2.2 ms instead of 8).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, Final, TypeVar

import pyarrow as pa

from deltalakedb.runtime import forks
from deltalakedb.storage.interface import Written

_T = TypeVar("_T")
CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
"""Creates a file to write to that must not exist yet."""
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_THREADS: Final = 8
_NO_HARD_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_SUCH_RENAME: Final = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCL: Final = 4


class CannotLinkError(OSError):
    """The file system has neither hard links nor a rename that refuses to replace."""


class LocalFile:
    """A data file that is being written under its own name: no version names it yet."""

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


def in_folder(path: str, create: Callable[[], _T]) -> _T:
    """Create a file, and its folder if that is missing."""
    try:
        return create()
    except FileNotFoundError:
        make_folders(os.path.dirname(path))
        return create()


def read_once(path: str, size: int) -> bytes:
    """The first bytes of a file, by one system call instead of one for each column."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        return os.read(file, size)
    finally:
        os.close(file)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written < len(data):
        view = memoryview(data)
        while written < len(data):
            written += os.write(descriptor, view[written:])


def delete_tree(path: str) -> None:
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def sync_all(paths: Sequence[str]) -> None:
    """Sync all of these files and folders to disk."""
    futures: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter is shutting down, and the pool takes no more work
        futures.extend(_pool().submit(sync, path) for path in paths[1:])
    try:
        for path in (*paths[:1], *paths[1 + len(futures) :]):
            sync(path)
    finally:
        errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise errors[0]


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, and sync their names to disk."""
    missing = [path]  # also if another writer has just created it: the name may not be synced yet
    parent = os.path.dirname(path)
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    os.makedirs(path, exist_ok=True)
    sync_all([os.path.dirname(folder) for folder in missing])


def sync(path: str) -> None:
    """Sync one file or folder to disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        error.filename = path
        raise


def link(temporary: str, path: str) -> None:
    """Give a file its name; FileExistsError if the name is taken: this decides between two writers.

    The temporary name may be gone afterwards. CannotLinkError if the file system has no way to do this.
    """
    try:
        os.link(temporary, path)  # unlike rename(2), link(2) fails if the name is taken
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:
            _rename_without_replacing(temporary, path)
        except OSError as rename_error:
            if rename_error.errno not in _NO_SUCH_RENAME:
                raise
            reason = (
                "this file system has no hard links, and cannot rename a file without replacing another (renameat2), "
                "so two writers could overwrite each other's commits"
            )
            raise CannotLinkError(error.errno, reason) from error


def _rename_without_replacing(source: str, target: str) -> None:
    """Rename in one step; FileExistsError if the name is taken.

    OSError with ENOSYS or EINVAL if the system or file system does not support it: an ordinary rename would replace.
    """
    function = _rename_call()
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    ctypes.set_errno(0)
    if function(os.fsencode(source), os.fsencode(target)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


@cache
def _rename_call() -> Any:
    """renameat2(2) on Linux, renamex_np(2) on macOS; None elsewhere, or if the C library is too old."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return lambda source, target: library.renamex_np(source, target, _RENAME_EXCL)
        rename = library.renameat2
    except (OSError, AttributeError, TypeError):
        return None
    return lambda source, target: rename(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="deltalakedb-sync")


def _after_fork() -> None:
    """Drop the pool in a forked child, which has none of its threads."""

    if _pool.cache_info().currsize:
        forks.leave_to_parent([_pool()])
        _pool.cache_clear()


forks.at_fork(after_in_child=_after_fork)
