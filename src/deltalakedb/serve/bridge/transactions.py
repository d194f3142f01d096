"""OpenTransactions: the transactions of an endpoint's clients, from begin to an end that can be asked for again."""

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

from deltalakedb.catalog import Catalog
from deltalakedb.exceptions import DeltaError, EndpointBusyError, GoneError, OutcomeUnknownError, StoreError, redact
from deltalakedb.serve.bridge.leftovers import Leftovers
from deltalakedb.steps import reached
from deltalakedb.transactions.settle import settle
from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_OPEN = 1_000
REMEMBERED = 10_000
REMEMBER_SECONDS = 3_600.0
"""So long an outcome is told from memory; later SQL tells it."""


@dataclass(eq=False)
class OpenTransaction:
    """A transaction and who may use it: one call at a time, in the order in which they came."""

    tx: CatalogTransaction
    seen: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Taken before a worker thread is: a long commit must not keep all threads waiting for it."""
    locations: set[str] = field(default_factory=set)
    """Tables under which Spark may have left files of this transaction."""

    @property
    def txn(self) -> str:
        return to_id(self.tx.txn_id)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a transaction: versions, or the error that says why there are none."""

    at: float
    txn_id: str
    versions: dict[str, int] | None = None
    error: DeltaError | None = None


def to_id(txn_id: str) -> str:
    """How paths and URIs name a transaction: an authority begins with a letter and has no dashes."""
    return "t" + uuid.UUID(txn_id).hex


def to_txn_id(txn: str) -> str:
    """The inverse of `to_id`; GoneError for what never was the id of a transaction."""
    try:
        if not txn.startswith("t") or len(txn) != 33:
            raise ValueError
        return str(uuid.UUID(txn[1:]))
    except ValueError:
        raise GoneError(f"{txn[:80]!r} is not the id of a transaction; begin one") from None


