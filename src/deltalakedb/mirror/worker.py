"""Background threads of the mirror: tasks with a key and a due time; a key never runs twice at once."""

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
"""How long an ending process waits for its tasks."""

Key: TypeAlias = tuple[Hashable, ...]
"""The first part is the owner: all tasks of an owner can be awaited or dropped together."""


@dataclass(slots=True)
class _Task:
    run: Callable[[], None]
    due: float
    number: int = 0


@dataclass(slots=True)
class _State:
    """State that must not survive a fork, because the child has none of the threads."""

    pid: int
    changed: threading.Condition = field(init=False)
    """Signals callers that wait for tasks to finish; its lock guards everything here."""
    work: threading.Condition = field(init=False)
    """Signals idle threads; uses the same lock."""
    waiting: dict[Key, _Task] = field(default_factory=dict)
    order: list[tuple[float, int, Key]] = field(default_factory=list)
    running: set[Key] = field(default_factory=set)
    num_threads: int = 0
    wakes: dict[int, float] = field(default_factory=dict)
    """When each idle thread will look for work by itself."""

    def __post_init__(self) -> None:
        lock = threading.RLock()
        self.changed, self.work = threading.Condition(lock), threading.Condition(lock)

    def wake_for(self, due: float) -> None:
        """Wake one idle thread if none would look by `due`; only one, because each wake-up costs a context switch."""
        if self.wakes and min(self.wakes.values()) > due:
            self.work.notify()


class Worker:
    """A pool of daemon threads, started when there is work and ended after `idle_seconds` without any."""

    def __init__(self, name: str, *, max_threads: int, idle_seconds: float = 10.0) -> None:
        self._name = name
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._numbers = itertools.count()
        self._state = _State(os.getpid())

    def schedule(self, key: Key, run: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Run a task after a delay. If a task waits under the same key, keep the one that is due first."""
        due = time.monotonic() + delay_seconds
        state = self._own_state()
        with state.changed:
            waiting = state.waiting.get(key)
            if waiting is not None and waiting.due <= due:
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
        except RuntimeError:  # the interpreter is ending: without threads `finish` does not wait
            state.num_threads -= 1

    def _own_state(self) -> _State:
        if self._state.pid != os.getpid():
            self._state = _State(os.getpid())
        return self._state

    # -- the threads

    def _work(self, state: _State) -> None:
        while True:
            with state.changed:
                entry = self._take(state)
            if entry is None:
                return
            key, task = entry
            try:
                task.run()
            except Exception:  # a task handles its own failures; one that does not must not end the thread
                logger.exception("a task of the mirror failed: %s", key[1:])
            finally:
                with state.changed:
                    state.running.discard(key)
                    state.changed.notify_all()

    def _take(self, state: _State) -> tuple[Key, _Task] | None:
        """Wait for the next task that is due and whose key is not running; None after `idle_seconds` without one."""
        idle_until = time.monotonic() + self._idle_seconds
        while True:
            now = time.monotonic()
            entry = self._pop_due(state, now)
            if entry is not None:
                state.running.add(entry[0])
                # The next task must not wait for the end of this one.
                if state.order:
                    is_due = state.order[0][0] <= now
                    if is_due and not state.wakes and state.num_threads < self._max_threads:
                        self._start_thread(state)
                    state.wake_for(state.order[0][0])
                return entry
            next_due = state.order[0][0] if state.order else None
            if next_due is None and now >= idle_until:
                state.num_threads -= 1
                return None
            # A task that is due while its key is running is checked again within a second.
            wake_at = idle_until if next_due is None else next_due if next_due > now else now + 1.0
            state.wakes[threading.get_ident()] = wake_at
            state.work.wait(wake_at - now)
            del state.wakes[threading.get_ident()]

    def _pop_due(self, state: _State, now: float) -> tuple[Key, _Task] | None:
        busy: list[tuple[float, int, Key]] = []
        next_task: tuple[Key, _Task] | None = None
        while state.order and state.order[0][0] <= now and next_task is None:
            entry = heapq.heappop(state.order)
            task = state.waiting.get(entry[2])
            if task is None or task.number != entry[1]:
                continue  # dropped, or replaced by an earlier task
            if entry[2] in state.running:
                busy.append(entry)
                continue
            del state.waiting[entry[2]]
            next_task = entry[2], task
        for entry in busy:
            heapq.heappush(state.order, entry)
        return next_task

    # -- waiting, dropping

    def finish(self, owner: Hashable, timeout_seconds: float, *, within_seconds: float = 0.5) -> bool:
        """Run an owner's tasks that are due soon, at once, and wait for them; return whether none is left.

        Tasks that are due later are retries of failures, and a closing process does not wait for them.
        """
        state = self._own_state()
        deadline = time.monotonic() + timeout_seconds
        with state.changed:
            while True:
                now = time.monotonic()
                due_keys = [
                    key for key, task in state.waiting.items() if key[0] == owner and task.due <= now + within_seconds
                ]
                for key in due_keys:
                    if state.waiting[key].due > now:
                        self._enqueue(state, key, _Task(state.waiting[key].run, now))
                if not due_keys and not any(key[0] == owner for key in state.running):
                    return True
                if now >= deadline or not state.num_threads:
                    return False
                state.changed.wait(deadline - now)

    def drop(self, owner: Hashable) -> None:
        """Drop an owner's waiting tasks; running ones continue."""
        state = self._own_state()
        with state.changed:
            for key in [key for key in state.waiting if key[0] == owner]:
                del state.waiting[key]


mirroring = Worker("deltalakedb-mirror", max_threads=4)
"""Puts commits and writes marks. Tasks here must be short, or the mirror falls behind."""

maintaining = Worker("deltalakedb-checkpoints", max_threads=1)
"""Checkpoints, checksums and clean-up, which no commit waits for."""


# -- process exit and fork


class Owner(Protocol):
    """An object that owns tasks."""

    def close(self, timeout_seconds: float = EXIT_SECONDS) -> None: ...

    def after_fork(self) -> None: ...


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def close_at_exit(owner: Owner) -> None:
    """Call `owner.close` when the process ends, if the owner still exists, and `owner.after_fork` in a forked child."""
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
