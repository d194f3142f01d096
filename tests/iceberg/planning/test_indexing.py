"""Each manifest is put into SQL once, whoever plans first, and however many do so at the same time."""

import multiprocessing
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import deltalakedb
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.iceberg.planning import indexing
from deltalakedb.iceberg.planning.indexing import index_snapshot
from deltalakedb.iceberg.planning.reading import StoredFiles
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.names import TableName
from tests.fixtures.sizes import sized
from tests.iceberg.planning.lake import Lake

NAME = TableName("lake", "t")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "t", {"id": "long", "name": "string"}, version=2)
    for number in range(12):
        lake.append([{1: number * 10 + n, 2: f"n{n}"} for n in range(3)])
    return lake


def counts(catalog: Catalog) -> dict[str, int]:
    tables = ("dl_iceberg_manifests", "dl_iceberg_snapshot_manifests", "dl_iceberg_files", "dl_file_bounds")
    with catalog.store.read() as conn:
        return {table: conn.sql(f"select count(*) as n from {table}")[0]["n"] for table in tables}


def test_a_manifest_is_read_once_for_all_snapshots_and_plans(catalog: Catalog, lake: Lake) -> None:
    reads: Counter[str] = Counter()
    stored = StoredFiles()

    def read(path: str) -> bytes:
        reads[path] += 1
        return stored(path)

    metadata = lake.metadata()
    for snapshot in metadata["snapshots"][::-1] * 2:
        index_snapshot(catalog.store, 7, TableShape(metadata), snapshot, read)
    assert set(reads.values()) == {1}
    assert len(reads) == 12 + 12  # manifest lists and manifests
    assert counts(catalog)["dl_iceberg_files"] == 12


def test_threads_that_plan_at_once_index_each_manifest_once(
    catalog: Catalog, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "GROUP_FILES", 2)
    metadata = lake.metadata()
    service = PlanService(catalog)

    def plan(_: int) -> int:
        return len(service.plan(NAME, 7, metadata, {})["file-scan-tasks"])

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(plan, range(4))) == [12] * 4
    assert counts(catalog) == {
        "dl_iceberg_manifests": 12,
        "dl_iceberg_snapshot_manifests": 12,
        "dl_iceberg_files": 12,
        "dl_file_bounds": 24,
    }


def plan_in_process(target: str, metadata: dict[str, Any], answers: Any) -> None:
    indexing.GROUP_FILES = 1  # type: ignore[misc]  # many small transactions
    with deltalakedb.connect(target) as catalog:
        answers.put(len(PlanService(catalog).plan(NAME, 7, metadata, {})["file-scan-tasks"]))


def test_processes_that_plan_at_once_index_each_manifest_once(target: str, lake: Lake) -> None:
    deltalakedb.connect(target).close()
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    count = sized(2, 6)
    processes = [context.Process(target=plan_in_process, args=(target, lake.metadata(), answers)) for _ in range(count)]
    for process in processes:
        process.start()
    assert [answers.get() for _ in processes] == [12] * count
    for process in processes:
        process.join()
    with deltalakedb.connect(target) as catalog:
        assert counts(catalog)["dl_iceberg_files"] == 12
        assert counts(catalog)["dl_file_bounds"] == 24


def test_columns_of_later_schemas_and_specs_prune_only_what_has_bounds_of_them(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog)
    condition = {"type": "eq", "term": "id", "value": 11}
    assert len(service.plan(NAME, 7, lake.metadata(), {"filter": condition})["file-scan-tasks"]) <= 12
    lake.add_column("more", "date")
    lake.partition_by((3, "month"))
    lake.append([{1: 1, 2: "x", 3: 10}])
    lake.append([{1: 1, 2: "x", 3: 100}])
    later = {"type": "eq", "term": "more", "value": "1970-01-11"}
    planned = service.plan(NAME, 7, lake.metadata(), {"filter": later})["file-scan-tasks"]
    # The old files have no such column: they may have a default value for it.
    paths = [task["data-file"]["file-path"] for task in planned]
    assert paths == [file.path for file in lake.files[:13]]


def test_columns_beyond_those_with_an_index_prune_by_the_statistics_of_each_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "wide", {f"c{n}": "long" for n in range(40)}, version=2)
    for number in range(5):
        lake.append([{column: number * 10 + column for column in lake.columns}])
        for name in ("lower_bounds", "upper_bounds"):
            lake.files[-1].stats[name] = [{"key": 40, "value": (number * 10 + 40).to_bytes(8, "little")}]
    lake.rewrite()
    condition = {"type": "gt", "term": "c39", "value": 65}
    answer = PlanService(catalog).plan(NAME, 8, lake.metadata(), {"filter": condition})
    assert [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]] == [
        file.path for file in lake.files[3:]
    ]
