"""TransactionLife: what Python and Spark transactions share: an id, one `with` block, one end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

from deltalakedb.exceptions import DeltaError
from deltalakedb.runtime import forks

State = Literal["open", "unknown", "committed", "failed", "rolled back", "aborted"]
"""`unknown`: a commit was tried, and its outcome is not known yet."""


class TransactionLife(ABC):
    """A transaction is open until it is committed or given up. Its block is entered once; leaving it commits, or
    gives up if an error is raised."""

    def __init__(self, txn_id: str, message: str | None) -> None:
        self.txn_id = txn_id
        self.message = message
        self.result: dict[str, int] = {}
        """The last version of each table by name, once the transaction is committed."""
        self._state: State = "open"
        self._entered = False
        self._generation = forks.generation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.txn_id!r}, {self._state})"

    def __enter__(self) -> Self:
        if self._entered:
            raise DeltaError(f"transaction {self.txn_id} was entered before; begin another one")
        self._check_open()
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "open" or not self._is_ours:  # ended inside the block, or by the parent of a fork
            return
        if error is None:
            self.commit()
        else:
            self._give_up(error)

    @abstractmethod
    def commit(self) -> dict[str, int]:
        """Commit everything in one SQL transaction; return the last version of each table."""

    @abstractmethod
    def _give_up(self, error: BaseException) -> None:
        """End the transaction after the block raised an error; the error propagates."""

    @property
    def is_open(self) -> bool:
        """Whether the transaction accepts statements."""
        return self._state == "open"

    @property
    def is_undecided(self) -> bool:
        """Whether a commit was tried whose outcome is unknown; call `commit()` again to find out."""
        return self._state == "unknown"

    @property
    def _is_ours(self) -> bool:
        """Whether this process began the transaction. After a fork it belongs to the parent: only one may end it."""
        return self._generation == forks.generation

    def _check_open(self) -> None:
        if not self._is_ours:
            raise DeltaError(
                f"transaction {self.txn_id} was begun before this process was forked off, and is its parent's; begin "
                "another one in the child"
            )
        if self._state == "open":
            return
        ended = "may or may not be committed: commit() again tells" if self._state == "unknown" else f"is {self._state}"
        raise DeltaError(f"transaction {self.txn_id} {ended}; begin another one for further statements")

    def _check_can_end(self) -> None:
        """Raise if the transaction has ended; commit() may be called again while its outcome is unknown."""
        if self._state != "unknown" or not self._is_ours:
            self._check_open()


@contextmanager
def hold(lock: threading.Lock, txn_id: str) -> Iterator[None]:
    """Hold a transaction's lock, which is never waited for: a transaction belongs to one thread at a time."""
    if not lock.acquire(blocking=False):
        raise DeltaError(
            f"transaction {txn_id} is used by two threads at once; give each thread a transaction of its own"
        )
    try:
        yield
    finally:
        lock.release()
