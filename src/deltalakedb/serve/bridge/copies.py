"""Copies: an endpoint's copies of open transactions, which are in SQL: made there, brought up to date, recorded."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, EndpointBusyError, GoneError, StoreError, redact
from deltalakedb.serve.bridge.commits import parse_commit
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.places import Place
from deltalakedb.serve.bridge.plans import open_version, read_filters
from deltalakedb.store import open_transactions as rows
from deltalakedb.transactions.commit import resolve_outcome
from deltalakedb.transactions.transaction import CatalogTransaction

T = TypeVar("T")

TRIES = 20
"""How often a call is tried again because another endpoint recorded one of the same transaction meanwhile."""


class OvertakenError(Exception):
    """Another endpoint has recorded a call of the transaction."""


class OverError(Exception):
    """The transaction is over, was never begun, or is another user's; `error` is for the client."""

    def __init__(self, error: DeltaError, *, is_foreign: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_foreign = is_foreign


class SharedTransaction(CatalogTransaction):
    """A transaction that other processes may go on with, and commit or abort, once it `is_shared`."""

    is_shared = False

    def leave(self) -> None:
        """End this object without any effect on the transaction."""
        if self._locks is not None:
            self._locks.leave()
        self._state = "unknown"  # as far as this process knows
        self.rollback()

    def _remove_files(self) -> None:
        if self.is_shared and resolve_outcome(self.catalog, self.txn_id) is not None:
            self._written.forget()  # another process has committed it
        super()._remove_files()


@dataclass(eq=False)
class OpenTransaction:
    """An endpoint's copy of an open transaction; its calls run one at a time, in the order in which they came."""

    tx: SharedTransaction
    actor: str
    num_calls: int = 0
    """How many recorded calls the copy has: others may have recorded more since."""
    told: float = field(default_factory=time.monotonic)
    """When a sign of life was last written into SQL."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Taken before a worker thread is, so that calls waiting for a long commit do not hold all threads."""
    locations: set[str] = field(default_factory=set)
    """Tables under which Spark may have left files of this transaction."""

    @property
    def txn(self) -> str:
        return to_id(self.tx.txn_id)


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


class Copies:
    """The copies that this endpoint has; any may be dropped, and is made again from SQL when it is needed."""

    def __init__(self, catalog: Catalog, log: BridgedLog, *, durable: bool) -> None:
        """`durable`: what a call was answered is kept even if the machine stops, because clients may outlive it."""
        self._catalog = catalog
        self._store = catalog.store
        self._durable = durable
        self._log = log
        self._tell_seconds = catalog.config.serve_txn_timeout / 10
        self._open: dict[str, OpenTransaction] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> list[OpenTransaction]:
        with self._lock:
            return list(self._open.values())

    def find(self, txn: str) -> OpenTransaction | None:
        return self._open.get(txn)

    def add(self, tx: SharedTransaction) -> OpenTransaction:
        """The copy that calls use from now on: this one, or another that was added before."""
        tx.is_shared = True
        opened = OpenTransaction(tx, self._catalog.actor)
        with self._lock:
            first = self._open.setdefault(opened.txn, opened)
        if first is not opened:
            tx.leave()
        return first

    def forget(self, txn: str) -> None:
        with self._lock:
            self._open.pop(txn, None)

    def drop_ended(self, live: Collection[str], copies: Iterable[OpenTransaction]) -> None:
        """Give up copies of transactions that others have ended; `live` are the transactions that are not over."""
        for opened in copies:
            if opened.tx.txn_id not in live and opened.lock.acquire(blocking=False):
                try:
                    self.drop(opened)
                finally:
                    opened.lock.release()

    def drop(self, opened: OpenTransaction) -> None:
        """Give a copy up, and not the transaction."""
        with self._lock:
            if self._open.get(opened.txn) is opened:
                del self._open[opened.txn]
        opened.tx.leave()

    def use(self, txn: str, work: Callable[[OpenTransaction], T]) -> T:
        """Run `work` with the copy of a transaction; again with a new copy if another endpoint recorded a call."""
        for _ in range(TRIES):
            opened = self.loaded(txn)
            with opened.lock:
                if self._open.get(txn) is not opened:
                    continue
                try:
                    return work(opened)
                except OvertakenError:
                    self.drop(opened)
        raise EndpointBusyError(f"transaction {to_txn_id(txn)} is used by several endpoints at once; try again")

    def loaded(self, txn: str) -> OpenTransaction:
        """The copy of a transaction, made from SQL if another endpoint began it; OverError if it is over."""
        opened, txn_id = self._open.get(txn), to_txn_id(txn)
        if opened is not None:
            if opened.actor != self._catalog.actor:
                raise OverError(unknown(txn_id), is_foreign=True)
            return opened
        with self._store.read() as conn:
            standing, beginning = rows.standing_of(conn, txn_id), rows.beginning_of(conn, txn_id)
        self.check(txn, standing, takes_calls=False)
        if beginning is None:
            raise OverError(unknown(txn_id))
        tx = SharedTransaction(
            self._catalog,
            message=beginning.message,
            lock=beginning.lock,
            tables=beginning.tables,
            continues=(txn_id, rows.pinned_rows(self._store, beginning)),
        )
        return self.add(tx)

    def catch_up(self, opened: OpenTransaction, *, takes_calls: bool = True) -> None:
        """Repeat the calls that others have recorded."""
        txn_id, staged = opened.tx.txn_id, self._log.staged_of(opened.tx)
        with self._store.read() as conn:
            standing = rows.standing_of(conn, txn_id)
            is_behind = standing is not None and standing.num_calls > opened.num_calls
            calls = rows.calls_from(conn, txn_id, opened.num_calls) if is_behind else []
        try:
            self.check(opened.txn, standing, takes_calls=takes_calls)
        except OverError:
            if standing is None or standing.stage == "failed":
                self.drop(opened)
            raise
        if calls and staged.unrecorded:  # of a call that has failed
            raise OvertakenError
        try:
            for call in calls:
                self._repeat(opened.tx, call)
        except StoreError:
            self.drop(opened)
            raise
        except DeltaError as error:
            self.drop(opened)
            raise GoneError(
                f"transaction {txn_id} cannot be continued by this endpoint: {error}; begin another one"
            ) from error
        opened.num_calls += len(calls)
        opened.locations |= staged.locations

    def _repeat(self, tx: CatalogTransaction, call: rows.StagedCall) -> None:
        """Repeat a call that another endpoint has answered."""
        log = self._log
        match call.kind, call.arguments:
            case "opened", (location,):
                log.note_opened(tx, location)
            case "read", (location,):
                log.note_read(tx, location)
            case "found", (name,):
                log.find(name, tx)
            case "promoted", (location, version):
                tx.run_statement(lambda drafts, _: drafts.repeat_promotion(location, version))
            case "app", (name, app_id):
                log.app_version(tx, name, app_id)
            case "plan", (path, version, filters):
                place, trees = self._place(path, tx), json.loads(filters)
                own_texts = [text.data for _, text in log.staged_at(tx, place.location)]
                metadata = open_version(self._catalog, place, tx, version, own_texts=own_texts).metadata
                log.note_plan(tx, place, version, trees, read_filters(trees, metadata))
            case "commit", (path, version, token, modified_ms):
                place, lines = self._place(path, tx), (call.body or "").encode().split(b"\n")
                info, actions = parse_commit(lines, table=place.shown, version=version)
                log.stage(place, tx, version, info, actions, token, modified_ms)
            case _:
                raise GoneError(f"this version does not know the call {call.kind}")
        log.staged_of(tx).unrecorded.clear()  # what was repeated is recorded

    def _place(self, path: str, tx: CatalogTransaction) -> Place:
        place = self._log.resolve(path, tx)
        if place is None:
            raise GoneError(f"{redact(path)} is no place of a table any more")
        return place

    def record(self, opened: OpenTransaction) -> None:
        """Write the calls that are not in SQL yet, or from time to time a sign of life."""
        staged = self._log.staged_of(opened.tx)
        opened.locations |= staged.locations
        calls, now = list(staged.unrecorded), time.monotonic()
        if not calls and now - opened.told < self._tell_seconds:
            return
        with self._store.write(durable=self._durable and bool(calls)) as conn:
            if not calls:
                rows.see(conn, opened.tx.txn_id)
            elif not rows.record_calls(conn, opened.tx.txn_id, opened.num_calls, calls):
                raise OvertakenError
        opened.num_calls += len(calls)
        opened.told = now
        del staged.unrecorded[: len(calls)]

    def check(self, txn: str, standing: rows.Standing | None, *, takes_calls: bool = True) -> None:
        """OverError if the transaction is over, or another user's; both look the same."""
        txn_id = to_txn_id(txn)
        if standing is None:
            raise OverError(unknown(txn_id))
        if standing.actor != self._catalog.actor:
            raise OverError(unknown(txn_id), is_foreign=True)
        if standing.stage == "failed":
            raise OverError(GoneError(f"transaction {txn_id} has failed: {standing.failure}; begin another one"))
        if takes_calls and standing.stage == "committing":
            raise OverError(
                GoneError(f"transaction {txn_id} is being committed and takes no more statements; begin another one")
            )


def unknown(txn_id: str) -> GoneError:
    return GoneError(f"transaction {txn_id} is not open: it was never begun, or it is over; begin another one")
