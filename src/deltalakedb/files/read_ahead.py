"""Reads the next batch of a stream while the current one is processed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(batches: Iterable[T], *, is_large: Callable[[T], bool]) -> Generator[T, None, None]:
    """The batches in order. After a large one the next is fetched in a thread, so that two are in memory."""
    iterator = iter(batches)
    for batch in iterator:
        if is_large(batch):
            pending = _Fetch(iterator)
            break
        yield batch
    else:
        return
    yield from _ahead(iterator, batch, pending)


def _ahead(iterator: Iterator[T], first: T, pending: _Fetch[T]) -> Generator[T, None, None]:
    try:
        yield first
        while pending.wait():
            fetched = pending
            pending = _Fetch(iterator)
            yield from fetched.batch
    finally:
        pending.join()


class _Fetch(Generic[T]):
    """Fetches one batch in a thread of its own, whose cost is negligible for a batch of thousands of rows."""

    def __init__(self, iterator: Iterator[T]) -> None:
        self.batch: tuple[T, ...] = ()
        self._error: BaseException | None = None
        self._iterator = iterator
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="deltalakedb-read-ahead")
        try:
            self._thread.start()
        except RuntimeError:  # the process is ending, and no thread can be started
            self._thread = None
            self._run()

    def wait(self) -> bool:
        """Wait for the batch; False if there is none left. Raises the thread's error."""
        self.join()
        if self._error is not None:
            raise self._error
        return bool(self.batch)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.batch = (next(self._iterator),)
        except StopIteration:
            pass
        except BaseException as error:
            self._error = error
