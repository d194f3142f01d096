"""Intent locks: who rewrites a table for long is not spoiled by others, and nobody waits for ever; on every engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import TableLockedError, TableNotFoundError
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry import TableRow
from deltalakedb.transactions.intent_locks import IntentLocks
from tests.conformance.transacting import ids_in, ids_of, numbers, open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path, mirror_mode="off", concurrency_lock_timeout=2.0) as opened:
        with opened.begin() as tx:
            tx.write("t", numbers(1))
            tx.write("u", numbers(1))
        yield opened


def row_of(catalog: Catalog, name: str) -> TableRow:
    with catalog.store.read() as conn:
        return require_table(conn, parse_table_name(name))


def leases(catalog: Catalog) -> list[str]:
    found = catalog.sql("select lease, holder from dl_leases where lease like 'intent:%' order by lease").to_pylist()
    return [row["holder"] for row in found]


def test_a_lock_is_held_until_the_transaction_ends(catalog: Catalog) -> None:
    with catalog.begin(lock=["t"]) as tx:
        assert leases(catalog) == [tx.txn_id]
        tx.write("t", numbers(2), mode="overwrite")
    assert leases(catalog) == []
    with catalog.begin(lock=["t", "u", "T"]) as tx:
        assert leases(catalog) == [tx.txn_id] * 2
        tx.rollback()
    assert leases(catalog) == []
    with pytest.raises(TableNotFoundError):
        catalog.begin(lock=["nothing"])


def test_appends_pass_a_lock_and_rewrites_wait_for_it(catalog: Catalog) -> None:
    rewrite = catalog.begin(lock=["t"])
    with catalog.begin() as append:
        append.write("t", numbers(5), mode="append")
    assert append.result == {"default.t": 1}
    waited: list[float] = []
    started = threading.Event()

    def overwrite() -> None:
        begun = time.monotonic()
        started.set()
        with catalog.begin() as tx:
            tx.write("t", numbers(9), mode="overwrite")
        waited.append(time.monotonic() - begun)

    other = threading.Thread(target=overwrite)
    other.start()
    assert started.wait(30)
    time.sleep(0.4)
    assert not waited, "it waits"
    rewrite.rollback()
    other.join(30)
    assert waited[0] >= 0.4
    assert ids_in(catalog, "t") == [9]


def test_the_cut_is_made_after_the_lock_is_taken(catalog: Catalog) -> None:
    """What the transaction reads is what nobody rewrites any more."""
    first = catalog.begin(lock=["t"])
    seen: list[list[int]] = []

    def second() -> None:
        with catalog.begin(lock=["t"]) as tx:
            seen.append(ids_of(tx.table("t")))

    waiter = threading.Thread(target=second)
    waiter.start()
    time.sleep(0.2)
    first.write("t", numbers(7), mode="overwrite")
    first.commit()
    waiter.join(30)
    assert seen == [[7]]


def test_a_lock_that_is_not_given_up_is_named_in_the_error(catalog: Catalog) -> None:
    with catalog.begin(lock=["t"]) as holder:
        begun = time.monotonic()
        with pytest.raises(TableLockedError, match=rf"default\.t is locked by transaction {holder.txn_id}"):
            catalog.begin(lock=["u", "t"])
        assert 1.5 <= time.monotonic() - begun < 20
        assert leases(catalog) == [holder.txn_id], "whoever gets not all gets none"


def test_a_lock_expires_when_its_holder_died(catalog: Catalog) -> None:
    dead = IntentLocks(catalog.store, [row_of(catalog, "t")], "somebody who died", lease_seconds=0.3)
    assert dead._try() is None
    with catalog.begin(lock=["t"]) as tx:
        assert leases(catalog) == [tx.txn_id]
    begun = time.monotonic()
    dead._try()
    with catalog.begin() as rewrite:
        rewrite.write("t", numbers(3), mode="overwrite")
    assert time.monotonic() - begun < 20
    assert ids_in(catalog, "t") == [3]


def test_a_lock_is_renewed_while_its_transaction_lives(catalog: Catalog) -> None:
    locks = IntentLocks(catalog.store, [row_of(catalog, "t")], "me", lease_seconds=1.5)
    locks.take(1)
    try:
        time.sleep(2.0)  # longer than the lease; a renewal may be late on a busy machine
        other = IntentLocks(catalog.store, [row_of(catalog, "t")], "you")
        assert isinstance(other._try(), TableLockedError)
    finally:
        locks.release()
    assert leases(catalog) == []
    locks.release()


def test_a_lock_that_another_process_has_released_is_not_renewed(catalog: Catalog) -> None:
    here, there = (IntentLocks(catalog.store, [row_of(catalog, "t")], "one", lease_seconds=0.6) for _ in range(2))
    here.take(1)
    there.go_on()
    there.release()
    time.sleep(0.4)  # longer than a renewal
    assert leases(catalog) == []
    here.release()


def test_a_forgotten_transaction_gives_its_lock_back(catalog: Catalog) -> None:
    tx = catalog.begin(lock=["t"])
    assert leases(catalog) == [tx.txn_id]
    del tx
    import gc

    gc.collect()
    assert leases(catalog) == []
