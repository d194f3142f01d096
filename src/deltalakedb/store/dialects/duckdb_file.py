"""Controls who has a DuckDB file open: many readers or one writer, over all threads and processes.

DuckDB gives a file to one read-write process or to several read-only ones, fails at once instead of waiting, and within
a process refuses a second handle with another configuration. So every block takes a lock file first: shared to read,
exclusive to write.

The file is attached to one DuckDB instance that all files of the process share: starting an instance costs more than
attaching (10 ms against 5). It stays attached between blocks. DuckDB's own locks on the file and its WAL are POSIX
locks, owned by the process. They are released while no block is open, so that an idle process blocks no other, and
taken again before the next block, which attaches the file again if it was changed meanwhile. Detaching a file that
others have changed writes nothing.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from deltalakedb.exceptions import StoreBusyError, StoreError
from deltalakedb.runtime import forks
from deltalakedb.store.dialects.duckdb_instance import CONFIG, Config, instance

POLL_SECONDS = 0.002
POLL_MAX_SECONDS = 0.05

# For SQL of users: no access outside of the file, and no way to change that.
_USERS_CONFIG: Config = {**CONFIG, "enable_external_access": "false", "lock_configuration": "true"}

WAL_BYTES = 32 * 1024
"""The WAL is replayed by each process that opens the file (measured: 0.5 ms a statement, 2 to 4 ms a small commit) and
a checkpoint costs some 40 ms, so one is due after about a dozen small commits."""

REPLAYED_WAL_BYTES = 8 * 1024
"""A writer that had to replay more than this checkpoints earlier, so that the next processes open the file sooner."""

_files: dict[Path, "DuckdbFile"] = {}
_files_lock = threading.RLock()
_in_use_at_fork: set[Path] = set()
"""Files that a block of an ancestor had open when it forked: DuckDB would find the ancestor's handle by the name."""


