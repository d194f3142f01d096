"""Reads a stream in a thread of its own, ahead of its consumer, so that decoding and encoding overlap."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T], size_of: Callable[[T], int], limit_bytes: int) -> Generator[T, None, None]:
    """Yield the items in order; at most `limit_bytes` of them wait to be consumed, or a single item."""
    stream = _Stream(items, size_of, limit_bytes)
    thread = threading.Thread(target=stream.fill, name="deltalakedb-ahead", daemon=True)
    thread.start()
    try:
        yield from stream.drain()
    finally:
        stream.stop()
        thread.join()


class _Stream(Generic[T]):
    def __init__(self, items: Iterable[T], size_of: Callable[[T], int], limit_bytes: int) -> None:
        self._items = items
        self._size_of = size_of
        self._limit = limit_bytes
        self._waiting: deque[T] = deque()
        self._bytes = 0
        self._is_over = False
        self._is_stopped = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def fill(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        size = self._size_of(item)
        with self._changed:
            while self._waiting and self._bytes + size > self._limit and not self._is_stopped:
                self._changed.wait()
            self._waiting.append(item)
            self._bytes += size
            self._changed.notify_all()
            return not self._is_stopped

    def drain(self) -> Generator[T, None, None]:
        while True:
            with self._changed:
                while not self._waiting and not self._is_over:
                    self._changed.wait()
                if not self._waiting:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._waiting.popleft()
                self._bytes -= self._size_of(item)
                self._changed.notify_all()
            yield item

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
