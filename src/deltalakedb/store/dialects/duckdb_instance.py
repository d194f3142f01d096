"""The one DuckDB instance of this process that catalog files are attached to."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from deltalakedb import forks

Config = dict[str, str | bool | int | float | list[str]]
CONFIG: Config = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
# DuckDB's own measure of when to checkpoint counts whole blocks, and would find nearly every small commit worth one.
_CHECKPOINT_ABOVE = "64MB"
_INSTANCE_CONFIG: Config = {**CONFIG, "checkpoint_threshold": _CHECKPOINT_ABOVE}


class ProcessInstance:
    """The DuckDB instance that files are attached to; started on first use, never carried through a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._numbers = itertools.count(1)
        self._attached = 0

    def attach(self, path: Path, *, read_only: bool = True) -> str:
        """Attach a file; the name it has in the instance."""
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=_INSTANCE_CONFIG)
                # Letting go of a file would checkpoint it, at the price of several commits; it is done when due.
                self._connection.execute("pragma disable_checkpoint_on_shutdown")
            name = f"catalog_{next(self._numbers)}"
            quoted = str(path).replace("'", "''")
            self._connection.execute(f"attach '{quoted}' as {name}{' (read_only)' if read_only else ''}")
            self._attached += 1
            return name

    @contextmanager
    def eager_checkpoints(self) -> Iterator[None]:
        """A large transaction that is committed meanwhile is written once, into the file, and not into the WAL too."""
        self._set_threshold("1MB")
        try:
            yield
        finally:
            self._set_threshold(_CHECKPOINT_ABOVE)

    def _set_threshold(self, size: str) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.execute(f"set global checkpoint_threshold = '{size}'")

    def detach(self, name: str) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.execute(f"detach {name}")
                self._attached -= 1

    def cursor(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection of its own, looking at one of the files."""
        assert self._connection is not None, "a file is attached"
        cursor = self._connection.cursor()
        cursor.execute(f"use {name}")
        return cursor

    def hold(self) -> None:
        """Before a fork: nothing is attached any more until it is over; an instance without files is closed."""
        self._lock.acquire()
        if self._connection is not None and not self._attached:
            self._connection.close()
            self._connection = None

    def go_on(self) -> None:
        """After a fork, in the parent."""
        self._lock.release()

    def start_anew(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
        if self._connection is not None:
            forks.leave_to_parent([self._connection])
        self._connection, self._attached = None, 0


instance = ProcessInstance()
