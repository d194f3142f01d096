"""Change capture: rows a second from the log to committed tables, updates in a large table, and the lag of a stream."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

import deltalakedb as dl
from bench.cdc_lab import (
    MAKE_EVENTS,
    MAKE_ORDERS,
    NAMESPACE,
    PUBLICATION,
    RECV_SLOT,
    SLOT,
    CaptureLab,
    SourceDatabase,
    capture_lab,
    clock,
    engines_of,
)
from bench.cdc_merge import merge_rows
from bench.cdc_shapes import idle_rows, large_rows
from bench.lab import Lab, say
from bench.report import Row, at_least, below
from deltalakedb.cdc.control import load_capture
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.settings import CaptureSettings

CONSUMER_SLOT = "consumer"
WARM_ROWS = 20_000
TRANSACTIONS = 100
INSERT_NOTE = (
    "inserts: from the log of Postgres to both layers, committed and mirrored, in once-mode on a Spark that runs and "
    "has captured some rows before; *pg_recvlogical* drains the same log into /dev/null; *psycopg2 + deltalake* "
    "decodes it in Python and appends to one Delta table, of changes alone"
)
UPDATE_NOTE = (
    "updates: random keys over the whole table, in 100 transactions, from the log to both layers; *pg_recvlogical* "
    "drains the same log into /dev/null"
)
LAG_NOTE = (
    "lag: from the commit at the source, by its clock, to the moment a reader of the lake that looks every 20 ms first "
    "sees it, over all transactions; each inserts a row and updates another (pgbench, commits not waited for)"
)
WARM_SECONDS = 15.0


def insert_rows(lab: Lab) -> list[Row]:
    """The same log for three readers, each with a slot of its own."""
    captures, rows = capture_lab(lab), []
    for engine in engines_of(lab):
        with captures.source(f"inserts_{engine}") as source, captures.lake(engine, "inserts") as catalog:
            rows += _insert_rows(captures, engine, source, catalog)
    return rows


def _insert_rows(captures: CaptureLab, engine: str, source: SourceDatabase, catalog: dl.Catalog) -> list[Row]:
    count = captures.lab.sizes.cdc_rows
    source.run(MAKE_ORDERS.format("orders"), f"create publication {PUBLICATION} for table orders")
    captures.capture(catalog, source)
    source.fill("orders", WARM_ROWS, 4)
    captures.capture(catalog, source)
    source.make_slot(RECV_SLOT)
    source.make_slot(CONSUMER_SLOT)
    say(f"inserting {count:,} rows", lambda: source.fill("orders", count, TRANSACTIONS, first=WARM_ROWS + 1))
    end = source.run("select pg_current_wal_flush_lsn()::text")
    ours = say(f"capturing on {engine}", lambda: clock(lambda: captures.capture(catalog, source)))
    for table in ("orders", "orders_changes"):
        found = catalog.table(f"{NAMESPACE}.{table}").count()
        assert found == count + WARM_ROWS, f"{table} has {found} rows"
    received = say("pg_recvlogical", lambda: clock(lambda: captures.receive(source, end)))
    consumed = say("psycopg2 + deltalake", lambda: _consume(captures.lab.folder / f"consumed_{engine}", source, end))
    assert consumed["rows"] == count, consumed
    what, mine = f"{count:,} inserts", f"{count / ours:,.0f} rows/s"
    return [
        Row(what, engine, mine, "", count / ours, " rows/s", at_least(100_000, " rows/s"), INSERT_NOTE),
        Row(what, engine, mine, f"pg_recvlogical {count / received:,.0f} rows/s", received / ours, "x as fast"),
        Row(
            what, engine, mine, f"psycopg2 + deltalake {count / consumed['seconds']:,.0f} rows/s",
            consumed["seconds"] / ours, "x as fast",
        ),
    ]  # fmt: skip


def _consume(folder: Path, source: SourceDatabase, end: str) -> dict[str, float]:
    arguments = [source.dsn, CONSUMER_SLOT, PUBLICATION, str(parse_lsn(end)), str(folder)]
    command = [sys.executable, "-m", "bench.cdc_consumer", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def update_rows(lab: Lab) -> list[Row]:
    """A large table is copied, then some of its rows change."""
    captures, engine, sizes = capture_lab(lab), engines_of(lab)[0], lab.sizes
    with captures.source("updates") as source, captures.lake(engine, "updates") as catalog:
        source.run(MAKE_ORDERS.format("orders"))
        say(f"filling {sizes.cdc_table_rows:,} rows", lambda: source.fill("orders", sizes.cdc_table_rows, 10))
        source.run(f"create publication {PUBLICATION} for table orders")
        copied = say("copying", lambda: clock(lambda: captures.capture(catalog, source)))
        source.make_slot(RECV_SLOT)
        changed = say("updating", lambda: _update(source, sizes.cdc_table_rows, sizes.cdc_updates))
        end = source.run("select pg_current_wal_flush_lsn()::text")
        applied = say("capturing", lambda: clock(lambda: captures.capture(catalog, source)))
        received = say("pg_recvlogical", lambda: clock(lambda: captures.receive(source, end)))
        current = catalog.table(f"{NAMESPACE}.orders").to_pyarrow_table(columns=["id", "amount"])
        assert current.num_rows == sizes.cdc_table_rows
        expected = source.run("select sum(amount) from orders")
        assert pc.sum(current["amount"]).as_py() == expected
    large = f"{sizes.cdc_table_rows:,} rows"
    rate = sizes.cdc_table_rows / copied
    return [
        Row(f"first copy of {large}", engine, f"{copied:.1f} s", "", rate, " rows/s"),
        Row(
            f"{changed:,} updates by random keys in {large}", engine, f"{applied:.1f} s",
            f"pg_recvlogical {received:.1f} s", applied / received, "x as long", None, UPDATE_NOTE,
        ),
    ]  # fmt: skip


def _update(source: SourceDatabase, rows: int, updates: int) -> int:
    """How many rows were changed: a key is drawn more than once now and then."""
    each, changed = updates // TRANSACTIONS, 0
    with source.connect() as connection:
        connection.execute("select setseed(0.7)")
        for _ in range(TRANSACTIONS):
            changed += connection.execute(
                "update orders set amount = amount + 1, status = 'changed' "
                "where id = any (array(select 1 + floor(random() * %s)::bigint from generate_series(1, %s)))",
                [rows, each],
            ).rowcount
    return changed


def lag_rows(lab: Lab) -> list[Row]:
    """A steady stream of small transactions, captured with a window of two seconds."""
    captures, engine, sizes = capture_lab(lab), engines_of(lab)[0], lab.sizes
    with captures.source("lag") as source, captures.lake(engine, "lag") as catalog:
        source.run(*MAKE_EVENTS)
        captures.capture(catalog, source)
        watch = Watch(catalog, source)
        with captures.capturing(catalog, source, batch_window="2s") as check, watch:
            source.run("insert into events (payload) values ('the first one')")  # seen once the stream runs
            watch.wait_for(parse_lsn(source.run("select pg_current_wal_flush_lsn()::text")), check)
            seconds = WARM_SECONDS + sizes.cdc_seconds
            done = say(f"{sizes.cdc_rate} transactions/s", lambda: captures.transact(source, sizes.cdc_rate, seconds))
            watch.wait_for(parse_lsn(source.run("select pg_current_wal_flush_lsn()::text")), check)
        lags = watch.lags(catalog, warm_seconds=WARM_SECONDS)
    p50, p95, worst = (float(np.percentile(lags, rank)) for rank in (50, 95, 100))
    what = f"lag at {done / seconds:,.0f} transactions/s, 2 s window"
    assert done / seconds >= 0.95 * sizes.cdc_rate, f"the source did only {done / seconds:.0f} transactions/s"
    return [
        Row(
            what,
            engine,
            f"p50 {p50:.1f} p95 {p95:.1f} max {worst:.1f} s",
            "",
            p95,
            " s (p95)",
            below(6, " s"),
            LAG_NOTE,
        )
    ]


class Watch:
    """A reader of the lake that notes when it first sees each LSN."""

    def __init__(self, catalog: dl.Catalog, source: SourceDatabase) -> None:
        self._settings = CaptureSettings(source.dsn, PUBLICATION, slot=SLOT, namespace=NAMESPACE)
        self._catalog, self._stop = catalog, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen: list[tuple[int, float]] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            capture = load_capture(self._catalog, self._settings)
            if capture is not None and (not self.seen or capture.lsn > self.seen[-1][0]):
                self.seen.append((capture.lsn, time.time()))
            self._stop.wait(0.02)

    def wait_for(self, lsn: int, check: Callable[[], None]) -> None:
        deadline = time.monotonic() + 120
        while not self.seen or self.seen[-1][0] < lsn:
            check()
            if time.monotonic() > deadline:
                raise RuntimeError("the capture did not come level with the source")
            time.sleep(0.05)

    def lags(self, catalog: dl.Catalog, warm_seconds: float) -> Any:
        """Seconds of each transaction after the first ones."""
        changes = catalog.table(f"{NAMESPACE}.events_changes").to_pyarrow_table(columns=["_lsn", "_committed_at"])
        lsns = changes["_lsn"].to_numpy()
        committed = changes["_committed_at"].cast("int64").to_numpy() / 1e6
        visible = np.array([at for _, at in self.seen])[np.searchsorted([lsn for lsn, _ in self.seen], lsns, "right")]
        return (visible - committed)[committed > committed[lsns > lsns.min()].min() + warm_seconds]


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "cdc-inserts": insert_rows,
    "cdc-large": large_rows,
    "cdc-updates": update_rows,
    "cdc-merge": merge_rows,
    "cdc-idle": idle_rows,
    "cdc-lag": lag_rows,
}
