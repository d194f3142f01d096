"""Bulk inserts on a second thread, in order, while the caller prepares the rows that come next."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

import pyarrow as pa


class Inserter(Protocol):
    """Anything that takes rows for a table: a connection, or a pipeline in front of one."""

    def insert(self, table: str, rows: pa.Table) -> None: ...


class InsertPipeline:
    """Hands rows to a connection that nobody else uses meanwhile; one insert runs at a time, so memory stays bounded.

    Reading a checkpoint and computing bounds is our work, building indexes the database's: done at once they take
    the time of the longer one.
    """

    def __init__(self, inserter: Inserter) -> None:
        self._inserter = inserter
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-insert")
        self._running: Future[None] | None = None

    def insert(self, table: str, rows: pa.Table) -> None:
        """Start the insert once the one before is done; its error is raised here or at the end of the block."""
        self._finish()
        self._running = self._executor.submit(self._inserter.insert, table, rows)

    def __enter__(self) -> "InsertPipeline":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._executor.shutdown(wait=True)

    def _finish(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()