class DuckdbFile:
    """The state of one file, shared by all stores of this process that opened it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wal = Path(f"{path}.wal")
        self._generation = forks.generation
        self._users = 0
        self._changed = threading.Condition()
        self._readers: dict[int, int] = {}
        self._writer: int | None = None
        self._is_forking = False
        self._attached: str | None = None  # the file's name in the process's instance
        self._is_writable = False  # whether it is attached for writing
        self._seen: tuple[object, ...] = ()
        self._wal_limit = WAL_BYTES  # a checkpoint is due above this size
        self._lock_file = -1
        self._data_file = -1

    @classmethod
    def of(cls, path: Path) -> "DuckdbFile":
        """Returns the process's state for a file; each call needs one `leave`."""
        path = Path(os.path.realpath(path))
        with _files_lock:
            if path in _in_use_at_fork:
                raise StoreError(
                    f"DuckDB database {path} was in use while this process was forked off; fork outside of blocks"
                )
            file = _files.get(path)
            if file is None:
                file = _files[path] = cls(path)
            file._users += 1
            return file

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it; a file inherited through a fork belongs to the parent."""
        return self._generation == forks.generation

    def in_this_process(self) -> "DuckdbFile":
        return self if self.is_ours else DuckdbFile.of(self.path)

    def hold(self, deadline: float) -> bool:
        """Before a fork: waits for the blocks of other threads, and starts no new ones; returns whether it is held.

        A file without open blocks is then detached, so that the child can attach it.
        """
        if not self._changed.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        me = threading.get_ident()
        self._is_forking = True  # threads without an open block wait until the fork is over
        self._changed.wait_for(
            lambda: self._writer in (None, me) and not self._readers.keys() - {me},
            max(0.0, deadline - time.monotonic()),
        )
        self._is_forking = False
        if not self._readers and self._writer is None:
            self._drop_all()
        return True

    def go_on(self) -> None:
        """After a fork, in the parent: lets waiting threads go on."""
        self._changed.notify_all()
        self._changed.release()

    def leave_to_parent(self) -> None:
        """After a fork, in the child: closes its copies of the descriptors, else a lock would outlive the parent."""
        if self._attached is not None or self._writer is not None:
            _in_use_at_fork.add(self.path)
        for descriptor in (self._data_file, self._lock_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._data_file = self._lock_file = -1

    def leave(self) -> None:
        if not self.is_ours:
            return
        with _files_lock:
            self._users -= 1
            if self._users:
                return
            if _files.get(self.path) is self:
                del _files[self.path]
        with self._changed:
            if not self._readers and self._writer is None:
                self._drop_all()

    @property
    def is_writable(self) -> bool:
        """Whether a statement in a block of `shared` could write."""
        return self._is_writable

    @contextmanager
    def shared(self, timeout_seconds: float, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yields a cursor for reading that sees one state of the file until the block ends.

        `read_only`: attached so that other handles of this process can open the file for reading.
        """
        me = threading.get_ident()
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if self._writer == me:
                raise StoreError(
                    "a write block is open in this thread: DuckDB can only be read through its own connection"
                )
            if read_only and self._is_writable and me in self._readers:
                raise StoreError("a block is open in this thread already: DuckDB needs it closed before users' SQL")
            self._wait(
                lambda: self._writer is None and not (read_only and self._is_writable and self._readers), deadline
            )
            if not self._readers:
                if self._attached is None and not read_only:
                    self._attach_both_ways()
                self._lock(fcntl.LOCK_SH, deadline)
                try:
                    self._attach(deadline, read_only=read_only)
                except BaseException:
                    self._unlock()
                    raise
            assert self._attached is not None
            cursor = instance.cursor(self._attached)
            self._readers[me] = self._readers.get(me, 0) + 1
        try:
            yield cursor
        finally:
            self._end_reading(cursor, me)

    def _end_reading(self, cursor: duckdb.DuckDBPyConnection, me: int) -> None:
        if not self.is_ours:  # the block was opened before a fork
            forks.leave_to_parent([cursor])
            return
        cursor.close()
        with self._changed:
            self._readers[me] -= 1
            if not self._readers[me]:
                del self._readers[me]
            if not self._readers:
                self._let_go()
                self._unlock()
                if not self._users:
                    self._drop_all()
            self._changed.notify_all()

    @contextmanager
    def for_users(self, timeout_seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yields a read-only handle for SQL of users: it can access only the file, and this cannot be changed."""
        with self.shared(timeout_seconds, read_only=True):
            handle = duckdb.connect(self.path, read_only=True, config=_USERS_CONFIG)
            try:
                yield handle
            finally:
                handle.close()
                with self._changed:  # closing a descriptor of a file drops all POSIX locks that this process has on it
                    fcntl.lockf(self._data_file, fcntl.LOCK_SH | fcntl.LOCK_NB)

    @contextmanager
    def exclusive(self, timeout_seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yields a read-write handle; nobody else can use the file until the block ends."""
        me = threading.get_ident()
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if me in self._readers or self._writer == me:
                raise StoreError("a block is open in this thread already: DuckDB needs it closed before a write")
            self._wait(lambda: self._writer is None and not self._readers, deadline)
            self._lock(fcntl.LOCK_EX, deadline)
            self._writer = me
        is_whole = False
        cursor: duckdb.DuckDBPyConnection | None = None
        try:
            cursor = instance.cursor(self._attach_to_write(deadline))
            yield cursor
            if self.is_ours and _size(self._wal) > self._wal_limit:
                cursor.execute("checkpoint")
                self._wal_limit = WAL_BYTES
            is_whole = True
        finally:
            self._end_writing(cursor, is_whole)

    def _end_writing(self, cursor: duckdb.DuckDBPyConnection | None, is_whole: bool) -> None:
        if not self.is_ours:  # the block was opened before a fork
            forks.leave_to_parent([cursor])
            return
        if cursor is not None:
            cursor.close()
        with self._changed:
            self._count_change()
            if is_whole:
                self._seen = self._state()
                self._let_go()
            else:
                self._detach()
            self._writer = None
            self._unlock()
            if not self._users:
                self._drop_all()
            self._changed.notify_all()

    @contextmanager
    def alone(self, timeout_seconds: float) -> Iterator[None]:
        """Waits until no process is writing; does not open the file."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if self._writer == threading.get_ident():
                raise StoreError("a write block is open in this thread: it cannot wait for itself")
            self._wait(lambda: self._writer is None, deadline)
            if not self._readers:  # a shared lock of ours already keeps writers of other processes out
                self._lock(fcntl.LOCK_SH, deadline)
                self._unlock()
        yield

    def _wait(self, ready: Callable[[], bool], deadline: float) -> None:
        me = threading.get_ident()

        def is_ready() -> bool:
            return ready() and (not self._is_forking or me in self._readers)

        if not self._changed.wait_for(is_ready, timeout=max(0.0, deadline - time.monotonic())):
            raise StoreBusyError(f"DuckDB database {self.path} stayed in use by another thread of this process")

    def _lock(self, kind: int, deadline: float) -> None:
        if self._lock_file < 0:
            self._lock_file = _open_lock_file(Path(f"{self.path}.lock"))
        if self._lock_file < 0:
            return
        pause = POLL_SECONDS
        while True:
            try:
                fcntl.flock(self._lock_file, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreBusyError(f"DuckDB database {self.path} stayed locked by another process") from None
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_MAX_SECONDS)

    def _unlock(self) -> None:
        if self._lock_file >= 0:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _attach(self, deadline: float, *, read_only: bool) -> None:
        """Makes sure that the present file is attached, and that this process has DuckDB's lock on it."""
        if self._attached is not None and not (read_only and self._is_writable):
            _retried(lambda: fcntl.lockf(self._data_file, fcntl.LOCK_SH | fcntl.LOCK_NB), deadline)
            if self._state() == self._seen:
                return
        self._attach_anew(lambda: _retried(lambda: instance.attach(self.path), deadline), is_writable=False)

    def _attach_to_write(self, deadline: float) -> str:
        """Like `_attach`, for a writer; returns the name of the file in the instance."""
        if self._attached is not None and self._is_writable:
            _retried(lambda: fcntl.lockf(self._data_file, fcntl.LOCK_EX | fcntl.LOCK_NB), deadline)
            if self._state() == self._seen:
                return self._attached
        return self._attach_anew(
            lambda: _retried(lambda: instance.attach(self.path, read_only=False), deadline), is_writable=True
        )

    def _attach_both_ways(self) -> None:
        """Attaches for reading and writing if no other process uses the file: most processes that read first write
        next, so this attaches once instead of twice."""
        if self._lock_file < 0:
            self._lock_file = _open_lock_file(Path(f"{self.path}.lock"))
        if self._lock_file < 0 or not os.access(self.path, os.W_OK):
            return
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            self._attach_anew(lambda: instance.attach(self.path, read_only=False), is_writable=True)
            self._let_go()
        except (duckdb.Error, OSError):
            self._detach()  # if there is an error, the next read reports it
        finally:
            self._unlock()

    def _attach_anew(self, attach: Callable[[], str], *, is_writable: bool) -> str:
        self._detach()
        if self._data_file >= 0:
            os.close(self._data_file)
            self._data_file = -1
        self._wal_limit = REPLAYED_WAL_BYTES if _size(self._wal) > REPLAYED_WAL_BYTES else WAL_BYTES
        name = self._attached = attach()
        self._is_writable = is_writable
        # Opened after DuckDB took its lock, and closed only while the file is not attached: closing a descriptor of a
        # file drops all POSIX locks that this process has on it.
        self._data_file = os.open(self.path, os.O_RDWR if is_writable else os.O_RDONLY)
        self._seen = self._state()
        return name

    def _let_go(self) -> None:
        """Releases the POSIX locks while no block is open."""
        fcntl.lockf(self._data_file, fcntl.LOCK_UN)
        if self._is_writable:
            # DuckDB has also locked the WAL, with a descriptor of its own; closing any other one releases that lock.
            with suppress(FileNotFoundError):
                os.close(os.open(self._wal, os.O_RDONLY))

    def _state(self) -> tuple[object, ...]:
        """A value that changes with every write: our own counter, and the stat values of the file and its WAL."""
        counter = os.pread(self._lock_file, 32, 0) if self._lock_file >= 0 else b""
        return counter, _stamp(self.path), _stamp(self._wal)

    def _count_change(self) -> None:
        if self._lock_file >= 0:
            count = int(os.pread(self._lock_file, 32, 0) or b"0") + 1
            os.pwrite(self._lock_file, b"%d" % count, 0)

    def _detach(self) -> None:
        if self._attached is not None:
            instance.detach(self._attached)
            self._attached, self._is_writable = None, False

    def _drop_all(self) -> None:
        self._detach()
        for descriptor in (self._data_file, self._lock_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._data_file = self._lock_file = -1


_forking = threading.local()


def _hold() -> None:
    deadline = time.monotonic() + forks.WAIT_SECONDS
    _files_lock.acquire()
    _forking.held = [file for file in _files.values() if file.hold(deadline)]
    instance.hold()


def _go_on() -> None:
    instance.go_on()
    for file in _forking.held:
        file.go_on()
    _forking.held = []
    _files_lock.release()


def _start_anew() -> None:
    global _files_lock
    _files_lock = threading.RLock()
    _forking.held = []
    for file in _files.values():
        file.leave_to_parent()
    _files.clear()
    instance.start_anew()


forks.at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_start_anew)


def is_locked(error: Exception) -> bool:
    """Whether another process holds the file; DuckDB has no error code for this."""
    return isinstance(error, duckdb.IOException) and "lock" in str(error)


def _open_lock_file(path: Path) -> int:
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
        except (PermissionError, FileNotFoundError):
            continue
        except OSError as error:
            if error.errno != 30:  # EROFS
                raise StoreError(f"the lock file {path} cannot be opened: {error.strerror}") from error
    # If no lock file can be created, nobody can write either.
    return -1


def _retried(action: Callable[[], Any], deadline: float) -> Any:
    """Repeats an action while a program that does not use our lock file holds the database."""
    pause = POLL_SECONDS
    while True:
        try:
            return action()
        except (duckdb.IOException, BlockingIOError, PermissionError) as error:
            if isinstance(error, duckdb.IOException) and not is_locked(error):
                raise
            if time.monotonic() >= deadline:
                raise StoreBusyError("the DuckDB file stayed open in another program; close it there") from error
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_MAX_SECONDS)


def _size(path: Path) -> int:
    stamp = _stamp(path)
    return stamp[1] if stamp else 0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
