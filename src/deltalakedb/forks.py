"""Owns what a fork does to this process: a child has its parent's memory, but none of its threads.

What a parent has opened (databases, connections, streams) is neither used nor closed nor destroyed in a child. Closing
a connection would speak on the parent's socket, and destroying a database would wait for threads that are not there.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Final

WAIT_SECONDS: Final = 5.0
"""How long a fork waits for other threads that are inside of a database: its locks would stay locked in the child."""

_generation = 0


def generation() -> int:
    """How many forks lie between this process and the one that imported the package: what an ancestor has opened has a
    smaller number. Unlike a process id it is never given out again."""
    return _generation


def leave_to_parent(objects: Iterable[object]) -> None:
    """Keep objects for ever: Python destroys what nothing refers to, and at its end everything else."""
    for one in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def at_fork(
    *,
    before: Callable[[], None] | None = None,
    after_in_parent: Callable[[], None] | None = None,
    after_in_child: Callable[[], None] | None = None,
) -> None:
    """`os.register_at_fork`, on systems that fork."""
    if not hasattr(os, "register_at_fork"):
        return
    calls = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    os.register_at_fork(**{name: call for name, call in calls.items() if call is not None})


def _count() -> None:
    global _generation
    _generation += 1


at_fork(after_in_child=_count)
