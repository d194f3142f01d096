"""Syncs files and folders to disk, several at a time.

A journaling file system commits once for all requests that arrive while it works: a file and its folder synced
concurrently take as long as one of them (measured on a busy ext4: 2.2 ms instead of 8).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from deltalakedb.runtime import forks

_THREADS: Final = 8


def sync_all(paths: Sequence[str]) -> None:
    """Sync all of these files and folders to disk."""
    futures = [_pool().submit(_sync, path) for path in paths[1:]]
    try:
        for path in paths[:1]:
            _sync(path)
    finally:
        errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise errors[0]


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, and sync their names to disk."""
    missing = []
    parent = path
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    os.makedirs(path, exist_ok=True)
    sync_all([os.path.dirname(folder) for folder in missing])


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="deltalakedb-sync")


def _after_fork() -> None:
    """Drop the pool in a forked child, which has none of its threads."""

    if _pool.cache_info().currsize:
        forks.leave_to_parent([_pool()])
        _pool.cache_clear()


forks.at_fork(after_in_child=_after_fork)


def _sync(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        error.filename = path
        raise
