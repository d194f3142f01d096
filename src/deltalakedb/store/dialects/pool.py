"""A bounded pool of connections: last in, first out, so that few stay warm."""

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from deltalakedb.exceptions import StoreBusyError, StoreError

C = TypeVar("C")

# Connections a fork carried into this process: closing them would speak on the parent's socket or drop its locks.
_inherited: list[object] = []


class Pool(Generic[C]):
    """At most `size` open connections; a taker waits, at most `timeout_seconds`."""

    def __init__(
        self, connect: Callable[[], C], close: Callable[[C], None], *, size: int, timeout_seconds: float, what: str
    ) -> None:
        if size < 1:
            raise ValueError("a pool holds at least one connection")
        self._connect = connect
        self._close = close
        self._size = size
        self._timeout_seconds = timeout_seconds
        self._what = what
        self._reset()
        self._closed = False

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[C] = []
        self._open = 0

    def take(self) -> tuple[C, bool]:
        """A connection, and whether it was used before (then its server may have gone since)."""
        if os.getpid() != self._pid:
            _inherited.extend(self._idle)
            self._reset()
        deadline = time.monotonic() + self._timeout_seconds
        with self._changed:
            while True:
                if self._closed:
                    raise StoreError(f"{self._what} is closed")
                if self._idle:
                    return self._idle.pop(), True
                if self._open < self._size:
                    self._open += 1
                    break
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise StoreBusyError(
                        f"{self._what}: all {self._size} connections stayed in use for {self._timeout_seconds:g} "
                        "seconds; finish a read or write block, or raise max_connections"
                    )
        try:
            return self._connect(), False
        except BaseException:
            self._forget()
            raise

    def give(self, connection: C, *, broken: bool = False) -> None:
        """Return a connection; a broken one is closed and makes room for a new one."""
        with self._changed:
            keep = not (broken or self._closed) and os.getpid() == self._pid
            if keep:
                self._idle.append(connection)
                self._changed.notify()
        if not keep:
            self._close(connection)
            self._forget()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        if os.getpid() != self._pid:
            _inherited.extend(idle)
            return
        for connection in idle:
            self._close(connection)

    @property
    def open_connections(self) -> int:
        return self._open

    def _forget(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()
