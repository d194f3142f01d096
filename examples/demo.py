"""A Delta table that `deltalake` writes, kept in SQLite and asked from there: what `make demo` shows."""

import argparse
import datetime as dt
import tempfile
import time
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
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


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    console.print(f"[bold]{title}")
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)


def step(text: str) -> None:
    console.rule(f"[bold cyan]{text}", align="left")


def write_table(path: Path) -> None:
    step("1. Someone writes an ordinary Delta table, with deltalake")
    for day in range(1, 11):
        write_deltalake(path, orders(day, start=day * 500), mode="append", partition_by="day")
    DeltaTable(path).delete("id % 10 = 3")
    DeltaTable(path).create_checkpoint()
    console.print(f"11 commits and a checkpoint in {path / '_delta_log'}")


def attach(catalog: dl.Catalog, path: Path) -> None:
    step("2. Its log is copied into SQL: every version, every action, nothing lost")
    started = time.perf_counter()
    catalog.attach_table(path, "sales.orders")
    console.print(f"attached in {(time.perf_counter() - started) * 1000:.0f} ms")
    columns = ("table", "mode", "version", "files", "rows", "bytes")
    rows = [
        (info.full_name, info.mode, info.version, info.num_files, info.num_records, info.size_bytes)
        for info in catalog.table_infos()
    ]
    show("dl tables", columns, rows)


def history(catalog: dl.Catalog) -> None:
    step("3. History and any question in SQL, without opening a file")
    entries = catalog.history("sales.orders", limit=4)
    show(
        "dl history sales.orders --limit 4", ("version", "operation"), [(e["version"], e["operation"]) for e in entries]
    )
    query = "select version, num_added_files, num_removed_files from dl_table_versions order by version desc limit 3"
    answer = catalog.sql(query)
    show(f'dl sql "{query}"', answer.column_names, ([*row.values()] for row in answer.to_pylist()))


def plan(catalog: dl.Catalog) -> None:
    step("4. A plan: the database decides which files a query has to read")
    console.print(catalog.table("sales.orders").plan("day >= '2026-01-04' and amount > 3600").explain())


def follow(catalog: dl.Catalog, path: Path) -> None:
    step("5. The table is written to again; the catalog follows, commit by commit")
    write_deltalake(path, orders(11, start=5_500), mode="append")
    before = catalog.table("sales.orders").version()
    catalog.follow("sales.orders")
    table = catalog.table("sales.orders")
    console.print(f"version {before} -> {table.version()}, now {table.count():,} rows")
    report = catalog.validate("sales.orders")
    assert report.drift is None, report.drift
    console.print(f"validated against the files: {report.num_commits_compared} commits compared, no drift")


def time_travel(catalog: dl.Catalog) -> None:
    step("6. Time travel is a where clause")
    table = catalog.table("sales.orders")
    rows = []
    for version in (0, 4, 9, 10, table.version()):
        table.load_as_version(version)
        totals = table.totals()
        rows.append((version, totals.num_files, f"{totals.num_records:,}"))
    show("the same table at some of its versions", ("version", "files", "rows"), rows)
    difference = table.diff(9, 10)
    console.print(
        f"9 -> 10 (the delete): {difference.added.num_rows} files in, {difference.removed.num_rows} files out"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="deltalakedb-demo-") as scratch:
        root = folder or Path(scratch)
        write_table(root / "orders")
        with dl.connect(root / "catalog.db") as catalog:
            attach(catalog, root / "orders")
            history(catalog)
            plan(catalog)
            follow(catalog, root / "orders")
            time_travel(catalog)
        console.rule(align="left")
        if folder:
            console.print(f"left in {folder}: try `DL_CATALOG={folder / 'catalog.db'} .venv/bin/dl tables`")
        else:
            console.print("`python examples/demo.py --keep DIR` leaves table and catalog behind, for `dl` to try on")


if __name__ == "__main__":
    main()
