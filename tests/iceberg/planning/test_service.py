"""Answers to plan requests: whole or in tasks, their JSON, and what is refused, on every engine."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import PlanNotFoundError, PlanTaskNotFoundError, PredicateError, VersionNotFoundError
from deltalakedb.iceberg.planning.people import plan_files
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.iceberg_files import list_key, remove_snapshots, snapshot_size
from deltalakedb.store.names import TableName
from tests.iceberg.planning.lake import Lake

NAME = TableName("lake", "t")
TABLE_ID = 7


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Ten files of ten rows each: file n holds the ids from 10 n on; parts a, b, a, b, ..."""
    lake = Lake(tmp_path / "t", {"id": "long", "part": "string"}, version=3)
    lake.partition_by((2, "identity"))
    for number in range(10):
        lake.append([{1: number * 10 + n, 2: "ab"[number % 2]} for n in range(10)])
    return lake


def between(low: int, high: int) -> dict[str, Any]:
    return {
        "type": "and",
        "left": {"type": "gt-eq", "term": "id", "value": low},
        "right": {"type": "lt", "term": "id", "value": high},
    }


def paths(answer: Mapping[str, Any]) -> list[str]:
    return [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]]


def test_a_large_plan_is_answered_in_tasks_that_any_process_can_answer(catalog: Catalog, lake: Lake) -> None:
    lake.delete_vector(lake.files[3], [0, 5])
    whole = PlanService(catalog).plan(NAME, TABLE_ID, lake.metadata(), {})
    assert "plan-tasks" not in whole
    service = PlanService(catalog, inline_files=3, task_files=4)
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), {})
    assert answer["status"] == "completed"
    assert answer["file-scan-tasks"] == []
    assert len(answer["plan-tasks"]) == 3
    pages = [PlanService(catalog).tasks(NAME, task) for task in answer["plan-tasks"]]
    assert [len(page["file-scan-tasks"]) for page in pages] == [4, 4, 2]
    assert [path for page in pages for path in paths(page)] == paths(whole)
    attached = {
        task["data-file"]["file-path"]: [page["delete-files"][place]["referenced-data-file"] for place in places]
        for page in pages
        for task in page["file-scan-tasks"]
        if (places := task.get("delete-file-references"))
    }
    assert attached == {lake.files[3].path: [lake.files[3].path]}
    assert PlanService(catalog).fetch(answer["plan-id"]) == answer


def test_a_task_of_a_plan_with_a_filter_has_only_files_that_may_match(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog, inline_files=1, task_files=2)
    request = {"filter": {"type": "eq", "term": "part", "value": "a"}, "stats-fields": ["id"]}
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), request)
    # The table changes meanwhile, and its plan does not.
    lake.append([{1: 1, 2: "a"}])
    lake.add_column("new", "string")
    service.plan(NAME, TABLE_ID, lake.metadata(), {})
    tasks = [task for token in answer["plan-tasks"] for task in service.tasks(NAME, token)["file-scan-tasks"]]
    assert [task["data-file"]["file-path"] for task in tasks] == [file.path for file in lake.files[:10:2]]
    assert all(task["data-file"]["partition"] == ["a"] for task in tasks)
    assert all(task["residual-filter"] == request["filter"] for task in tasks)


def test_plans_and_tasks_that_are_cancelled_expired_or_unknown_are_not_found(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog, inline_files=1)
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), {})
    (task,) = answer["plan-tasks"]
    with pytest.raises(PlanTaskNotFoundError):
        service.tasks(TableName("lake", "other"), task)
    for unknown in ("", "x", task + "0", task.replace("-", "-9"), "0" * 32 + "-0", task + "\0", "é-1"):
        with pytest.raises(PlanTaskNotFoundError):
            service.tasks(NAME, unknown)
    service.cancel(answer["plan-id"])
    assert service.fetch(answer["plan-id"]) == {"status": "cancelled"}
    with pytest.raises(PlanTaskNotFoundError):
        service.tasks(NAME, task)
    for unknown in ("", "0" * 32, "x" * 5000):
        with pytest.raises(PlanNotFoundError):
            service.fetch(unknown)
        with pytest.raises(PlanNotFoundError):
            service.cancel(unknown)
    old = service.plan(NAME, TABLE_ID, lake.metadata(), {})
    with catalog.store.write() as conn:
        conn.sql("update dl_scan_plans set expires_ms = 1 where plan_id <> :other returning plan_id", other="")
    with pytest.raises(PlanNotFoundError):
        service.fetch(old["plan-id"])
    with pytest.raises(PlanTaskNotFoundError):
        service.tasks(NAME, old["plan-tasks"][0])
    service.plan(NAME, TABLE_ID, lake.metadata(), {})
    with catalog.store.read() as conn:
        rows = conn.sql("select plan_status, request, statistics from dl_scan_plans")
    assert [(row["plan_status"], json.loads(row["statistics"])["kept"]) for row in rows] == [("completed", 10)]


