"""What readers find in the lake afterwards: nothing is missing, and nothing is torn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pyarrow as pa

import deltalakedb as dl
from examples.capture_orders.capture import NAMESPACE
from examples.capture_orders.shop import TABLES
from examples.capture_orders.view import show


def show_results(catalog: dl.Catalog, dsn: str) -> None:
    """The same sums everywhere, some instants of the past, and the life of one order."""
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
