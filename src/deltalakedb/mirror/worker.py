"""The threads a process mirrors with behind its commits: tasks by key, each at its time, a key never twice at once."""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

logger = logging.getLogger(__name__)

EXIT_SECONDS = 5.0
"""How long a process that ends waits for what its threads still have to do."""

Key: TypeAlias = tuple[Hashable, ...]
"""Its first part is the owner: all tasks of an owner can be awaited or dropped together."""


@dataclass(slots=True)
class _Task:
    run: Callable[[], None]
    due: float
    number: int = 0


@dataclass(slots=True)
class _State:
    """Everything that must not survive a fork: the child has none of the threads."""

    pid: int
    changed: threading.Condition = field(init=False)
    """For who waits until tasks are done; its lock guards everything here."""
    work: threading.Condition = field(init=False)
    """For threads that have nothing to do; on the same lock."""
    waiting: dict[Key, _Task] = field(default_factory=dict)
    order: list[tuple[float, int, Key]] = field(default_factory=list)
    running: set[Key] = field(default_factory=set)
    num_threads: int = 0
    wakes: dict[int, float] = field(default_factory=dict)
    """By idle thread, when it looks for work by itself."""

    def __post_init__(self) -> None:
        lock = threading.RLock()
        self.changed, self.work = threading.Condition(lock), threading.Condition(lock)

    def wake_for(self, due: float) -> None:
        """See that an idle thread, if there is one, looks when something is due: each one woken costs a switch."""
        if self.wakes and min(self.wakes.values()) > due:
            self.work.notify()


class Worker:
    """Daemon threads, started when there is something to do and ended when there has been nothing for a while."""

    def __init__(self, name: str, *, max_threads: int, idle_seconds: float = 10.0) -> None:
        self._name = name
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._numbers = itertools.count()
        self._state = _State(os.getpid())

    def schedule(self, key: Key, run: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Run a task after a while. One that waits under the same key stays, and comes no later than this one would."""
        due = time.monotonic() + delay_seconds
        state = self._own_state()
        with state.changed:
            known = state.waiting.get(key)
            if known is not None and known.due <= due:
                return
            self._enqueue(state, key, _Task(run, due))

    def _enqueue(self, state: _State, key: Key, task: _Task) -> None:
        task.number = next(self._numbers)
        state.waiting[key] = task
        heapq.heappush(state.order, (task.due, task.number, key))
        if not state.wakes and state.num_threads < self._max_threads:
            self._start_thread(state)
        state.wake_for(task.due)

    def _start_thread(self, state: _State) -> None:
        name = f"{self._name}-{state.num_threads}"
        state.num_threads += 1
        try:
            threading.Thread(target=self._work, args=(state,), name=name, daemon=True).start()
        except RuntimeError:  # the interpreter is ending: whoever waits runs what is left by himself
            state.num_threads -= 1

    def _own_state(self) -> _State:
        if self._state.pid != os.getpid():
            self._state = _State(os.getpid())
        return self._state

    # -- the threads

    def _work(self, state: _State) -> None:
        while True:
            with state.changed:
                taken = self._take(state)
            if taken is None:
                return
            key, task = taken
            try:
                task.run()
            except Exception:  # a task handles its own failures; one that does not must not end the thread
                logger.exception("a task of the mirror failed: %s", key[1:])
            finally:
                with state.changed:
                    state.running.discard(key)
                    state.changed.notify_all()

    def _take(self, state: _State) -> tuple[Key, _Task] | None:
        """The next task that is due and whose key nobody works on; None when there has been none for a while."""
        idle_until = time.monotonic() + self._idle_seconds
        while True:
            now = time.monotonic()
            found = self._pop_due(state, now)
            if found is not None:
                state.running.add(found[0])
                # The next one must not wait for the end of this one.
                if state.order:
                    more = state.order[0][0] <= now
                    if more and not state.wakes and state.num_threads < self._max_threads:
                        self._start_thread(state)
                    state.wake_for(state.order[0][0])
                return found
            next_due = state.order[0][0] if state.order else None
            if next_due is None and now >= idle_until:
                state.num_threads -= 1
                return None
            # A task that is due but whose key is busy waits for the notice that the key is free.
            until = idle_until if next_due is None else next_due if next_due > now else now + 1.0
            state.wakes[threading.get_ident()] = until
            state.work.wait(until - now)
            del state.wakes[threading.get_ident()]

    def _pop_due(self, state: _State, now: float) -> tuple[Key, _Task] | None:
        busy: list[tuple[float, int, Key]] = []
        found: tuple[Key, _Task] | None = None
        while state.order and state.order[0][0] <= now and found is None:
            entry = heapq.heappop(state.order)
            task = state.waiting.get(entry[2])
            if task is None or task.number != entry[1]:
                continue  # dropped, or moved to an earlier time
            if entry[2] in state.running:
                busy.append(entry)
                continue
            del state.waiting[entry[2]]
            found = entry[2], task
        for entry in busy:
            heapq.heappush(state.order, entry)
        return found

    # -- waiting, dropping

    def finish(self, owner: Hashable, timeout_seconds: float, *, within_seconds: float = 0.5) -> bool:
        """Run what an owner has due soon, at once, and wait for it; whether nothing of it is left.

        What is due later is a further try of something that failed: nobody who wants to leave waits for that.
        """
        state = self._own_state()
        deadline = time.monotonic() + timeout_seconds
        with state.changed:
            while True:
                now = time.monotonic()
                mine = [
                    key for key, task in state.waiting.items() if key[0] == owner and task.due <= now + within_seconds
                ]
                for key in mine:
                    if state.waiting[key].due > now:
                        self._enqueue(state, key, _Task(state.waiting[key].run, now))
                if not mine and not any(key[0] == owner for key in state.running):
                    return True
                if now >= deadline or not state.num_threads:
                    return False
                state.changed.wait(deadline - now)

    def drop(self, owner: Hashable) -> None:
        """Forget what an owner has waiting; what runs goes on."""
        state = self._own_state()
        with state.changed:
            for key in [key for key in state.waiting if key[0] == owner]:
                del state.waiting[key]


mirroring = Worker("deltalakedb-mirror", max_threads=4)
"""Commits and marks: nothing here may take long, or the mirror falls behind."""

maintaining = Worker("deltalakedb-checkpoints", max_threads=1)
"""Checkpoints, checksums and clean-up, which no commit waits for."""


# -- the end of the process, and its forks


class Owner(Protocol):
    """Whoever has tasks here."""

    def close(self, timeout_seconds: float = EXIT_SECONDS) -> None: ...

    def after_fork(self) -> None: ...


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def close_at_exit(owner: Owner) -> None:
    """Have `owner.close` called when the process ends, if it still exists then, and `after_fork` in a child."""
    _owners.add(owner)


def _close_all() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    for owner in list(_owners):
        owner.close(max(0.0, deadline - time.monotonic()))


def _after_fork() -> None:
    for owner in list(_owners):
        owner.after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