def test_data_files_have_what_they_inherit_and_the_statistics_that_were_asked_for(
    tmp_path: Path, catalog: Catalog
) -> None:
    lake = Lake(tmp_path / "t", {"id": "long", "x": "double"}, version=3, seed=3)
    lake.append([{1: n, 2: 0.5} for n in range(4)])
    lake.append([{1: n, 2: 0.5} for n in range(4, 6)])
    service = PlanService(catalog)
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), {})
    files = {file["file-path"]: file for file in (task["data-file"] for task in answer["file-scan-tasks"])}
    first, second = (files[file.path] for file in lake.files)
    assert (first["first-row-id"], first["data-sequence-number"]) == (0, 1)
    assert (second["first-row-id"], second["data-sequence-number"]) == (4, 2)
    assert first["content"] == "data"
    assert first["file-format"] == "parquet"
    assert first["partition"] == []
    assert not any("bounds" in name for name in first)
    lake.files[0].stats = {"lower_bounds": [{"key": n, "value": bytes([n])} for n in (1, 2)]}
    lake.rewrite()
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), {"stats-fields": ["x", "unknown"]})
    bounds = [task["data-file"].get("lower-bounds") for task in answer["file-scan-tasks"]]
    assert {"keys": [2], "values": ["02"]} in bounds


def test_a_plan_is_of_the_snapshot_that_was_asked_for(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog)
    metadata = lake.metadata()
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    assert len(paths(service.plan(NAME, TABLE_ID, metadata, {"snapshot-id": ids[2]}))) == 3
    assert len(paths(service.plan(NAME, TABLE_ID, metadata, {"snapshot-id": 0}))) == 10
    with pytest.raises(VersionNotFoundError):
        service.plan(NAME, TABLE_ID, metadata, {"snapshot-id": 5})
    empty = {**metadata, "snapshots": [], "current-snapshot-id": -1}
    assert service.plan(NAME, TABLE_ID, empty, {})["file-scan-tasks"] == []
    assert plan_files(catalog.store, TABLE_ID, empty).num_files == 0


def test_an_incremental_plan_has_the_files_appended_after_its_start(catalog: Catalog, lake: Lake) -> None:
    lake.rewrite()  # its files exist already: they are not appended
    lake.append([{1: 1000, 2: "a"}])
    service = PlanService(catalog)
    metadata = lake.metadata()
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]

    def appended(**request: Any) -> list[str]:
        return paths(service.plan(NAME, TABLE_ID, metadata, {key.replace("_", "-"): v for key, v in request.items()}))

    assert appended(start_snapshot_id=ids[3], end_snapshot_id=ids[6]) == [file.path for file in lake.files[4:7]]
    assert appended(start_snapshot_id=ids[8], end_snapshot_id=ids[11]) == [lake.files[9].path, lake.files[10].path]
    assert appended(start_snapshot_id=ids[4], end_snapshot_id=ids[4]) == []
    condition = between(45, 55)
    assert appended(start_snapshot_id=ids[0], end_snapshot_id=ids[9], filter=condition) != []
    for start, end in ((ids[6], ids[3]), (5, ids[3]), (ids[3], 5)):
        with pytest.raises(VersionNotFoundError):
            appended(start_snapshot_id=start, end_snapshot_id=end)


def test_a_plan_may_stop_at_the_rows_that_were_asked_for(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog)
    assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), {"min-rows-requested": 25}))) == 3
    request = {"min-rows-requested": 25, "filter": {"type": "eq", "term": "part", "value": "a"}}
    assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), request))) == 5
    lake.delete_vector(lake.files[0], [1])
    assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), {"min-rows-requested": 25}))) == 10


@pytest.mark.parametrize(
    "request_json",
    [
        {"snapshot-id": "1"},
        {"snapshot-id": 2**70},
        {"snapshot-id": True},
        {"start-snapshot-id": 1001},
        {"snapshot-id": 1001, "start-snapshot-id": 1001, "end-snapshot-id": 1002},
        {"case-sensitive": "yes"},
        {"select": "id"},
        {"stats-fields": [1]},
        {"filter": "id > 1"},
        {"filter": {}},
        {"filter": {"type": "between", "term": "id"}},
        {"filter": {"type": "eq", "term": "id"}},
        {"filter": {"type": "eq", "term": "id", "value": None}},
        {"filter": {"type": "eq", "term": "id", "value": 2**64}},
        {"filter": {"type": "eq", "term": "id", "value": "x"}},
        {"filter": {"type": "eq", "term": "id", "value": True}},
        {"filter": {"type": "eq", "term": "ID", "value": 1}},
        {"filter": {"type": "eq", "term": "part", "value": 1}},
        {"filter": {"type": "in", "term": "id", "values": 1}},
        {"filter": {"type": "is-nan", "term": "id"}},
        {"filter": {"type": "is-null", "term": "nothing"}},
        {"filter": {"type": "is-null", "child": {"type": "reference", "id": 99}}},
        {"filter": {"type": "starts-with", "term": "id", "value": "1"}},
        {"filter": {"type": "and", "left": True}},
        {"filter": {"type": "not", "child": 1}},
        {"filter": {"type": "apply", "function": "f", "arguments": [{"type": "reference", "name": "nothing"}]}},
    ],
)
def test_a_malformed_request_is_refused(catalog: Catalog, lake: Lake, request_json: dict[str, Any]) -> None:
    with pytest.raises(PredicateError):
        PlanService(catalog).plan(NAME, TABLE_ID, lake.metadata(), request_json)


