"""The rows of Delta tables as Iceberg clients see them: loading, plans, and the manifests written for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalakedb as dl
from bench.lab import Lab, say
from bench.measure import time_in_turns, time_once
from bench.report import Row, at_least, at_most, milliseconds
from bench.tables import ROWS_PER_FILE, Spec, append_commit, write_checkpoint_table
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.delta.delta_plan import DeltaPlans
from deltalakedb.store.names import TableName

NAME = TableName("bench", "t")
PLAN_NOTE = (
    "load + plan = the answers to `GET` of a Delta table and to one selective plan, as `dl serve` gives them once its "
    "manifests are written; PyIceberg: loading the same table and `plan_files()` from these manifests"
)
FIRST_NOTE = "first load = manifests of all files, their list and metadata.json are written"
ONE_NOTE = "load after one commit = a commit of one file by another writer is followed, and its manifest is written"


class ServedTable:
    """A Delta table that others write, in an open catalog, as a server has it."""

    def __init__(self, uri: str, folder: Path) -> None:
        self._catalog = dl.connect(uri)
        self._catalog.attach_table(str(folder), str(NAME))
        self._iceberg = IcebergCatalog(self._catalog)
        self._plans = DeltaPlans(self._catalog)

    def load(self) -> int:
        return self._iceberg.load_table(NAME).version

    def load_and_plan(self, condition: Any) -> int:
        table = self._iceberg.load_table(NAME)
        assert table.delta is not None
        return len(self._plans.plan(NAME, table.delta, {"filter": condition})["file-scan-tasks"])

    def pyiceberg_plan(self, condition: str) -> int:
        return len(list(self._catalog.iceberg(str(NAME)).scan(row_filter=condition).plan_files()))

    def close(self) -> None:
        self._catalog.close()


def delta_rows(lab: Lab) -> list[Row]:
    """A table of many files, and one of ten times as many."""
    rows: list[Row] = []
    for engine in lab.engines:
        medians = {}
        for num_files in (lab.sizes.files, lab.sizes.large_files):
            medians[num_files] = _measure(lab, engine, num_files, rows)
        few, many = (medians[number] for number in (lab.sizes.files, lab.sizes.large_files))
        what = f"load + plan 1 of {lab.sizes.large_files:,}"
        against = f"{lab.sizes.files:,} files {milliseconds(few)}"
        bar = at_most(3) if engine != "duckdb" else None  # which scans a column's bounds
        rows.append(Row(what, engine, milliseconds(many), against, many / few, "x as long", bar, PLAN_NOTE))
    return rows


def _measure(lab: Lab, engine: str, num_files: int, rows: list[Row]) -> float:
    spec, folder = Spec(num_files), lab.folder / "iceberg_delta" / f"{engine}_{num_files}"
    say(f"generating {num_files:,} files", partial(write_checkpoint_table, folder, spec))
    uri = lab.empty_catalog(engine, f"iceberg_delta_{num_files}").uri
    table = say(f"attaching {num_files:,} files on {engine}", partial(ServedTable, uri, folder))
    try:
        first = say(f"first load on {engine}", partial(time_once, table.load))
        rate = num_files / first.seconds
        what = f"first load of {num_files:,} files"
        rows.append(Row(what, engine, f"{first.seconds:.1f} s", "", rate, " files/s", None, FIRST_NOTE))
        seconds = []
        for _ in range(lab.sizes.rounds):
            append_commit(folder, spec)
            seconds.append(time_once(table.load).seconds)
        one = sorted(seconds)[len(seconds) // 2]
        what, against = f"load after one commit to {num_files:,} files", f"all manifests {first.seconds:.1f} s"
        rows.append(
            Row(what, engine, milliseconds(one * 1000), against, first.seconds / one, "x faster", None, ONE_NOTE)
        )
        return _plan(lab, engine, num_files, table, rows)
    finally:
        table.close()


def _plan(lab: Lab, engine: str, num_files: int, table: ServedTable, rows: list[Row]) -> float:
    value = num_files // 2 * ROWS_PER_FILE + 7
    calls: dict[str, Callable[[], int]] = {
        engine: partial(table.load_and_plan, {"type": "eq", "term": "id", "value": value})
    }
    if num_files == lab.sizes.files:
        calls["PyIceberg"] = partial(table.pyiceberg_plan, f"id = {value}")
    timings = say(f"timing plans of {num_files:,} files", lambda: time_in_turns(calls, lab.sizes.rounds))
    for name, timing in timings.items():
        assert timing.answer == 1, f"{name} keeps {timing.answer} files instead of 1"
    us = timings[engine].median_ms
    if "PyIceberg" in timings:
        them = timings["PyIceberg"].median_ms
        what, against = f"load + plan 1 of {num_files:,}", f"PyIceberg {milliseconds(them)}"
        rows.append(Row(what, engine, milliseconds(us), against, them / us, "x faster", at_least(20), PLAN_NOTE))
    return us


ROWS: dict[str, Callable[[Lab], list[Row]]] = {"iceberg-delta": delta_rows}
