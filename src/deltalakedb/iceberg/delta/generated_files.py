"""Writes the files that are made for Iceberg clients of a Delta table into its folder `_iceberg`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from deltalakedb.iceberg.delta.delta_snapshots import FOLDER
from deltalakedb.iceberg.locations import to_iceberg
from deltalakedb.storage.location import open_storage

WRITERS: Final = 16
HELD_BYTES: Final = 32 * 2**20
"""How much is held in memory before it is written to an object store."""


class GeneratedFiles:
    """Files of one table under names that no other writer uses; they are durable after `sync`."""

    def __init__(self, location: str, options: Mapping[str, str] | None) -> None:
        self._storage = open_storage(location, options)
        self._folder = f"{to_iceberg(location)}/{FOLDER}"
        self._held: dict[str, bytes] = {}
        self._held_bytes = 0
        self._names: list[str] = []
        self.num_bytes = 0

    def write(self, name: str, content: bytes) -> str:
        """Write a file, now or until `sync`; return its path as clients read it."""
        path = f"{FOLDER}/{name}"
        self._names.append(path)
        self.num_bytes += len(content)
        if self._storage.is_remote:
            self._held[path] = content
            self._held_bytes += len(content)
            if self._held_bytes > HELD_BYTES:
                self._put_held()
        else:
            self._storage.put(path, content)
        return f"{self._folder}/{name}"

    def _put_held(self) -> None:
        held, self._held, self._held_bytes = self._held, {}, 0
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="deltalakedb-iceberg-write") as pool:
            for future in [pool.submit(self._storage.put, path, content) for path, content in held.items()]:
                future.result()

    def sync(self) -> None:
        """Make all files durable."""
        if self._held:
            self._put_held()
        if self._names:
            self._storage.sync(self._names)

    def discard(self, paths: Iterable[str] | None = None) -> None:
        """Delete files by their paths, or all: another process has written others instead."""
        prefix = len(self._folder) - len(FOLDER)
        names = self._names if paths is None else [path[prefix:] for path in paths]
        self._held = {}
        self._storage.delete(*names, with_checksums=False)
