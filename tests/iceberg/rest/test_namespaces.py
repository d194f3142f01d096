"""Namespaces: nested ones, odd names, properties, and what stands in the way of a drop."""

from __future__ import annotations

from typing import Any

import pytest

from deltalakedb.serve.server import Endpoint
from tests.iceberg.rest.wire import Client, create_table, namespace_path


def create(client: Client, *parts: str, **properties: str) -> None:
    answer = client.post("/v1/namespaces", {"namespace": list(parts), "properties": properties})
    assert answer.status == 200, answer.body
    assert answer.json == {"namespace": list(parts), "properties": properties}


def names(client: Client, **query: Any) -> list[list[str]]:
    answer = client.get("/v1/namespaces", **query)
    assert answer.status == 200, answer.body
    return list(answer.json["namespaces"])


def test_a_namespace_is_created_loaded_and_dropped(client: Client) -> None:
    create(client, "shop", owner="ann")
    assert client.get("/v1/namespaces/shop").json == {"namespace": ["shop"], "properties": {"owner": "ann"}}
    assert client.head("/v1/namespaces/shop").status == 204
    assert client.delete("/v1/namespaces/shop").status == 204
    assert client.head("/v1/namespaces/shop").status == 404
    assert client.get("/v1/namespaces/shop").error == (404, "NoSuchNamespaceException")
    assert client.delete("/v1/namespaces/shop").error == (404, "NoSuchNamespaceException")


def test_a_listing_has_one_level_and_shows_levels_that_nobody_created(client: Client) -> None:
    create(client, "a")
    create(client, "b", "c", "d")
    create(client, "b", "c", "e")
    assert names(client) == [["a"], ["b"], ["default"]]
    assert names(client, parent="b") == [["b", "c"]]
    assert names(client, parent="b\x1fc") == [["b", "c", "d"], ["b", "c", "e"]]
    assert names(client, parent="a") == []
    assert client.get("/v1/namespaces", parent="x").error == (404, "NoSuchNamespaceException")
    assert client.get("/v1/namespaces/b").json == {"namespace": ["b"], "properties": {}}
    assert client.delete("/v1/namespaces/b").error == (409, "NamespaceNotEmptyException")


def test_a_level_that_nobody_created_gets_properties(client: Client) -> None:
    create(client, "b", "c")
    assert client.post("/v1/namespaces/b/properties", {"updates": {"owner": "ann"}}).status == 200
    assert client.get("/v1/namespaces/b").json["properties"] == {"owner": "ann"}


@pytest.mark.parametrize(
    "parts",
    [
        ("a.b",),
        ("a/b",),
        ("a b", "c.d"),
        ("`x`",),
        ("Straße", "雪"),
        ("100%",),
        ("a+b",),
        ("tables",),
        ("\\'\"",),
    ],
)
def test_names_of_any_characters_come_back_as_they_were_sent(client: Client, parts: tuple[str, ...]) -> None:
    create(client, *parts)
    assert client.get(namespace_path(*parts)).json["namespace"] == list(parts)
    assert list(parts[:1]) in names(client)
    assert client.post(f"{namespace_path(*parts)}/properties", {"updates": {"k": "v"}}).json["updated"] == ["k"]
    assert client.delete(namespace_path(*parts)).status == 204


@pytest.mark.parametrize("part", [".", ".."])
def test_a_name_that_clients_take_out_of_urls_is_refused(client: Client, part: str) -> None:
    answer = client.post("/v1/namespaces", {"namespace": ["shop", part]})
    assert answer.error == (400, "BadRequestException")
    assert repr(part) in answer.message


def test_a_taken_name_is_taken_in_any_case(client: Client) -> None:
    create(client, "shop")
    for name in ("shop", "SHOP"):
        again = client.post("/v1/namespaces", {"namespace": [name]})
        assert again.error == (409, "AlreadyExistsException")
        assert again.message == f"Namespace already exists: {name}"


def test_properties_are_set_removed_and_missing(client: Client) -> None:
    create(client, "shop", a="1", b="2")
    answer = client.post("/v1/namespaces/shop/properties", {"removals": ["a", "x"], "updates": {"b": "3", "c": "4"}})
    assert answer.json == {"updated": ["b", "c"], "removed": ["a"], "missing": ["x"]}
    assert client.get("/v1/namespaces/shop").json["properties"] == {"b": "3", "c": "4"}


def test_a_property_is_not_set_and_removed_at_once(client: Client) -> None:
    create(client, "shop", a="1")
    both = client.post("/v1/namespaces/shop/properties", {"removals": ["a"], "updates": {"a": "2", "b": "3"}})
    assert both.error == (422, "UnprocessableEntityException")
    assert client.get("/v1/namespaces/shop").json["properties"] == {"a": "1"}
    unknown = client.post("/v1/namespaces/x/properties", {"updates": {"a": "2"}})
    assert unknown.error == (404, "NoSuchNamespaceException")


def test_a_namespace_with_a_table_or_a_namespace_in_it_stays(client: Client) -> None:
    create(client, "shop")
    create_table(client)
    create(client, "outer")
    create(client, "outer", "inner")
    for name in ("shop", "outer"):
        refused = client.delete(f"/v1/namespaces/{name}")
        assert refused.error == (409, "NamespaceNotEmptyException")
        assert "is not empty" in refused.message
    assert client.head("/v1/namespaces/shop").status == 204


def test_namespaces_of_delta_tables_are_the_same_ones(client: Client, endpoint: Endpoint) -> None:
    endpoint.catalog.create_table("sales.`north.east`.orders", "id long")
    assert ["sales"] in names(client)
    assert names(client, parent="sales") == [["sales", "north.east"]]
    tables = client.get(f"{namespace_path('sales', 'north.east')}/tables").json["identifiers"]
    assert tables == [{"namespace": ["sales", "north.east"], "name": "orders"}]


def test_secrets_are_no_properties(client: Client) -> None:
    refused = client.post(
        "/v1/namespaces", {"namespace": ["shop"], "properties": {"s3.secret-access-key": "hush-hush"}}
    )
    assert refused.error == (400, "BadRequestException")
    assert "hush-hush" not in refused.message
    assert client.head("/v1/namespaces/shop").status == 404
