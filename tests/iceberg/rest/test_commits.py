"""Commits of one table, and of several at once: requirements, lost races, all or nothing."""

from __future__ import annotations

import threading

from deltalakedb.serve.server import Endpoint
from tests.iceberg.rest.wire import (
    Client,
    add_snapshot,
    change_of,
    create_table,
    set_properties,
    table_path,
)

ORDERS, ITEMS = table_path("orders"), table_path("items")
TRANSACTION = "/v1/transactions/commit"


def properties(client: Client, path: str) -> dict[str, str]:
    return dict(client.get(path).json["metadata"]["properties"])


def test_a_commit_answers_the_new_state(shop: Client) -> None:
    created = create_table(shop)
    committed = shop.post(ORDERS, {"identifier": {"namespace": ["shop"], "name": "orders"}, **add_snapshot(created, 7)})
    assert committed.status == 200, committed.body
    loaded = shop.get(ORDERS)
    assert committed.json["metadata"] == loaded.json["metadata"]
    assert committed.json["metadata-location"] == loaded.json["metadata-location"] != created["metadata-location"]
    assert loaded.json["metadata"]["metadata-log"][-1]["metadata-file"] == created["metadata-location"]


def test_a_requirement_that_fails_is_a_conflict_and_changes_nothing(shop: Client) -> None:
    created = create_table(shop)
    shop.post(ORDERS, add_snapshot(created, 7))
    before = shop.get(ORDERS).json
    for body in (
        add_snapshot(created, 8),
        {**set_properties(created, k="v"), "requirements": [{"type": "assert-table-uuid", "uuid": "x"}]},
        {"requirements": [{"type": "assert-create"}], "updates": []},
    ):
        assert shop.post(ORDERS, body).error == (409, "CommitFailedException")
    assert shop.get(ORDERS).json == before


def test_a_body_for_another_table_is_refused(shop: Client) -> None:
    created = create_table(shop)
    other = {"identifier": {"namespace": ["shop"], "name": "items"}, **set_properties(created, k="v")}
    assert shop.post(ORDERS, other).error == (400, "BadRequestException")
    assert "k" not in properties(shop, ORDERS)


def test_one_of_two_racing_commits_wins(shop: Client) -> None:
    created = create_table(shop)
    answers: list[int] = []

    def commit(snapshot_id: int) -> None:
        answers.append(shop.post(ORDERS, add_snapshot(created, snapshot_id)).status)

    racers = [threading.Thread(target=commit, args=(number,)) for number in range(1, 9)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(answers) == [200] + [409] * 7
    assert len(shop.get(ORDERS).json["metadata"]["snapshots"]) == 1


def test_several_tables_change_together(shop: Client, endpoint: Endpoint) -> None:
    orders, items = create_table(shop), create_table(shop, "items")
    body = {
        "table-changes": [
            change_of("orders", set_properties(orders, batch="1")),
            change_of("items", set_properties(items, batch="1")),
        ]
    }
    committed = shop.post(TRANSACTION, body)
    assert (committed.status, committed.body) == (204, b"")
    assert properties(shop, ORDERS)["batch"] == properties(shop, ITEMS)["batch"] == "1"
    rows = endpoint.catalog.sql("select count(distinct txn_id) as n from dl_table_versions where version = 1")
    assert rows.to_pylist() == [{"n": 1}]


def test_if_one_table_cannot_change_none_does(shop: Client) -> None:
    orders, items = create_table(shop), create_table(shop, "items")
    good = change_of("orders", set_properties(orders, batch="1"))
    stale = {**set_properties(items, batch="1"), "requirements": [{"type": "assert-table-uuid", "uuid": "x"}]}
    conflict = shop.post(TRANSACTION, {"table-changes": [good, change_of("items", stale)]})
    assert conflict.error == (409, "CommitFailedException")
    missing = shop.post(TRANSACTION, {"table-changes": [good, change_of("nothing", set_properties(items, batch="1"))]})
    assert missing.error == (404, "NoSuchTableException")
    unknown = {"requirements": [], "updates": [{"action": "dance"}]}
    assert shop.post(TRANSACTION, {"table-changes": [good, change_of("items", unknown)]}).error[0] == 400
    twice = shop.post(TRANSACTION, {"table-changes": [good, good]})
    assert twice.error == (400, "BadRequestException")
    assert "batch" not in properties(shop, ORDERS)
    assert "batch" not in properties(shop, ITEMS)


def test_a_staged_table_is_created_with_the_change_of_another(shop: Client) -> None:
    orders = create_table(shop)
    staged = create_table(shop, "items", **{"stage-create": True})["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    body = {
        "table-changes": [
            change_of("orders", set_properties(orders, batch="1")),
            change_of("items", {"requirements": [{"type": "assert-create"}], "updates": updates}),
        ]
    }
    assert shop.post(TRANSACTION, body).status == 204
    assert properties(shop, ORDERS)["batch"] == "1"
    assert shop.get(ITEMS).json["metadata"]["location"] == staged["location"]


def test_a_transaction_without_changes_is_done(shop: Client) -> None:
    assert shop.post(TRANSACTION, {"table-changes": []}).status == 204
