"""The rows of native Iceberg tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

import deltalakedb as dl
from bench.iceberg_tables import write_iceberg_table
from bench.lab import Lab, say
from bench.measure import time_in_turns, time_once
from bench.report import Row, at_least, milliseconds
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.names import TableName

ROWS_PER_FILE = 1_000
NAME = TableName("bench", "t")
PLAN_NOTE = (
    "iceberg plan = the answer of the service to one request, as `dl serve` gives it; PyIceberg: `plan_files()` of a "
    "loaded table, which reads the manifests"
)
INDEX_NOTE = "indexing = the first plan of a snapshot, which puts its files into SQL, over files"


class PlannedTable:
    """An Iceberg table in an open catalog, as a server has it."""

    def __init__(self, uri: str, metadata: dict[str, Any]) -> None:
        self._catalog = dl.connect(uri)
        self._service = PlanService(self._catalog)
        self._metadata = metadata

    def plan(self, condition: Any) -> int:
        answer = self._service.plan(NAME, 1, self._metadata, {"filter": condition})
        return len(answer["file-scan-tasks"])

    def close(self) -> None:
        self._catalog.close()


def conditions(num_files: int) -> dict[int, tuple[Any, str]]:
    """Conditions that keep 1 and 100 files: as requests, and as PyIceberg reads them."""
    first = num_files // 2 * ROWS_PER_FILE
    last = first + 100 * ROWS_PER_FILE
    span = {
        "type": "and",
        "left": {"type": "gt-eq", "term": "id", "value": first},
        "right": {"type": "lt", "term": "id", "value": last},
    }
    return {
        1: ({"type": "eq", "term": "id", "value": first + 7}, f"id = {first + 7}"),
        100: (span, f"id >= {first} and id < {last}"),
    }


def pyiceberg_plan(table: StaticTable, condition: str) -> int:
    return len(list(table.scan(row_filter=condition).plan_files()))


def plan_rows(lab: Lab) -> list[Row]:
    num_files = lab.sizes.files
    path = say(f"writing {num_files:,} entries", lambda: write_iceberg_table(_folder(lab), num_files, ROWS_PER_FILE))
    metadata = json.loads(path.read_text())
    theirs = StaticTable.from_metadata(path.as_uri())
    rows, tables = [], {}
    for engine in lab.engines:
        uri = lab.empty_catalog(engine, "iceberg").uri
        tables[engine] = lab.keep(f"iceberg/{engine}", partial(PlannedTable, uri, metadata))
        first = say(f"indexing on {engine}", lambda: time_once(lambda: tables[engine].plan(False)))  # noqa: B023
        rate = num_files / first.seconds
        rows.append(Row("iceberg index", engine, f"{first.seconds:.1f} s", "", rate, " files/s", None, INDEX_NOTE))
    for keep, (request, condition) in conditions(num_files).items():
        calls: dict[str, Callable[[], int]] = {"PyIceberg": partial(pyiceberg_plan, theirs, condition)}
        calls |= {engine: partial(table.plan, request) for engine, table in tables.items()}
        timings = say(f"timing plans that keep {keep}", lambda: time_in_turns(calls, lab.sizes.rounds))  # noqa: B023
        for name, timing in timings.items():
            assert timing.answer == keep, f"{name} keeps {timing.answer} files instead of {keep}"
        them = timings["PyIceberg"].median_ms
        for engine in tables:
            us = timings[engine].median_ms
            what, against = f"iceberg plan, {keep} of {num_files:,}", f"PyIceberg {milliseconds(them)}"
            rows.append(Row(what, engine, milliseconds(us), against, them / us, "x faster", at_least(20), PLAN_NOTE))
    return rows


def _folder(lab: Lab) -> Path:
    return lab.folder / "iceberg" / "t"


ROWS: dict[str, Callable[[Lab], list[Row]]] = {"iceberg-plan": plan_rows}
