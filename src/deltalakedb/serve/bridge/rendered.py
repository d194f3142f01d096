"""A cache of rendered commits: Spark reads each a few times, and they never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from deltalakedb.store.registry import TableRow
from deltalakedb.store.rewind import RESOLUTIONS

MAX_BYTES = 64 * 1024 * 1024
MAX_SIZES = 100_000


@dataclass(frozen=True, slots=True)
class Rendered:
    """The bytes of `N.json` as a bridged session reads them, and when it was committed."""

    data: bytes
    modified_ms: int


class RenderedCommits:
    """Holds texts up to a number of bytes; the least recently used goes first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._texts: OrderedDict[tuple[str, object, int], Rendered] = OrderedDict()
        self._sizes: dict[tuple[str, object, int], int] = {}
        self._lock = threading.Lock()

    def size(self, table: TableRow, version: int) -> int | None:
        """The length of a text that was rendered before, even if the text itself is no longer cached."""
        return self._sizes.get(_key(table, version))

    def get(self, table: TableRow, version: int) -> Rendered | None:
        with self._lock:
            text = self._texts.get(_key(table, version))
            if text is not None:
                self._texts.move_to_end(_key(table, version))
            return text

    def put(self, table: TableRow, version: int, text: Rendered) -> None:
        with self._lock:
            if len(self._sizes) >= MAX_SIZES:
                self._sizes.clear()
            self._sizes[_key(table, version)] = len(text.data)
            if len(text.data) > self._max_bytes // 2:
                return
            before = self._texts.pop(_key(table, version), None)
            self._bytes += len(text.data) - (len(before.data) if before else 0)
            self._texts[_key(table, version)] = text
            while self._bytes > self._max_bytes:
                _, evicted = self._texts.popitem(last=False)
                self._bytes -= len(evicted.data)


def _key(table: TableRow, version: int) -> tuple[str, object, int]:
    """Versions change only when `dl mirror resolve` takes in a foreign commit, and records that in the registry."""
    return table.table_uuid, table.properties.get(RESOLUTIONS), version
