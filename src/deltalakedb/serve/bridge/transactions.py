"""OpenTransactions: the transactions of the bridge's clients. They are in SQL, so any endpoint can go on with each."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, EndpointBusyError, GoneError, OutcomeUnknownError, StoreError, redact
from deltalakedb.runtime.caller import Caller, acting_for
from deltalakedb.runtime.steps import reached
from deltalakedb.serve.bridge.copies import (
    Copies,
    OpenTransaction,
    OverError,
    OvertakenError,
    SharedTransaction,
    to_id,
    to_txn_id,
    unknown,
)
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.overlay import Leftovers
from deltalakedb.store import open_transactions as rows
from deltalakedb.transactions.commit import resolve_outcome
from deltalakedb.transactions.transaction import CatalogTransaction

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_OPEN = 1_000
REMEMBERED = 10_000
REMEMBER_SECONDS = 3_600.0
"""How long outcomes stay cached, and the reasons of failed transactions in SQL."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a transaction: versions, or the error that says why there are none."""

    at: float
    txn_id: str
    versions: dict[str, int] | None = None
    error: DeltaError | None = None


class OpenTransactions:
    """Begins, continues and ends transactions. `sweep` aborts those without signs of life for the time-out.

    `ends_with_endpoint`: abort the open transactions when the endpoint is closed; otherwise another one goes on. If the
    machine stops, a transaction may be forgotten as a whole; the calls of one that is known are all there.
    """

    def __init__(self, catalog: Catalog, log: BridgedLog, *, ends_with_endpoint: bool) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._log = log
        self._ends_with_endpoint = ends_with_endpoint
        self._timeout_seconds = catalog.config.serve_txn_timeout
        self._leftovers = Leftovers(catalog)
        self._copies = Copies(catalog, log, durable=not ends_with_endpoint)
        self._ended: OrderedDict[str, Ended] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._copies)

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
            if self._is_closed or len(self._copies) >= MAX_OPEN:
                why = "is being stopped" if self._is_closed else f"has {MAX_OPEN} transactions open"
                raise EndpointBusyError(f"the endpoint {why}; try again later")
        if request:
            with self._store.read(single=True) as conn:
                begun = rows.begun_by(conn, request)
            if begun is not None:
                return self._loaded(begun)
        tx = SharedTransaction(self._catalog, message=message, lock=lock, tables=tables)
        pins = rows.pins_of(tx.run_statement(lambda drafts, _: drafts.pinned_rows()))
        beginning = rows.Beginning(message, tuple(lock), None if tables is None else tuple(tables), pins)
        try:
            with self._store.write(durable=False) as conn:
                txn_id = rows.insert_beginning(conn, tx.txn_id, beginning, actor=self._catalog.actor, request=request)
        except BaseException:
            tx.rollback()
            raise
        if txn_id != tx.txn_id:  # the same request came to another endpoint, too
            tx.rollback()
            return self._loaded(txn_id)
        reached("bridge.begun")
        return self._copies.add(tx)

    def _loaded(self, txn_id: str) -> OpenTransaction:
        try:
            return self._copies.loaded(to_id(txn_id))
        except OverError as over:
            raise over.error from None

    def get(self, txn: str) -> OpenTransaction:
        """This endpoint's copy of an open transaction; GoneError if it has none."""
        opened = self._copies.find(txn)
        if opened is None:
            raise self._over(txn, unknown(to_txn_id(txn)))
        return opened

    def call(self, txn: str, work: Callable[[CatalogTransaction], T]) -> T:
        """Run `work` with an open transaction, one call at a time. What it depends on is in SQL when this returns."""
        try:
            return self._copies.use(txn, lambda opened: self._call(opened, work))
        except OverError as over:
            raise self._over(txn, over.error) from None

    def _call(self, opened: OpenTransaction, work: Callable[[CatalogTransaction], T]) -> T:
        self._copies.catch_up(opened)
        try:
            answer = work(opened.tx)
        except StoreError:
            raise
        except DeltaError:  # an answer, too
            self._copies.record(opened)
            raise
        self._copies.record(opened)
        reached("bridge.recorded")
        return answer

    def _over(self, txn: str, error: DeltaError) -> DeltaError:
        """The error for calls of a transaction that is over; this endpoint may know more than SQL."""
        with self._lock:
            ended = self._ended.get(txn)
        return error if ended is None else _gone_error(ended)

    def turn(self, txn: str) -> asyncio.Lock:
        """The lock that orders the calls of one transaction here; a new lock if there is no copy of it."""
        opened = self._copies.find(txn)
        return asyncio.Lock() if opened is None else opened.turn

    def alive(self, txn: str) -> None:
        """Note a sign of life; GoneError if the transaction is over."""
        txn_id = to_txn_id(txn)
        with self._store.write(durable=False) as conn:
            standing = rows.standing_of(conn, txn_id)
            try:
                self._copies.check(txn, standing, takes_calls=False)
            except OverError as over:
                raise self._over(txn, over.error) from None
            rows.see(conn, txn_id)

    def commit(self, txn: str, finish: Callable[[CatalogTransaction], None] | None = None) -> Ended:
        """Commit, or return the outcome again. `finish` adds to the commit at the very end."""
        try:
            return self._copies.use(txn, lambda opened: self._commit(opened, finish))
        except OverError as over:
            if over.is_foreign:
                raise over.error from None
            return self._outcome(txn)

    def _commit(self, opened: OpenTransaction, finish: Callable[[CatalogTransaction], None] | None) -> Ended:
        txn_id = opened.tx.txn_id
        try:
            if not opened.tx.is_undecided:
                self._copies.catch_up(opened, takes_calls=False)
                self._log.prepare(opened.tx)
                if finish is not None:
                    finish(opened.tx)
                with self._store.write(durable=False) as conn:
                    if not rows.begin_to_commit(conn, txn_id, opened.num_calls):
                        raise OvertakenError
            reached("bridge.prepared")
            versions = opened.tx.commit()
            reached("bridge.committed")
        except (StoreError, OutcomeUnknownError):
            raise  # it stays open: a repeated call returns the outcome
        except DeltaError as error:
            if opened.tx.is_open:  # the commit itself was not reached
                opened.tx.rollback()
            others = resolve_outcome(self._catalog, txn_id)
            if others is not None:  # another endpoint was asked, too
                return self._end(opened.txn, opened.locations, versions=others)
            self._end(opened.txn, opened.locations, error=error)
            raise
        return self._end(opened.txn, opened.locations, versions=versions)

    def _outcome(self, txn: str) -> Ended:
        """The outcome of a transaction that is over: from memory, or from SQL, where it is final."""
        with self._lock:
            ended = self._ended.get(txn)
        txn_id = to_txn_id(txn)
        if ended is None:
            with self._store.read(single=True) as conn:
                standing = rows.standing_of(conn, txn_id)
            versions = resolve_outcome(self._catalog, txn_id)
            error = None if versions is not None else _nothing_committed(txn_id, standing)
            ended = self._remember(txn, Ended(time.monotonic(), txn_id, versions, error))
        if ended.error is not None:
            raise copy.copy(ended.error)
        return ended

    def abort(self, txn: str, reason: str = "was aborted") -> bool:
        """Abort a transaction; False if it is committed already."""
        try:
            self._copies.use(txn, lambda opened: self._abort(opened, reason))
        except OverError as over:
            if over.is_foreign:
                raise over.error from None
        except (StoreError, OutcomeUnknownError, EndpointBusyError):
            raise
        except DeltaError:  # its calls cannot be repeated here; VACUUM deletes its files
            versions = resolve_outcome(self._catalog, to_txn_id(txn))
            self._end(txn, (), versions=versions, error=None if versions is not None else _aborted(txn, reason))
        try:
            return self._outcome(txn).versions is None
        except (StoreError, OutcomeUnknownError):
            raise
        except DeltaError:
            return True

    def _abort(self, opened: OpenTransaction, reason: str) -> None:
        with suppress(OvertakenError):
            self._copies.catch_up(opened, takes_calls=False)  # so that the files of all calls are deleted
        txn_id = opened.tx.txn_id
        versions = resolve_outcome(self._catalog, txn_id)  # from now on nobody can commit it
        if versions is not None:
            opened.tx.leave()
            self._end(opened.txn, opened.locations, versions=versions)
            return
        opened.tx.rollback()
        self._end(opened.txn, opened.locations, error=_aborted(opened.txn, reason))

    # -- the end

    def _end(
        self,
        txn: str,
        locations: Collection[str],
        versions: dict[str, int] | None = None,
        error: DeltaError | None = None,
    ) -> Ended:
        txn_id = to_txn_id(txn)
        # A copy: a raised error keeps its callers' frames alive for as long as it is cached.
        ended = self._remember(txn, Ended(time.monotonic(), txn_id, versions, copy.copy(error)))
        try:
            with self._store.write(durable=False) as conn:
                rows.end(conn, txn_id, None if error is None else f"{type(error).__name__}: {error}")
        except StoreError as lost:  # the sweep of any endpoint will do it
            logger.warning("the end of transaction %s is not recorded yet: %s", txn_id, redact(str(lost)))
        self._leftovers.remove(txn, locations)
        return ended

    def _remember(self, txn: str, ended: Ended) -> Ended:
        self._copies.forget(txn)
        with self._lock:
            self._ended[txn] = ended
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        return ended

    # -- time-outs

    def sweep(self) -> list[str]:
        """Abort transactions without signs of life, drop old outcomes; returns the ids of those aborted."""
        forgotten = time.monotonic() - REMEMBER_SECONDS
        with self._lock:
            for txn in [txn for txn, ended in self._ended.items() if ended.at < forgotten]:
                del self._ended[txn]
        in_use = [opened for opened in self._copies.all() if opened.lock.locked()]  # a long commit, say
        with self._store.read() as conn:
            is_any_silent = rows.is_any_silent(conn, self._timeout_seconds, REMEMBER_SECONDS)
        silent: list[tuple[str, str]] = []
        if in_use or is_any_silent:
            with self._store.write(durable=False) as conn:
                for opened in in_use:
                    rows.see(conn, opened.tx.txn_id)
                silent = rows.claim_silent(conn, self._timeout_seconds, REMEMBER_SECONDS)
        reason = f"was aborted: no sign of life for {self._timeout_seconds:g} seconds"
        aborted = [txn for txn, actor in silent if self._abort_for(to_id(txn), actor, reason)]
        for txn in aborted:
            logger.warning("transaction %s was aborted: its client is silent", txn)
        ours = self._copies.all()  # before the others are looked for: what begins meanwhile is live
        with self._store.read(single=True) as conn:
            live = rows.live_ids(conn)
        self._copies.drop_ended(live, ours)
        self._leftovers.sweep(lambda txn: to_txn_id(txn) in live)
        return [to_id(txn_id) for txn_id in aborted]

    def _abort_for(self, txn: str, actor: str, reason: str) -> bool:
        """Abort a transaction in the name of the user who began it."""
        try:
            with acting_for(Caller(actor, proof="endpoint")):
                self.abort(txn, reason)
        except DeltaError as error:
            logger.warning("transaction %s could not be aborted: %s", to_txn_id(txn), redact(str(error)))
            return False
        return True

    def close(self) -> None:
        """Abort the open transactions, or leave them to the next endpoint."""
        with self._lock:
            self._is_closed = True
        for opened in self._copies.all():
            if self._ends_with_endpoint:
                self._abort_for(opened.txn, opened.actor, "was aborted: its endpoint was stopped")
            else:
                self._copies.drop(opened)


def _gone_error(ended: Ended) -> DeltaError:
    if isinstance(ended.error, GoneError):
        return copy.copy(ended.error)
    how = "is committed" if ended.error is None else f"has failed ({type(ended.error).__name__})"
    return GoneError(f"transaction {ended.txn_id} {how} and takes no more statements; begin another one")


def _aborted(txn: str, reason: str) -> GoneError:
    return GoneError(f"transaction {to_txn_id(txn)} {reason}; nothing of it was committed")


def _nothing_committed(txn_id: str, standing: rows.Standing | None) -> GoneError:
    if standing is not None and standing.failure is not None:
        return GoneError(f"transaction {txn_id} has failed: {standing.failure}; nothing of it was committed")
    return GoneError(
        f"transaction {txn_id} is not open: it was never begun, or it is over; nothing of it was committed: begin "
        "another one"
    )
