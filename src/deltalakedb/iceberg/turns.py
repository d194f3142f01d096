"""Turns: which requests of this process may change which Iceberg tables next, and which of them together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from deltalakedb.runtime.backoff import Backoff
from deltalakedb.store.proposals import NameKey

ATTEMPTS: Final = 24
"""How often a commit that lost a race is applied again to the newer metadata."""

LOST_RACES: Final = Backoff(0.01, 0.5, 0.5)

TURN_SECONDS: Final = 10.0
"""How long a request waits for others of this process before it races with them."""

MAX_TOGETHER: Final = 32
"""How many requests are committed together at most."""


class Waiter:
    """A request that waits for its turn at some tables."""

    def __init__(self, keys: Iterable[NameKey]) -> None:
        self.keys = frozenset(keys)
        self.is_joined = False
        """Whether another request's thread decides this one too."""
        self.woken = threading.Event()
        """Set when it is this request's turn, or when it was decided."""


W = TypeVar("W", bound=Waiter)


class Turns(Generic[W]):
    """Lets requests of this process that change the same tables go one after another: of commits that race, all but
    one are lost.

    Those that wait for no other tables than the one whose turn it is are handed to it. Commits of other processes are
    not waited for; SQL decides.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[NameKey] = set()
        self._waiting: list[Waiter] = []
        self._groups: dict[Waiter, list[W]] = {}
        """The requests whose turn it is, and those that may go together with each, itself included."""

    @property
    def waiting(self) -> tuple[Waiter, ...]:
        """The requests that wait, in their order."""
        return tuple(self._waiting)

    @contextmanager
    def take(self, keys: set[NameKey], seconds: float = TURN_SECONDS) -> Iterator[None]:
        """Waits until nobody else changes these tables, or for so long."""
        waiter = Waiter(keys)
        has_turn = self._wait(waiter, seconds)
        try:
            yield
        finally:
            if has_turn:
                self._end(waiter)

    @contextmanager
    def lead(self, request: W, seconds: float = TURN_SECONDS) -> Iterator[Sequence[W]]:
        """Waits for the turn of a request; yields the requests that the caller is to decide, this one first.

        There are none if another thread has decided it meanwhile.
        """
        has_turn = self._wait(request, seconds)
        if request.is_joined:
            yield ()
            return
        group: Sequence[W] = self._groups[request] if has_turn else [request]
        try:
            yield group
        finally:
            if has_turn:
                self._end(request)
            for other in group[1:]:
                other.woken.set()

    def _wait(self, waiter: Waiter, seconds: float) -> bool:
        """Return whether it is the request's turn; if not, it was decided, or waited for too long."""
        with self._lock:
            self._waiting.append(waiter)
            self._grant()
        if not waiter.woken.wait(seconds):
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    self._grant()
                    return False
            waiter.woken.wait()  # its turn came just now, or another thread is deciding it
        return not waiter.is_joined

    def _end(self, waiter: Waiter) -> None:
        with self._lock:
            del self._groups[waiter]
            self._taken -= waiter.keys
            self._grant()

    def _grant(self) -> None:
        """Give turns to the requests whose tables nobody has, and that came before all others for these tables."""
        blocked = set(self._taken)
        for waiter in list(self._waiting):
            if not waiter.is_joined and waiter.keys.isdisjoint(blocked):
                self._waiting.remove(waiter)
                self._taken |= waiter.keys
                self._groups[waiter] = self._group_of(waiter)
                waiter.woken.set()
            blocked |= waiter.keys

    def _group_of(self, leader: Waiter) -> list[W]:
        """Return a request with those that wait for no other tables; requests that `take` handles go alone."""
        if type(leader) is Waiter:
            return []
        others = [one for one in self._waiting if type(one) is type(leader) and one.keys <= leader.keys]
        for other in others[: MAX_TOGETHER - 1]:
            other.is_joined = True
            self._waiting.remove(other)
        return [leader, *others[: MAX_TOGETHER - 1]]  # type: ignore[list-item]  # all that lead are of one class
