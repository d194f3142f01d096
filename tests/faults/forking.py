"""A process that reads, writes and commits in threads while it forks: run by tests/faults/test_forks.py.

    python -m tests.faults.forking CATALOG METHOD ROUNDS

It ends with 0 when every child has done its work and nothing is lost; a process that hangs shows where, and ends.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

import deltalakedb as dl
from deltalakedb.exceptions import CommitFailedError
from tests.fixtures.sizes import give_duckdb_one_thread

LONGEST_SECONDS = 100
PAUSE_SECONDS = 0.02
"""Between two steps of a busy thread: DuckDB lets one process in at a time."""
TABLE = "forks.t"
BUSY = "forks.busy"
opened: dict[str, dl.Catalog] = {}
"""What the parent has opened: a child that was forked finds it here, another one opens its own."""


faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
"""Whoever takes too long shows where it is, and ends."""


def catalog_of(uri: str) -> dl.Catalog:
    if uri not in opened:
        opened[uri] = dl.connect(uri)
    return opened[uri]


def add_row(catalog: dl.Catalog, name: str, number: int) -> None:
    with catalog.begin(tables=[name]) as tx:
        tx.write(name, pa.table({"id": [number], "f": [float(number)]}), mode="append")


def work(uri: str, number: int) -> int:
    """One row more, seen by every way to read it: with what the parent has opened, and with a catalog of its own."""
    signal.alarm(LONGEST_SECONDS)
    catalog = catalog_of(uri)
    add_row(catalog, TABLE, number)
    table = catalog.table(TABLE)
    assert number in table.to_pyarrow_table(filters=f"id = {number}")["id"].to_pylist()
    asked = dl.QueryBuilder().register("t", table).execute(f"select f from t where f = {number}")
    assert asked.read_all()["f"].to_pylist() == [float(number)]
    with dl.connect(uri) as own:
        there = own.table(TABLE)
        assert there.to_pyarrow_dataset().to_table().num_rows == there.count()
    change(catalog, number)
    signal.alarm(0)
    return number


def change(catalog: dl.Catalog, number: int) -> None:
    """An update by the query engine; others change the same table, and then it is tried again."""
    for _ in range(100):
        try:
            told = catalog.table(TABLE).update({"f": "f + 0.5"}, predicate=f"id = {number}")
        except CommitFailedError:
            continue
        assert told["num_updated_rows"] == 1, told
        return
    raise AssertionError("other writers came first a hundred times")


def work_in_children(method: str, uri: str, number: int) -> list[int]:
    """The same in children of this child, after it has done some itself."""
    signal.alarm(LONGEST_SECONDS)
    done = [work(uri, number)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        done += pool.map(work, [uri] * 2, [number + 1, number + 2])
    signal.alarm(0)
    return done


@contextmanager
def busy(catalog: dl.Catalog) -> Iterator[dict[str, int]]:
    """Threads that read, ask, write and change all the time."""
    stop = threading.Event()
    counts = {"written": 0, "read": 0, "asked": 0}
    failed: list[BaseException] = []

    def write() -> None:
        add_row(catalog, BUSY, counts["written"])
        counts["written"] += 1

    def read() -> None:
        catalog.table(BUSY).to_pyarrow_table()
        counts["read"] += 1

    def ask() -> None:
        asked = dl.QueryBuilder().register("b", catalog.table(BUSY)).execute("select count(*) as n from b where f > -1")
        asked.read_all()
        counts["asked"] += 1

    def run(step: Callable[[], None]) -> None:
        while not stop.wait(PAUSE_SECONDS) and not failed:
            try:
                step()
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=run, args=(step,)) for step in (write, read, ask)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def main(uri: str, method: str, rounds: int) -> None:
    give_duckdb_one_thread()
    signal.alarm(2 * LONGEST_SECONDS * rounds)
    catalog = catalog_of(uri)
    for name in (TABLE, BUSY):
        catalog.create_table(name, pa.schema([("id", pa.int64()), ("f", pa.float64())]))
    add_row(catalog, BUSY, -1)
    expected = []
    unread = dl.QueryBuilder().register("b", catalog.table(BUSY)).execute("select * from b")
    with busy(catalog) as counts:
        for turn in range(rounds):
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
                waiting = [pool.submit(work_in_children, method, uri, 100 * turn + 10 * place) for place in range(2)]
                for one in waiting:
                    expected += one.result()
    assert catalog.table(TABLE).to_pyarrow_table().sort_by("id")["id"].to_pylist() == sorted(expected)
    assert [row["f"] for row in catalog.table(TABLE).to_pyarrow_table().sort_by("id").to_pylist()] == [
        number + 0.5 for number in sorted(expected)
    ]
    assert catalog.table(BUSY).count() == counts["written"] + 1
    assert unread.read_all().num_rows == 1, "the parent reads on what it has begun"
    catalog.close()
    print(f"{len(expected)} children; meanwhile {counts}, pid {os.getpid()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
