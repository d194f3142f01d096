"""Views: created, loaded, replaced, renamed, registered and dropped; their names are shared with tables."""

from __future__ import annotations

from typing import Any

from tests.iceberg.rest.test_tables import path_of, rename
from tests.iceberg.rest.wire import VIEW, Client, create_table, table_path, view_path

NEWEST = view_path("newest")


def create_view(client: Client, name: str = "newest") -> dict[str, Any]:
    answer = client.post("/v1/namespaces/shop/views", {**VIEW, "name": name})
    assert answer.status == 200, answer.body
    return dict(answer.json)


def replace_with(view: dict[str, Any], sql: str) -> dict[str, Any]:
    version = {
        **VIEW["view-version"],
        "version-id": 2,
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {
        "requirements": [{"type": "assert-view-uuid", "uuid": view["metadata"]["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": version},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


def test_a_created_view_is_loaded_listed_and_exists(shop: Client) -> None:
    created = create_view(shop)
    assert shop.get(NEWEST).json == created
    assert path_of(created["metadata-location"]).exists()
    assert shop.head(NEWEST).status == 204
    assert shop.get("/v1/namespaces/shop/views").json["identifiers"] == [{"namespace": ["shop"], "name": "newest"}]
    assert shop.get("/v1/namespaces/shop/tables").json["identifiers"] == []


def test_a_view_is_not_a_table_and_a_table_is_not_a_view(shop: Client) -> None:
    create_view(shop)
    create_table(shop)
    assert shop.get(table_path("newest")).error == (404, "NoSuchTableException")
    assert shop.head(table_path("newest")).status == 404
    assert shop.get(view_path("orders")).error == (404, "NoSuchViewException")
    assert shop.head(view_path("orders")).status == 404
    assert shop.delete(view_path("orders")).error == (404, "NoSuchViewException")
    taken = shop.post("/v1/namespaces/shop/views", {**VIEW, "name": "orders"})
    assert taken.error == (409, "AlreadyExistsException")
    assert taken.message == "Table with same name already exists: shop.orders"


def test_a_view_is_replaced(shop: Client) -> None:
    created = create_view(shop)
    replaced = shop.post(NEWEST, replace_with(created, "select 2"))
    assert replaced.status == 200, replaced.body
    metadata = replaced.json["metadata"]
    assert metadata["current-version-id"] == 2
    assert shop.get(NEWEST).json["metadata"] == metadata
    foreign = {**created, "metadata": {"view-uuid": "11111111-1111-4111-8111-111111111111"}}
    assert shop.post(NEWEST, replace_with(foreign, "select 3")).error == (409, "CommitFailedException")
    assert shop.post(view_path("x"), replace_with(created, "select 3")).error == (404, "NoSuchViewException")


def test_a_view_is_renamed_and_says_what_is_in_the_way(shop: Client) -> None:
    create_view(shop)
    create_table(shop)
    in_the_way = "Cannot rename shop.newest to shop.orders. Table already exists"
    assert rename(shop, "newest", "orders", noun="views") == (409, "AlreadyExistsException", in_the_way)
    missing = (404, "NoSuchViewException", "View does not exist: shop.x")
    assert rename(shop, "x", "y", noun="views") == missing
    assert rename(shop, "newest", "latest", noun="views") == 204
    assert shop.head(view_path("latest")).status == 204


def test_a_dropped_view_can_be_registered_again(shop: Client) -> None:
    created = create_view(shop)
    assert shop.delete(NEWEST).status == 204
    assert shop.get(NEWEST).error == (404, "NoSuchViewException")
    body = {"name": "again", "metadata-location": created["metadata-location"]}
    registered = shop.post("/v1/namespaces/shop/register-view", body)
    assert registered.status == 200, registered.body
    assert registered.json["metadata"] == created["metadata"]


def test_a_view_in_no_namespace_and_one_with_bad_sql_are_refused(shop: Client) -> None:
    assert shop.post("/v1/namespaces/x/views", VIEW).error == (404, "NoSuchNamespaceException")
    twice = [{"type": "sql", "sql": "select 1", "dialect": "spark"}] * 2
    version = {**VIEW["view-version"], "representations": twice}
    refused = shop.post("/v1/namespaces/shop/views", {**VIEW, "view-version": version})
    assert refused.error == (400, "IllegalArgumentException")
    assert shop.get("/v1/namespaces/shop/views").json["identifiers"] == []
