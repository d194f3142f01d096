"""Transactions that really run beside each other: the order of their commits explains what each of them saw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import CommitFailedError, TableExistsError, TableNotFoundError
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.store.names import parse_table_name
from tests.conformance.catalog_checks import Checks
from tests.conformance.catalog_model import OK, State
from tests.conformance.catalog_performing import in_transaction, observe, uuid_of
from tests.conformance.catalog_steps import (
    NAMES,
    Call,
    Create,
    Delete,
    Drop,
    Exists,
    Names,
    Read,
    Rename,
    Step,
    Undrop,
    Write,
)
from tests.conformance.serial_orders import Unit, find_order
from tests.conformance.transacting import open_catalog
from tests.fixtures.sizes import sized

WORKERS = 3
TRANSACTIONS = sized(8, 40)


@dataclass(slots=True)
class Log:
    """What all workers have committed, by transaction id, and the tables they have made."""

    units: dict[str, Unit] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    moments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


def draw_statement(choose: random.Random) -> Step:
    one, other = choose.sample(NAMES, 2)
    makers: tuple[Callable[[], Step], ...] = (
        lambda: Create(0, one, None, choose.random() < 0.5),
        lambda: Drop(0, one, choose.random() < 0.3),
        lambda: Undrop(0, one, choose.choice((one, other))),
        lambda: Rename(0, one, other),
        lambda: Write(0, one, choose.random() < 0.3),
        lambda: Write(0, one),
        lambda: Delete(0, one, choose.choice((None, 0, 1))),
        lambda: Read(0, one),
        lambda: Exists(0, one),
        lambda: Names(0),
    )
    return choose.choice(makers)()


def work(target: str, root: Path, seed: int, log: Log) -> None:
    """Transactions one after another, as they come; those that conflict are given up."""
    choose = random.Random(seed)
    mode = choose.choice(("inline", "background", "off"))
    with open_catalog(target, root, mirror_mode=mode) as catalog:
        for _ in range(TRANSACTIONS):
            unit = Unit(next(log.moments), next(log.moments))
            tx = catalog.begin()
            for _ in range(choose.randint(1, 3)):
                run(tx, Call(draw_statement(choose), next(log.moments)), unit, log)
            try:
                tx.commit()
            except (CommitFailedError, TableExistsError, TableNotFoundError):
                continue
            unit.ended = next(log.moments)
            log.units[tx.txn_id] = unit


def run(tx: CatalogTransaction, call: Call, unit: Unit, log: Log) -> None:
    seen = observe(lambda: in_transaction(tx, call, Path))
    step = call.step
    if seen == OK and isinstance(step, Create | Write):
        draft = tx.find_draft(parse_table_name(step.name))
        assert draft is not None
        if draft.is_new:
            log.keys.setdefault(draft.row.table_uuid, call.new_key)
    if seen == OK and isinstance(step, Undrop):
        call = replace(call, key=log.keys[uuid_of(tx, step.target)])
    unit.calls.append((call, seen))


def in_order_of_commits(catalog: Catalog, log: Log) -> list[Unit]:
    """Those that changed something; a transaction that has only read is in no order."""
    rows = catalog.sql("select txn_id from dl_transactions order by committed_at_ms, txn_id").column("txn_id")
    return [log.units[txn_id] for txn_id in rows.to_pylist() if txn_id in log.units]


@pytest.mark.parametrize("seed", range(sized(3, 100)))
def test_parallel_transactions_have_the_outcome_of_some_serial_order(target: str, tmp_path: Path, seed: int) -> None:
    log = Log()
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, target, tmp_path, WORKERS * seed + number, log) for number in range(WORKERS)]:
            done.result()
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        checks = Checks(catalog, tmp_path)
        facts, units = checks.look(), in_order_of_commits(catalog, log)
        found = find_order(State(), units, lambda state: checks.is_state(state, facts), keeps_dropped=True)
        assert found is not None, "no serial order explains this:\n" + "\n".join(map(repr, units))
        checks.know(log.keys)
        checks.at_end(found[1], lambda: reconcile(catalog))


def reconcile(catalog: Catalog) -> None:
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        reconciler.once()
