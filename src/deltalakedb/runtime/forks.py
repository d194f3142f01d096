"""Handles forks of this process: a child has its parent's memory, but none of its threads.

A child does not use, close or destroy what its parent opened (databases, connections, streams). Closing a connection
would write to the parent's socket, and destroying a database would wait for threads that do not exist.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Final

WAIT_SECONDS: Final = 5.0
"""How long a fork waits for threads that are inside a database, because their locks would stay locked in the child."""

generation = 0
"""How many forks are between this process and the one that imported the package: read it as `forks.generation`. Objects
opened by an ancestor have a smaller number. Unlike a process id, it is never reused."""


def leave_to_parent(objects: Iterable[object]) -> None:
    """Keep objects for ever: Python would destroy them when nothing refers to them, or when it exits."""
    for item in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


def at_fork(
    *,
    before: Callable[[], None] | None = None,
    after_in_parent: Callable[[], None] | None = None,
    after_in_child: Callable[[], None] | None = None,
) -> None:
    """Call `os.register_at_fork`, on systems that have it."""
    if not hasattr(os, "register_at_fork"):
        return
    calls = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    os.register_at_fork(**{name: call for name, call in calls.items() if call is not None})


def _count() -> None:
    global generation
    generation += 1


at_fork(after_in_child=_count)
