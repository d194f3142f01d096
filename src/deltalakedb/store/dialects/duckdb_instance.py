"""The DuckDB instance of this process, to which catalog files are attached."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from deltalakedb.runtime import forks

Config = dict[str, str | bool | int | float | list[str]]
CONFIG: Config = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
# DuckDB's own threshold counts whole blocks, and would checkpoint after nearly every small commit.
_CHECKPOINT_ABOVE = "64MB"
_INSTANCE_CONFIG: Config = {**CONFIG, "checkpoint_threshold": _CHECKPOINT_ABOVE}


class ProcessInstance:
    """The DuckDB instance to which files are attached; started on first use, never carried through a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._numbers = itertools.count(1)
        self._attached = 0

    def attach(self, path: Path, *, read_only: bool = True) -> str:
        """Attaches a file; returns its name in the instance."""
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=_INSTANCE_CONFIG)
                # Detaching a file would checkpoint it, at the cost of several commits; checkpoints run when due.
                self._connection.execute("pragma disable_checkpoint_on_shutdown")
            name = f"catalog_{next(self._numbers)}"
            quoted = str(path).replace("'", "''")
            self._connection.execute(f"attach '{quoted}' as {name}{' (read_only)' if read_only else ''}")
            self._attached += 1
            return name

    @contextmanager
    def eager_checkpoints(self) -> Iterator[None]:
        """While open, a large commit is written once, into the file, and not into the WAL too."""
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
        """A new connection that uses one of the files."""
        assert self._connection is not None, "a file is attached"
        cursor = self._connection.cursor()
        cursor.execute(f"use {name}")
        return cursor

    def hold(self) -> None:
        """Before a fork: blocks attaching until the fork is over; closes an instance without files."""
        self._lock.acquire()
        if self._connection is not None and not self._attached:
            self._connection.close()
            self._connection = None

    def go_on(self) -> None:
        """After a fork, in the parent: allows attaching again."""
        self._lock.release()

    def start_anew(self) -> None:
        """After a fork, in the child: starts without an instance."""
        self._lock = threading.Lock()
        if self._connection is not None:
            forks.leave_to_parent([self._connection])
        self._connection, self._attached = None, 0


instance = ProcessInstance()
