"""Runs bulk inserts on a second thread, in order, while the caller prepares the next rows."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

import pyarrow as pa

MAX_WAITING = 4
"""The most inserts running or waiting: the rows of two batches of files and of their bounds."""


class Inserter(Protocol):
    """Accepts rows for a table: a connection, or a pipeline in front of one."""

    def insert(self, table: str, rows: pa.Table) -> None: ...


class InsertPipeline:
    """Passes rows to a connection that is not used otherwise meanwhile; few inserts wait, so memory stays bounded.

    Reading a checkpoint and computing bounds is our work, building indexes the database's. In parallel they take the
    time of the longer one.
    """

    def __init__(self, inserter: Inserter) -> None:
        self._inserter = inserter
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-insert")
        self._waiting: deque[Future[None]] = deque()

    def insert(self, table: str, rows: pa.Table) -> None:
        """Queues an insert; waits if too many are queued. Its error is raised here or at the end of the block."""
        self._finish(MAX_WAITING - 1)
        self._waiting.append(self._executor.submit(self._inserter.insert, table, rows))

    def __enter__(self) -> "InsertPipeline":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish(0)
        finally:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _finish(self, left: int) -> None:
        """Waits until at most `left` inserts are unfinished."""
        while len(self._waiting) > left:
            self._waiting.popleft().result()