def test_deep_and_long_conditions_are_planned_or_refused(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog)
    chain: Any = {"type": "eq", "term": "id", "value": 3}
    for number in range(2000):
        chain = {"type": "or", "left": chain, "right": {"type": "eq", "term": "id", "value": number % 7}}
    answer = service.plan(NAME, TABLE_ID, lake.metadata(), {"filter": chain})
    assert len(paths(answer)) <= 10
    assert json.loads(orjson.dumps(answer)) == answer
    nested: Any = {"type": "eq", "term": "id", "value": 3}
    for _ in range(500):
        nested = {"type": "not", "child": nested}
    with pytest.raises(PredicateError, match="nested too deep"):
        service.plan(NAME, TABLE_ID, lake.metadata(), {"filter": nested})


def test_numbers_beyond_all_others_are_planned(catalog: Catalog, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t", {"id": "long", "price": "decimal(9,2)", "x": "double"}, version=2)
    lake.partition_by((1, "truncate[10]"), (2, "truncate[50]"), (2, "bucket[4]"))
    lake.append([{1: 5, 2: Decimal("1.00"), 3: 0.5}])
    service = PlanService(catalog)
    for column, value in (("id", 1e308), ("id", -1.7e308), ("price", "1e399"), ("price", "-1e399"), ("x", 2**63 - 1)):
        for operator, kept in (("lt", value in (1e308, "1e399", 2**63 - 1)), ("eq", False)):
            condition = {"type": operator, "term": column, "value": value}
            answer = service.plan(NAME, TABLE_ID, lake.metadata(), {"filter": condition})
            assert len(paths(answer)) >= int(kept)


def test_case_matters_only_if_the_request_says_so(catalog: Catalog, lake: Lake) -> None:
    request = {"filter": {"type": "eq", "term": "PART", "value": "a"}, "case-sensitive": False}
    assert len(paths(PlanService(catalog).plan(NAME, TABLE_ID, lake.metadata(), request))) == 5


def test_functions_that_are_no_transforms_prune_nothing(catalog: Catalog, lake: Lake) -> None:
    reference = {"type": "reference", "name": "part"}
    call = {"type": "apply", "function": "upper", "arguments": [reference]}
    service = PlanService(catalog)
    for condition in (
        {"type": "eq", "left": call, "right": "A"},
        {"type": "not", "child": {"type": "eq", "left": reference, "right": reference}},
        {"type": "eq", "left": reference, "right": {"type": "literal", "value": "a", "data-type": "date"}},
    ):
        assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), {"filter": condition}))) == 10
    truncated = {"type": "apply", "function": "truncate", "arguments": [1, reference]}
    condition = {"type": "eq", "left": truncated, "right": "a"}
    lake.partition_by((2, "truncate[1]"))
    lake.append([{1: 1, 2: "a"}, {1: 1, 2: "b"}])
    assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), {"filter": condition}))) == 11


def test_files_of_expired_snapshots_are_removed_and_the_others_stay(catalog: Catalog, lake: Lake) -> None:
    service = PlanService(catalog)
    metadata = lake.metadata()
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    lake.rewrite()
    newest = lake.metadata()
    keys = {snapshot["snapshot-id"]: list_key(snapshot) for snapshot in newest["snapshots"]}
    for snapshot_id in (ids[4], ids[9]):
        service.plan(NAME, TABLE_ID, metadata, {"snapshot-id": snapshot_id})
    before = service.plan(NAME, TABLE_ID, newest, {"filter": between(3, 8)})
    with catalog.store.write() as conn:
        remove_snapshots(conn, TABLE_ID, [keys[newest["current-snapshot-id"]]])
    with catalog.store.read() as conn:
        assert snapshot_size(conn, TABLE_ID, keys[ids[9]]) is None
        (files,) = conn.sql("select count(*) as n from dl_iceberg_files")
        (bounds,) = conn.sql("select count(distinct file_id) as n from dl_file_bounds")
    assert files["n"] == bounds["n"] == 10
    assert paths(service.plan(NAME, TABLE_ID, newest, {"filter": between(3, 8)})) == paths(before)
    lake.append([{1: 5, 2: "b"}])
    assert len(paths(service.plan(NAME, TABLE_ID, lake.metadata(), {}))) == 11
