"""A bounded pool of connections: last in, first out, so that few stay warm."""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from deltalakedb.exceptions import StoreBusyError, StoreClosedError
from deltalakedb.runtime import forks

C = TypeVar("C")


class Pool(Generic[C]):
    """At most `size` open connections; `take` waits up to `timeout_seconds` for one."""

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
        _pools.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[C] = []
        self._taken: dict[int, tuple[C, int]] = {}
        """The connections in use, and the threads that use them, by the connections' ids."""
        self._open = 0
        self._is_forking = False

    def take(self) -> tuple[C, bool]:
        """Returns a connection, and whether it was used before (its server may have closed it since)."""
        deadline = time.monotonic() + self._timeout_seconds
        with self._changed:
            while True:
                if self._closed:
                    raise StoreClosedError(f"{self._what} is closed")
                if not self._is_forking or self._is_user(threading.get_ident()):
                    if self._idle:
                        connection = self._idle.pop()
                        self._taken[id(connection)] = connection, threading.get_ident()
                        return connection, True
                    if self._open < self._size:
                        self._open += 1
                        break
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise StoreBusyError(
                        f"{self._what}: all {self._size} connections stayed in use for {self._timeout_seconds:g} "
                        "seconds; finish a read or write block, or raise max_connections"
                    )
        try:
            connection = self._connect()
        except BaseException:
            self._forget()
            raise
        with self._changed:
            self._taken[id(connection)] = connection, threading.get_ident()
            self._changed.notify_all()
            return connection, False

    def _is_user(self, thread: int) -> bool:
        return any(user == thread for _, user in self._taken.values())

    def owns(self, connection: C) -> bool:
        """Whether this process opened it; a connection inherited through a fork belongs to the parent."""
        return id(connection) in self._taken

    def give(self, connection: C, *, broken: bool = False) -> None:
        """Returns a connection to the pool; a broken one is closed and makes room for a new one."""
        with self._changed:
            if self._taken.pop(id(connection), None) is None:
                return
            keep = not (broken or self._closed)
            if keep:
                self._idle.append(connection)
            self._changed.notify_all()
        if not keep:
            self._close(connection)
            self._forget()

    def close(self) -> None:
        """Closes idle connections now, and those in use when they are returned."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for connection in idle:
            self._close(connection)

    @property
    def open_connections(self) -> int:
        return self._open

    def _forget(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()

    # -- forks

    def hold(self, deadline: float) -> bool:
        """Before a fork: waits for the connections of other threads, and lends no more. Returns whether it is held."""
        if not self._changed.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        me = threading.get_ident()
        self._is_forking = True  # threads without a connection wait until the fork is over

        def is_quiet() -> bool:
            opening = self._open - len(self._idle) - len(self._taken)
            return not opening and all(thread == me for _, thread in self._taken.values())

        self._changed.wait_for(is_quiet, max(0.0, deadline - time.monotonic()))
        self._is_forking = False
        return True

    def go_on(self) -> None:
        """After a fork, in the parent: lends connections again."""
        self._changed.notify_all()
        self._changed.release()

    def start_anew(self) -> None:
        """After a fork, in the child: forgets all connections; closing one would disturb the parent's socket or
        locks."""
        forks.leave_to_parent((*self._idle, *(connection for connection, _ in self._taken.values())))
        self._reset()


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_forking = threading.local()


def _hold_all() -> None:
    deadline = time.monotonic() + forks.WAIT_SECONDS
    _forking.held = [pool for pool in list(_pools) if pool.hold(deadline)]


def _release_all() -> None:
    for pool in _forking.held:
        pool.go_on()
    _forking.held = []


def _start_anew() -> None:
    _forking.held = []
    for pool in list(_pools):
        pool.start_anew()


forks.at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_start_anew)
