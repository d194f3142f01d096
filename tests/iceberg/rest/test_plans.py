"""Scan plans over HTTP: answered, fetched again, cancelled, in tasks; and read by PyIceberg."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from deltalakedb.iceberg.planning import service
from deltalakedb.serve.server import Endpoint
from tests.iceberg.rest.wire import Client, table_path

ORDERS = table_path("orders")
PLAN = f"{ORDERS}/plan"
FILES = 5


@pytest.fixture
def orders(shop: Client, endpoint: Endpoint) -> Table:
    """A table of five files, one for each day."""
    catalog = RestCatalog("lake", uri=f"{endpoint.url}/iceberg")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64()), ("day", pa.string())]))
    for day in range(FILES):
        table.append(pa.table({"id": [day, day + 100], "day": [f"2026-01-0{day + 1}"] * 2}))
    assert shop.head(ORDERS).status == 204
    return cast("Table", table)


@pytest.fixture
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of more than two files are answered in tasks of two."""
    monkeypatch.setattr(service.PlanService.__init__, "__kwdefaults__", {"inline_files": 2, "task_files": 2})


def equals(day: str) -> dict[str, Any]:
    return {"type": "eq", "term": "day", "value": day}


def paths(answer: dict[str, Any]) -> set[str]:
    return {task["data-file"]["file-path"] for task in answer["file-scan-tasks"]}


def test_a_plan_has_the_files_that_may_match(shop: Client, orders: Table) -> None:
    everything = shop.post(PLAN, {})
    assert everything.status == 200, everything.body
    assert everything.json["status"] == "completed"
    assert len(paths(everything.json)) == FILES
    one = shop.post(PLAN, {"filter": equals("2026-01-03")})
    by_client = [task.file.file_path for task in orders.scan("day = '2026-01-03'").plan_files()]
    assert paths(one.json) == set(by_client)
    assert len(by_client) == 1


def test_a_plan_of_an_older_snapshot_has_its_files(shop: Client, orders: Table) -> None:
    first = orders.history()[0].snapshot_id
    assert len(paths(shop.post(PLAN, {"snapshot-id": first}).json)) == 1
    assert len(paths(shop.post(PLAN, {"snapshot-id": 0}).json)) == FILES
    assert shop.post(PLAN, {"snapshot-id": 77}).error[0] == 400


@pytest.mark.usefixtures("orders")
def test_a_plan_is_fetched_again_until_it_is_cancelled(shop: Client) -> None:
    planned = shop.post(PLAN, {"filter": equals("2026-01-03")}).json
    plan = f"{PLAN}/{planned['plan-id']}"
    fetched = shop.get(plan)
    assert fetched.status == 200
    assert paths(fetched.json) == paths(planned)
    assert shop.delete(plan).status == 204
    assert shop.get(plan).json == {"status": "cancelled"}


@pytest.mark.usefixtures("in_tasks")
def test_a_large_plan_is_answered_in_tasks(shop: Client, orders: Table) -> None:
    planned = shop.post(PLAN, {}).json
    assert planned["file-scan-tasks"] == []
    assert len(planned["plan-tasks"]) == 3
    tasks = [shop.post(f"{ORDERS}/tasks", {"plan-task": task}) for task in planned["plan-tasks"]]
    assert [task.status for task in tasks] == [200] * 3
    found = [path for task in tasks for path in paths(task.json)]
    assert len(found) == FILES
    assert set(found) == {task.file.file_path for task in orders.scan().plan_files()}


@pytest.mark.usefixtures("in_tasks", "orders")
def test_plans_that_are_not_there_have_errors_of_their_own(shop: Client, endpoint: Endpoint) -> None:
    no_plan, no_task = (404, "NoSuchPlanIdException"), (404, "NoSuchPlanTaskException")
    for unknown in ("x", "0" * 32):
        assert shop.get(f"{PLAN}/{unknown}").error == no_plan
        assert shop.delete(f"{PLAN}/{unknown}").error == no_plan
        assert shop.post(f"{ORDERS}/tasks", {"plan-task": f"{unknown}-0"}).error == no_task
    planned = shop.post(PLAN, {}).json
    with endpoint.catalog.store.write() as conn:
        conn.sql("update dl_scan_plans set expires_ms = 1 returning plan_id")
    assert shop.get(f"{PLAN}/{planned['plan-id']}").error == no_plan
    assert planned["plan-tasks"]
    for task in planned["plan-tasks"]:
        assert shop.post(f"{ORDERS}/tasks", {"plan-task": task}).error == no_task


def test_a_plan_of_no_table_tells_so(shop: Client) -> None:
    no_table = (404, "NoSuchTableException")
    assert shop.post(PLAN, {}).error == no_table
    assert shop.get(f"{PLAN}/{'0' * 32}").error == no_table
    assert shop.delete(f"{PLAN}/{'0' * 32}").error == no_table
    assert shop.post(f"{ORDERS}/tasks", {"plan-task": "x-0"}).error == no_table


@pytest.mark.parametrize(
    "request_",
    [
        {"filter": {"type": "dance"}},
        {"filter": 7},
        {"filter": {"type": "eq", "term": "nothing", "value": 1}},
        {"filter": {"type": "eq", "term": "id", "value": "x"}},
        {"select": "id"},
        {"snapshot-id": "x"},
        {"start-snapshot-id": 1},
        {"case-sensitive": "yes"},
        {"min-rows-requested": "x"},
    ],
)
@pytest.mark.usefixtures("orders")
def test_requests_that_make_no_sense_are_refused(shop: Client, request_: dict[str, Any]) -> None:
    assert shop.post(PLAN, request_).error == (400, "BadRequestException")


def test_pyiceberg_reads_what_the_server_planned(orders: Table, endpoint: Endpoint) -> None:
    planning = {"uri": f"{endpoint.url}/iceberg", "scan-planning-mode": "server"}
    table = RestCatalog("lake", **planning).load_table("shop.orders")
    assert sorted(table.scan("day = '2026-01-02'").to_arrow()["id"].to_pylist()) == [1, 101]
    assert table.scan().to_arrow().num_rows == orders.scan().to_arrow().num_rows == 2 * FILES
    plans = endpoint.catalog.sql("select count(*) as n from dl_scan_plans").to_pylist()
    assert plans == [{"n": 2}]
