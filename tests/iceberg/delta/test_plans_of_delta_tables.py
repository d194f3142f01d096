"""Plans of Delta tables are sound: of every version they name the files with matching rows, and all deleted rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.data.deletion_vectors import decode_bitmap
from deltalakedb.iceberg.delta.delta_plan import DeltaPlans
from deltalakedb.iceberg.delta.delta_tables import DeltaState, DeltaTables
from deltalakedb.store.names import TableName
from tests.fixtures.sizes import sized
from tests.iceberg.planning.columns import KINDS
from tests.iceberg.planning.judge import draw_condition
from tests.iceberg.planning.lake import Lake

NAME = TableName("shop", "t")
CONDITIONS = sized(15, 60)
_TYPES = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "decimal(9,2)": pa.decimal128(9, 2), "decimal(18,2)": pa.decimal128(18, 2), "decimal(38,3)": pa.decimal128(38, 3),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(), "binary": pa.binary(),
}  # fmt: skip

Row = dict[int, Any]
"""A row's values by field id."""


@dataclass
class Rows:
    """Rows as the judge of plans takes them."""

    rows: list[Row]


@dataclass
class History:
    """A table with random versions, and the rows of each by their numbers."""

    catalog: Catalog
    random: Random
    columns: dict[int, tuple[str, str]] = field(default_factory=dict)
    written: dict[int, Row] = field(default_factory=dict)
    versions: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kinds = self.random.sample(sorted(_TYPES), 5)
        self.columns = {number + 2: (f"c{number}", kind) for number, kind in enumerate(kinds)}
        self.partition_by = [name for name, _ in self.columns.values() if self.random.random() < 0.25]

    @property
    def files(self) -> list[Rows]:
        return [Rows(list(self.written.values()))]

    def live(self) -> set[int]:
        return set(self.versions[-1]) if self.versions else set()

    def append(self) -> None:
        first = len(self.written)
        rows = [self._draw() for _ in range(self.random.randint(1, 8))]
        numbers = list(range(first, first + len(rows)))
        self.written |= dict(zip(numbers, rows, strict=True))
        columns = {"row": pa.array(numbers, pa.int64())} | {
            name: pa.array([row[place] for row in rows], _TYPES[kind]) for place, (name, kind) in self.columns.items()
        }
        data = pa.table(columns)
        vectors = str(self.random.random() < 0.5).lower()
        with self.catalog.begin() as tx:
            if self.versions:
                tx.write(str(NAME), data, mode="append", schema_mode="merge")
            else:
                configuration = {"delta.enableDeletionVectors": vectors}
                tx.write(str(NAME), data, partition_by=self.partition_by or None, configuration=configuration)
        self.versions.append(self.live() | set(numbers))

    def _draw(self) -> Row:
        values = {place: KINDS[kind].draw(self.random) for place, (_, kind) in self.columns.items()}
        empty = {place for place, (name, _) in self.columns.items() if name in self.partition_by}
        # An empty text or binary is null as a partition value.
        return {
            place: None if self.random.random() < 0.2 or (place in empty and value in ("", b"")) else value
            for place, value in values.items()
        }

    def delete(self) -> None:
        live = sorted(self.live())
        gone = self.random.sample(live, self.random.randint(1, max(1, len(live) // 3))) if live else []
        if gone:
            self.catalog.table(str(NAME)).delete(f"row in ({', '.join(map(str, gone))})")
            self.versions.append(self.live() - set(gone))

    def widen(self) -> None:
        place = max(self.columns) + 1
        self.columns[place] = (f"c{place - 2}", self.random.choice(sorted(_TYPES)))
        for row in self.written.values():
            row[place] = None
        self.append()

    def compact(self) -> None:
        before = self.catalog.table(str(NAME)).version()
        self.catalog.table(str(NAME)).optimize.compact()
        if self.catalog.table(str(NAME)).version() > before:
            self.versions.append(self.live())


def load(catalog: Catalog) -> DeltaState:
    with catalog.store.read() as conn:
        row = require_table(conn, NAME)
    return DeltaTables(catalog).load(row)


def rows_to_read(answer: Mapping[str, Any]) -> set[int]:
    """The numbers of the rows that a reader of a plan sees."""
    numbers: set[int] = set()
    for task in answer["file-scan-tasks"]:
        path = task["data-file"]["file-path"].removeprefix("file://")
        values = pq.ParquetFile(path).read(columns=["row"]).column("row").to_pylist()
        assert task["data-file"]["record-count"] == len(values)
        deleted: set[int] = set()
        for place in task.get("delete-file-references", ()):
            deleted |= _deleted(answer["delete-files"][place], task["data-file"]["file-path"])
        numbers |= {number for position, number in enumerate(values) if position not in deleted}
    return numbers


def _deleted(file: Mapping[str, Any], data_file: str) -> set[int]:
    assert file["referenced-data-file"] == data_file
    content = Path(file["file-path"].removeprefix("file://")).read_bytes()
    assert len(content) == file["file-size-in-bytes"]
    start, length = file["content-offset"], file["content-size-in-bytes"]
    positions = decode_bitmap(content[start + 4 : start + length - 4]).tolist()
    assert len(positions) == file["record-count"]
    return set(positions)


@pytest.mark.parametrize("seed", range(sized(4, 60)))
def test_no_file_with_a_matching_row_is_pruned_and_no_deleted_row_is_seen(catalog: Catalog, seed: int) -> None:
    random = Random(seed)
    history = History(catalog, random)
    history.append()
    for _ in range(random.randint(3, 7)):
        random.choice([history.append, history.append, history.delete, history.widen, history.compact])()
    state = load(catalog)
    snapshots = state.metadata["snapshots"]
    assert len(snapshots) == len(history.versions)
    plans = DeltaPlans(catalog, inline_files=random.choice((1, 2_000)), task_files=2)
    for _ in range(CONDITIONS):
        version = random.choice((len(snapshots) - 1, random.randrange(len(snapshots))))
        condition, matches = draw_condition(random, cast(Lake, history))
        request: dict[str, Any] = {"filter": condition}
        if version < len(snapshots) - 1 or random.random() < 0.5:
            request["snapshot-id"] = snapshots[version]["snapshot-id"]
        answer = plans.plan(NAME, state, request)
        assert answer["status"] == "completed", answer
        seen = rows_to_read(answer)
        for task in answer.get("plan-tasks", ()):
            seen |= rows_to_read(plans.tasks(NAME, state, task))
        live = history.versions[version]
        assert seen <= live
        assert {number for number in live if matches(history.written[number])} <= seen, (condition, version)


def test_partition_values_and_paths_are_those_of_the_files(catalog: Catalog) -> None:
    data = pa.table({"row": [1, 2, 3], "part": ["a b/%", None, "ü=+"]})
    with catalog.begin() as tx:
        tx.write(str(NAME), data, partition_by=["part"])
    answer = DeltaPlans(catalog).plan(NAME, load(catalog), {})
    found = {}
    for task in answer["file-scan-tasks"]:
        file = task["data-file"]
        (number,) = pq.ParquetFile(file["file-path"].removeprefix("file://")).read(columns=["row"])["row"].to_pylist()
        found[number] = file["partition"]
        assert unquote(file["file-path"]) != file["file-path"] or "part=" in file["file-path"]
    assert found == {1: ["a b/%"], 2: [None], 3: ["ü=+"]}


def test_an_incremental_scan_returns_what_was_appended(catalog: Catalog) -> None:
    for number in range(3):
        with catalog.begin() as tx:
            tx.write(str(NAME), pa.table({"row": [number]}), mode="append")
    state = load(catalog)
    first, _, last = state.metadata["snapshots"]
    request = {"start-snapshot-id": first["snapshot-id"], "end-snapshot-id": last["snapshot-id"]}
    assert rows_to_read(DeltaPlans(catalog).plan(NAME, state, request)) == {1, 2}


def test_bounds_leave_nan_open(catalog: Catalog) -> None:
    """Statistics of Delta leave NaN out, and for Iceberg's readers it is above all numbers."""
    with catalog.begin() as tx:
        tx.write(str(NAME), pa.table({"row": [1, 2], "x": [1.0, math.nan]}))
    above = {"type": "gt", "term": "x", "value": 5.0}
    assert rows_to_read(DeltaPlans(catalog).plan(NAME, load(catalog), {"filter": above})) == {1, 2}