class OpenTransactions:
    """Begins, finds and ends transactions. Who gives no sign of life for the time-out is aborted by `sweep`."""

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
        """A new transaction: the heads of all tables, or of those named, are pinned in one read.

        `request` is the client's own id of this call: who sends it again gets the transaction that it began.
        """
        with self._lock:
            if request and request in self._begun:
                known = self._open.get(self._begun[request])
                if known is not None:
                    return known
            if self._is_closed or len(self._open) >= MAX_OPEN:
                why = "is being stopped" if self._is_closed else f"has {MAX_OPEN} transactions open"
                raise EndpointBusyError(f"the endpoint {why}; try again later")
        made = OpenTransaction(self._catalog.begin(message, lock, tables), time.monotonic())
        with self._lock:
            self._open[made.txn] = made
            if request:
                self._begun[request] = made.txn
                while len(self._begun) > REMEMBERED:
                    self._begun.popitem(last=False)
        return made

    def get(self, txn: str) -> OpenTransaction:
        """An open transaction, which has thereby given a sign of life; GoneError when it is over."""
        with self._lock:
            found, ended = self._open.get(txn), self._ended.get(txn)
            if found is not None:
                found.seen = time.monotonic()
                return found
        txn_id = to_txn_id(txn)
        if ended is None:
            raise GoneError(
                f"transaction {txn_id} is not open here: it was never begun, or the endpoint was restarted since; "
                "begin another one"
            )
        raise _over(ended)

    def call(self, txn: str, work: Callable[[CatalogTransaction], T]) -> T:
        """Do something with an open transaction, when it is its turn."""
        found = self.get(txn)
        with found.lock:
            self._still_open(found)
            try:
                return work(found.tx)
            finally:
                found.seen = time.monotonic()

    def turn(self, txn: str) -> asyncio.Lock:
        """What the calls of one transaction take in turn; a transaction that is over has nobody to wait for."""
        found = self._open.get(txn)
        return asyncio.Lock() if found is None else found.turn

    def alive(self, txn: str) -> None:
        self.get(txn)

    def commit(self, txn: str, finish: Callable[[CatalogTransaction], None] | None = None) -> Ended:
        """Commit, or tell again what became of it. `finish` adds what belongs into the commit at the very end."""
        with self._lock:
            found = self._open.get(txn)
        if found is None:
            return self._outcome(txn)
        with found.lock:
            if self._open.get(txn) is not found:
                return self._outcome(txn)
            return self._commit(found, finish)

    def _commit(self, found: OpenTransaction, finish: Callable[[CatalogTransaction], None] | None) -> Ended:
        try:
            if not found.tx.is_undecided:
                self._prepare(found.tx)
                if finish is not None:
                    finish(found.tx)
            reached("bridge.prepared")
            versions = found.tx.commit()
            reached("bridge.committed")
        except (StoreError, OutcomeUnknownError):
            found.seen = time.monotonic()
            raise  # it stays open: who asks again learns the outcome
        except DeltaError as error:
            if found.tx.is_open:  # it did not come to the commit itself
                found.tx.rollback()
            self._end(found, error=error)
            raise
        return self._end(found, versions=versions)

    def _outcome(self, txn: str) -> Ended:
        """Of a transaction that is not open: from memory, else from SQL, where it is settled for good."""
        with self._lock:
            ended = self._ended.get(txn)
        txn_id = to_txn_id(txn)
        if ended is None:
            versions = settle(self._catalog, txn_id)
            error = None if versions is not None else _nothing_committed(txn_id)
            ended = self._remember(txn, Ended(time.monotonic(), txn_id, versions, error))
        if ended.error is not None:
            raise copy.copy(ended.error)
        return ended

    def abort(self, txn: str, reason: str = "was aborted") -> bool:
        """Give a transaction up; False when it is too late, because it is committed."""
        with self._lock:
            found = self._open.get(txn)
        if found is not None:
            with found.lock:
                if self._open.get(txn) is found:
                    self._abort(found, reason)
        try:
            return self._outcome(txn).versions is None
        except (StoreError, OutcomeUnknownError):
            raise
        except DeltaError:
            return True

    def _abort(self, found: OpenTransaction, reason: str) -> None:
        undecided = found.tx.is_undecided
        found.tx.rollback()
        txn_id = found.tx.txn_id
        if undecided:  # SQL may have it: whoever asks is told from there
            with self._lock:
                self._open.pop(found.txn, None)
            self._leftovers.remove(found.txn, found.locations)
            return
        self._end(found, error=GoneError(f"transaction {txn_id} {reason}; nothing of it was committed"))

    def _end(
        self, found: OpenTransaction, versions: dict[str, int] | None = None, error: DeltaError | None = None
    ) -> Ended:
        # A copy: an error that was raised holds on to all that its callers had, for as long as it is remembered.
        ended = self._remember(found.txn, Ended(time.monotonic(), found.tx.txn_id, versions, copy.copy(error)))
        self._leftovers.remove(found.txn, found.locations)
        return ended

    def _remember(self, txn: str, ended: Ended) -> Ended:
        with self._lock:
            self._open.pop(txn, None)
            self._ended[txn] = ended
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        return ended

    def _still_open(self, found: OpenTransaction) -> None:
        if self._open.get(found.txn) is not found:
            self.get(found.txn)

    # -- time passing

    def sweep(self, now: float | None = None) -> list[str]:
        """Abort whoever was silent for too long, forget old outcomes; the ids of those aborted."""
        now = time.monotonic() if now is None else now
        with self._lock:
            silent = [one for one in self._open.values() if now - one.seen > self._timeout_seconds]
            for txn in [txn for txn, ended in self._ended.items() if now - ended.at > REMEMBER_SECONDS]:
                del self._ended[txn]
        aborted = []
        for one in silent:
            if not one.lock.acquire(blocking=False):
                continue  # somebody is at work with it: that is a sign of life
            try:
                if now - one.seen > self._timeout_seconds and self._open.get(one.txn) is one:
                    self._abort(one, f"was aborted: no sign of life for {self._timeout_seconds:g} seconds")
                    aborted.append(one.txn)
                    logger.warning("transaction %s was aborted: its client is silent", one.tx.txn_id)
            except DeltaError as error:
                logger.warning("transaction %s could not be aborted: %s", one.tx.txn_id, redact(str(error)))
            finally:
                one.lock.release()
        self._leftovers.sweep(lambda txn: txn in self._open)
        return aborted

    def close(self) -> None:
        """Abort all that is open: their clients learn it from the next endpoint, or from SQL."""
        with self._lock:
            self._is_closed = True
            left = list(self._open)
        for txn in left:
            try:
                self.abort(txn, "was aborted: its endpoint was stopped")
            except DeltaError as error:
                logger.warning("transaction %s could not be aborted: %s", txn, redact(str(error)))


def _over(ended: Ended) -> DeltaError:
    if isinstance(ended.error, GoneError):
        return copy.copy(ended.error)
    how = "is committed" if ended.error is None else f"has failed ({type(ended.error).__name__})"
    return GoneError(f"transaction {ended.txn_id} {how} and takes no more statements; begin another one")


def _nothing_committed(txn_id: str) -> GoneError:
    return GoneError(
        f"transaction {txn_id} is not open: it was never begun, or its endpoint was restarted before the commit; "
        "nothing of it was committed: run it again"
    )
