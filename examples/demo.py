"""Two tables written in one transaction, read by others, planned, travelled and given back: what `make demo` shows."""

import argparse
import datetime as dt
import tempfile
import time
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import deltalakedb as dl

console = Console()


def orders(day: int, start: int, count: int = 500) -> pa.Table:
    """One day's orders; amounts grow with the id, so files differ in their bounds."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": [dt.date(2026, 1, day)] * count,
            "amount": pa.array([Decimal(i * 3) / 4 for i in ids], pa.decimal128(10, 2)),
            "customer": [f"customer {i % 97:02}" for i in ids],
        }
    )


def totals(day: int, start: int, count: int = 500) -> pa.Table:
    """What the orders of a day add up to."""
    return pa.table({"day": [dt.date(2026, 1, day)], "orders": [count], "first_id": [start]})


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    console.print(f"[bold]{title}")
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)


def step(text: str) -> None:
    console.rule(f"[bold cyan]{text}", align="left")


def write(catalog: dl.Catalog) -> None:
    step("1. Ten days into two tables: each day is one transaction")
    for day in range(1, 11):
        with catalog.begin(message=f"load of January {day}") as tx:
            tx.write("sales.orders", orders(day, day * 500), mode="append", partition_by="day")
            tx.write("sales.totals", totals(day, day * 500), mode="append")
    try:
        with catalog.begin() as tx:
            tx.write("sales.orders", orders(11, 5_500), mode="append")
            raise RuntimeError("the loader fails half way")
    except RuntimeError as error:
        console.print(f"{error}: nothing of it is there, and its data file is gone")
    rows = [(info.full_name, info.version, info.num_files, info.num_records) for info in catalog.table_infos()]
    show("dl tables", ("table", "version", "files", "rows"), rows)


def read_elsewhere(root: Path) -> None:
    step("2. The files are Delta tables: readers read, writers meet a fence")
    path = root / "lake" / "sales" / "orders"
    table = deltalake.DeltaTable(path)
    console.print(f"deltalake: version {table.version()}, {table.to_pyarrow_table().num_rows:,} rows")
    try:
        deltalake.write_deltalake(path, orders(11, 5_500), mode="append")
    except deltalake.exceptions.DeltaError as error:
        console.print(f"deltalake may not write: {error}")


def history(catalog: dl.Catalog) -> None:
    step("3. Who did what: one SQL query over all tables")
    query = "select name, version, operation, message from vw_table_history order by committed_at_ms desc, name limit 4"
    answer = catalog.sql(query)
    show(f'dl sql "{query}"', answer.column_names, ([*row.values()] for row in answer.to_pylist()))


def plan(catalog: dl.Catalog) -> None:
    step("4. A plan: the database decides which files a query has to read")
    console.print(catalog.table("sales.orders").plan("day >= '2026-01-04' and amount > 3600").explain())


def conflict(catalog: dl.Catalog) -> None:
    step("5. Two at once: appends pass each other, a real clash is named")
    rewrite, append = catalog.begin(message="keep large orders"), catalog.begin(message="late orders")
    large = rewrite.table("sales.orders").to_pyarrow_table(filters=[("amount", ">=", Decimal(1000))])
    rewrite.write("sales.orders", large, mode="overwrite")
    append.write("sales.orders", orders(12, 6_000), mode="append")
    console.print(f"committed: {append.commit()}")
    try:
        rewrite.commit()
    except dl.CommitFailedError as error:
        console.print(f"{type(error).__name__}: {error}")


def time_travel(catalog: dl.Catalog) -> None:
    step("6. The whole catalog at one instant: transactions whole or not at all")
    rows = []
    for entry in catalog.history("sales.totals")[::3]:
        then = catalog.at(entry["txnId"])
        counts = [then.table(name).count() for name in ("sales.orders", "sales.totals")]
        rows.append((entry["deltalakedb"]["message"], f"{counts[0]:,}", counts[1]))
    show("catalog.at(transaction)", ("as it was after", "orders", "totals"), rows)


def follow(catalog: dl.Catalog, root: Path) -> None:
    step("7. A table that others write is followed, then taken over")
    path = root / "others"
    for day in range(1, 4):
        deltalake.write_deltalake(path, orders(day, day * 500), mode="append")
    started = time.perf_counter()
    table = catalog.attach_table(path, "others.orders")
    console.print(f"attached in {(time.perf_counter() - started) * 1000:.0f} ms, at version {table.version()}")
    deltalake.write_deltalake(path, orders(4, 2_000), mode="append")
    catalog.follow("others.orders")
    console.print(f"followed to version {catalog.table('others.orders').version()}")
    table = catalog.promote_table("others.orders")
    console.print(f"promoted: version {table.version()} is the fence, from now on SQL decides")


def give_back(catalog: dl.Catalog, root: Path) -> None:
    step("8. SQL held against the files, and a table given back")
    for name in catalog.tables():
        report = catalog.validate(name)
        assert report.drift is None, report.drift
        console.print(f"{name}: {report.num_commits_compared} commits and a state compared, no drift")
    catalog.detach_table("sales.totals")
    deltalake.write_deltalake(root / "lake" / "sales" / "totals", totals(13, 6_500), mode="append")
    console.print("sales.totals is detached: the fence is off, and deltalake has appended to it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="deltalakedb-demo-") as scratch:
        root = folder or Path(scratch)
        with dl.connect(root / "catalog.db", warehouse=str(root / "lake")) as catalog:
            write(catalog)
            read_elsewhere(root)
            history(catalog)
            plan(catalog)
            conflict(catalog)
            time_travel(catalog)
            follow(catalog, root)
            give_back(catalog, root)
        console.rule(align="left")
        if folder:
            console.print(f"left in {folder}: try `DL_CATALOG={folder / 'catalog.db'} .venv/bin/dl tables`")
        else:
            console.print("`python examples/demo.py --keep DIR` leaves tables and catalog behind, for `dl` to try on")


if __name__ == "__main__":
    main()
