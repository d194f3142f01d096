"""Change capture of odd shapes: all rows in one transaction, and many tables of which few are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import pyarrow.compute as pc

from bench.cdc_lab import (
    MAKE_ORDERS,
    NAMESPACE,
    PUBLICATION,
    RECV_SLOT,
    CaptureLab,
    SourceDatabase,
    capture_lab,
    clock,
    engines_of,
)
from bench.lab import Lab, say
from bench.report import Row

WARM_ROWS = 20_000
FEW, MANY = 3, 300
ROUNDS = 5
LARGE_NOTE = (
    "one transaction: inserts of new rows, then an update of all of them, from the log of Postgres to both layers; "
    "*pg_recvlogical* drains the same log into /dev/null"
)
IDLE_NOTE = (
    f"idle tables: {FEW} tables get 1,000 rows each, the others nothing; a whole run in once-mode on a Spark that "
    f"runs, median of {ROUNDS}; beside it the same where there are no others"
)


def large_rows(lab: Lab) -> list[Row]:
    """A million rows in one transaction, inserted and then updated."""
    captures, engine, count = capture_lab(lab), engines_of(lab)[0], lab.sizes.cdc_rows
    with captures.source("large") as source, captures.lake(engine, "large") as catalog:
        source.run(MAKE_ORDERS.format("orders"), f"create publication {PUBLICATION} for table orders")
        captures.capture(catalog, source)
        source.fill("orders", WARM_ROWS, 4)
        captures.capture(catalog, source)
        source.make_slot(RECV_SLOT)

        def row(what: str, change: Callable[[], object]) -> Row:
            say(what, change)
            end = source.run("select pg_current_wal_flush_lsn()::text")
            ours = say("capturing", lambda: clock(lambda: captures.capture(catalog, source)))
            theirs = say("pg_recvlogical", lambda: clock(lambda: captures.receive(source, end)))
            mine, peer = f"{count / ours:,.0f} rows/s", f"pg_recvlogical {count / theirs:,.0f} rows/s"
            return Row(what, engine, mine, peer, theirs / ours, "x as fast", None, LARGE_NOTE)

        inserts = row(
            f"{count:,} inserts in one transaction", lambda: source.fill("orders", count, 1, first=WARM_ROWS + 1)
        )
        update = f"update orders set amount = amount + 1, status = 'changed' where id > {WARM_ROWS}"
        updates = row(f"{count:,} updates in one transaction", lambda: source.run(update))
        current = catalog.table(f"{NAMESPACE}.orders").to_pyarrow_table(columns=["id", "amount"])
        assert current.num_rows == count + WARM_ROWS
        assert pc.sum(current["amount"]).as_py() == source.run("select sum(amount) from orders")
    return [inserts, updates]


@dataclass(frozen=True, slots=True)
class _Times:
    copy: float
    batch: float


def idle_rows(lab: Lab) -> list[Row]:
    """What tables cost that nobody writes."""
    captures, engine = capture_lab(lab), engines_of(lab)[0]
    few, many = (_times(captures, engine, count) for count in (FEW, MANY))
    return [
        Row(
            f"{MANY} small tables copied", engine, f"{many.copy:.1f} s", f"{FEW} tables {few.copy:.1f} s",
            many.copy / few.copy, "x as long",
        ),
        Row(
            f"{FEW} of {MANY} tables written", engine, f"{many.batch:.2f} s", f"{FEW} of {FEW} {few.batch:.2f} s",
            many.batch / few.batch, "x as long", None, IDLE_NOTE,
        ),
    ]  # fmt: skip


def _times(captures: CaptureLab, engine: str, count: int) -> _Times:
    with captures.source(f"idle_{count}") as source, captures.lake(engine, f"idle_{count}") as catalog:
        for number in range(count):
            source.run(
                f"create table t{number} (id bigint generated always as identity primary key, n int)",
                f"insert into t{number} (n) select n from generate_series(1, 10) n",
            )
        source.run(f"create publication {PUBLICATION} for all tables")
        copy = say(f"copying {count} tables", lambda: clock(lambda: captures.capture(catalog, source)))
        batches = []
        for _ in range(ROUNDS):
            _write(source)
            batches.append(clock(lambda: captures.capture(catalog, source)))
        found = catalog.table(f"{NAMESPACE}.t{FEW - 1}").count()
        assert found == 10 + 1_000 * ROUNDS, f"t{FEW - 1} has {found} rows"
    return _Times(copy, median(batches))


def _write(source: SourceDatabase) -> None:
    for number in range(FEW):
        source.run(f"insert into t{number} (n) select n from generate_series(1, 1000) n")
