"""OpenTransactions: the transactions of an endpoint's clients, and their outcomes, which can be asked for again."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, EndpointBusyError, GoneError, OutcomeUnknownError, StoreError, redact
from deltalakedb.runtime.steps import reached
from deltalakedb.serve.bridge.overlay import Leftovers
from deltalakedb.transactions.commit import resolve_outcome
from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_OPEN = 1_000
REMEMBERED = 10_000
REMEMBER_SECONDS = 3_600.0
"""How long outcomes stay cached; after that they are read from SQL."""


@dataclass(eq=False)
class OpenTransaction:
    """An open transaction; its calls run one at a time, in the order in which they came."""

    tx: CatalogTransaction
    seen: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Taken before a worker thread is, so that calls waiting for a long commit do not hold all threads."""
    locations: set[str] = field(default_factory=set)
    """Tables under which Spark may have left files of this transaction."""

    @property
    def txn(self) -> str:
        return to_id(self.tx.txn_id)


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a transaction: versions, or the error that says why there are none."""

    at: float
    txn_id: str
    versions: dict[str, int] | None = None
    error: DeltaError | None = None


def to_id(txn_id: str) -> str:
    """The id of a transaction in paths and URIs: an authority begins with a letter and has no dashes."""
    return "t" + uuid.UUID(txn_id).hex


def to_txn_id(txn: str) -> str:
    """The inverse of `to_id`; GoneError if it is no id of a transaction."""
    try:
        if not txn.startswith("t") or len(txn) != 33:
            raise ValueError
        return str(uuid.UUID(txn[1:]))
    except ValueError:
        raise GoneError(f"{txn[:80]!r} is not the id of a transaction; begin one") from None


class OpenTransactions:
    """Begins, finds and ends transactions. `sweep` aborts those without signs of life for the time-out."""

    def __init__(self, catalog: Catalog, prepare: Callable[[CatalogTransaction], None]) -> None:
        self._catalog = catalog
        self._prepare = prepare
        self._timeout_seconds = catalog.config.serve_txn_timeout
        self._leftovers = Leftovers(catalog)
        self._open: dict[str, OpenTransaction] = {}
        self._ended: OrderedDict[str, Ended] = OrderedDict()
        self._begun: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self,
        message: str | None = None,
        lock: Sequence[str] = (),
        tables: Sequence[str] | None = None,
        request: str = "",
    ) -> OpenTransaction:
        """Begin a transaction: the heads of all tables, or of those named, are pinned in one read.

        `request` is the client's own id of this call: if it is sent again, the same transaction is returned.
        """
        with self._lock:
            if request and request in self._begun:
                existing = self._open.get(self._begun[request])
                if existing is not None:
                    return existing
            if self._is_closed or len(self._open) >= MAX_OPEN:
                why = "is being stopped" if self._is_closed else f"has {MAX_OPEN} transactions open"
                raise EndpointBusyError(f"the endpoint {why}; try again later")
        opened = OpenTransaction(self._catalog.begin(message, lock, tables), time.monotonic())
        with self._lock:
            self._open[opened.txn] = opened
            if request:
                self._begun[request] = opened.txn
                while len(self._begun) > REMEMBERED:
                    self._begun.popitem(last=False)
        return opened

    def get(self, txn: str) -> OpenTransaction:
        """An open transaction; this counts as a sign of life. GoneError if it is over."""
        with self._lock:
            opened, ended = self._open.get(txn), self._ended.get(txn)
            if opened is not None:
                opened.seen = time.monotonic()
                return opened
        txn_id = to_txn_id(txn)
        if ended is None:
            raise GoneError(
                f"transaction {txn_id} is not open here: it was never begun, or the endpoint was restarted since; "
                "begin another one"
            )
        raise _gone_error(ended)

    def call(self, txn: str, work: Callable[[CatalogTransaction], T]) -> T:
        """Run `work` with an open transaction, one call at a time."""
        opened = self.get(txn)
        with opened.lock:
            self._still_open(opened)
            try:
                return work(opened.tx)
            finally:
                opened.seen = time.monotonic()

    def turn(self, txn: str) -> asyncio.Lock:
        """The lock that orders the calls of one transaction; a new lock if the transaction is over."""
        opened = self._open.get(txn)
        return asyncio.Lock() if opened is None else opened.turn

    def alive(self, txn: str) -> None:
        self.get(txn)

    def commit(self, txn: str, finish: Callable[[CatalogTransaction], None] | None = None) -> Ended:
        """Commit, or return the outcome again. `finish` adds to the commit at the very end."""
        with self._lock:
            opened = self._open.get(txn)
        if opened is None:
            return self._outcome(txn)
        with opened.lock:
            if self._open.get(txn) is not opened:
                return self._outcome(txn)
            return self._commit(opened, finish)

    def _commit(self, opened: OpenTransaction, finish: Callable[[CatalogTransaction], None] | None) -> Ended:
        try:
            if not opened.tx.is_undecided:
                self._prepare(opened.tx)
                if finish is not None:
                    finish(opened.tx)
            reached("bridge.prepared")
            versions = opened.tx.commit()
            reached("bridge.committed")
        except (StoreError, OutcomeUnknownError):
            opened.seen = time.monotonic()
            raise  # it stays open: a repeated call returns the outcome
        except DeltaError as error:
            if opened.tx.is_open:  # the commit itself was not reached
                opened.tx.rollback()
            self._end(opened, error=error)
            raise
        return self._end(opened, versions=versions)

    def _outcome(self, txn: str) -> Ended:
        """The outcome of a transaction that is not open: from memory, or from SQL, where it is final."""
        with self._lock:
            ended = self._ended.get(txn)
        txn_id = to_txn_id(txn)
        if ended is None:
            versions = resolve_outcome(self._catalog, txn_id)
            error = None if versions is not None else _nothing_committed(txn_id)
            ended = self._remember(txn, Ended(time.monotonic(), txn_id, versions, error))
        if ended.error is not None:
            raise copy.copy(ended.error)
        return ended

    def abort(self, txn: str, reason: str = "was aborted") -> bool:
        """Abort a transaction; False if it is committed already."""
        with self._lock:
            opened = self._open.get(txn)
        if opened is not None:
            with opened.lock:
                if self._open.get(txn) is opened:
                    self._abort(opened, reason)
        try:
            return self._outcome(txn).versions is None
        except (StoreError, OutcomeUnknownError):
            raise
        except DeltaError:
            return True

    def _abort(self, opened: OpenTransaction, reason: str) -> None:
        undecided = opened.tx.is_undecided
        opened.tx.rollback()
        txn_id = opened.tx.txn_id
        if undecided:  # SQL may have it: its outcome is read from there
            with self._lock:
                self._open.pop(opened.txn, None)
            self._leftovers.remove(opened.txn, opened.locations)
            return
        self._end(opened, error=GoneError(f"transaction {txn_id} {reason}; nothing of it was committed"))

    def _end(
        self, opened: OpenTransaction, versions: dict[str, int] | None = None, error: DeltaError | None = None
    ) -> Ended:
        # A copy: a raised error keeps its callers' frames alive for as long as it is cached.
        ended = self._remember(opened.txn, Ended(time.monotonic(), opened.tx.txn_id, versions, copy.copy(error)))
        self._leftovers.remove(opened.txn, opened.locations)
        return ended

    def _remember(self, txn: str, ended: Ended) -> Ended:
        with self._lock:
            self._open.pop(txn, None)
            self._ended[txn] = ended
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        return ended

    def _still_open(self, opened: OpenTransaction) -> None:
        if self._open.get(opened.txn) is not opened:
            self.get(opened.txn)

    # -- time-outs

    def sweep(self, now: float | None = None) -> list[str]:
        """Abort transactions without signs of life, drop old outcomes; returns the ids of those aborted."""
        now = time.monotonic() if now is None else now
        with self._lock:
            silent = [opened for opened in self._open.values() if now - opened.seen > self._timeout_seconds]
            for txn in [txn for txn, ended in self._ended.items() if now - ended.at > REMEMBER_SECONDS]:
                del self._ended[txn]
        aborted = []
        for opened in silent:
            if not opened.lock.acquire(blocking=False):
                continue  # it is in use, which is a sign of life
            try:
                if now - opened.seen > self._timeout_seconds and self._open.get(opened.txn) is opened:
                    self._abort(opened, f"was aborted: no sign of life for {self._timeout_seconds:g} seconds")
                    aborted.append(opened.txn)
                    logger.warning("transaction %s was aborted: its client is silent", opened.tx.txn_id)
            except DeltaError as error:
                logger.warning("transaction %s could not be aborted: %s", opened.tx.txn_id, redact(str(error)))
            finally:
                opened.lock.release()
        self._leftovers.sweep(lambda txn: txn in self._open)
        return aborted

    def close(self) -> None:
        """Abort all open transactions: their clients learn it from the next endpoint, or from SQL."""
        with self._lock:
            self._is_closed = True
            remaining = list(self._open)
        for txn in remaining:
            try:
                self.abort(txn, "was aborted: its endpoint was stopped")
            except DeltaError as error:
                logger.warning("transaction %s could not be aborted: %s", txn, redact(str(error)))


def _gone_error(ended: Ended) -> DeltaError:
    if isinstance(ended.error, GoneError):
        return copy.copy(ended.error)
    how = "is committed" if ended.error is None else f"has failed ({type(ended.error).__name__})"
    return GoneError(f"transaction {ended.txn_id} {how} and takes no more statements; begin another one")


def _nothing_committed(txn_id: str) -> GoneError:
    return GoneError(
        f"transaction {txn_id} is not open: it was never begun, or its endpoint was restarted before the commit; "
        "nothing of it was committed: run it again"
    )
