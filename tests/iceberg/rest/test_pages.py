"""Pages: all at once without a token, and pages that lose and repeat nothing while names come and go."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from deltalakedb.serve.server import Endpoint
from tests.iceberg.rest.wire import VIEW, Client, create_table


def walk(client: Client, path: str, field: str, size: int, **query: Any) -> list[list[object]]:
    """The pages of a listing."""
    pages, token = [], ""
    for _ in range(100):
        answer = client.get(path, pageToken=token, pageSize=size, **query)
        assert answer.status == 200, answer.body
        pages.append(answer.json[field])
        token = answer.json["next-page-token"]
        if token is None:
            return pages
    raise AssertionError("the listing does not end")


def test_without_a_token_everything_comes_at_once(client: Client) -> None:
    for number in range(5):
        client.post("/v1/namespaces", {"namespace": [f"n{number}"]})
    queries: list[dict[str, Any]] = [{}, {"pageSize": 2}]
    for query in queries:
        answer = client.get("/v1/namespaces", **query)
        assert len(answer.json["namespaces"]) == 6
        assert answer.json["next-page-token"] is None


@pytest.mark.parametrize(("size", "lengths"), [(1, [1] * 6), (2, [2, 2, 2]), (4, [4, 2]), (6, [6]), (100, [6])])
def test_pages_have_the_length_that_is_asked_for(client: Client, size: int, lengths: list[int]) -> None:
    for number in range(5):
        client.post("/v1/namespaces", {"namespace": [f"n{number}"]})
    pages = walk(client, "/v1/namespaces", "namespaces", size)
    assert [len(page) for page in pages] == lengths
    assert list(chain(*pages)) == [["default"], *([f"n{number}"] for number in range(5))]


def test_tables_and_views_and_children_come_in_pages(shop: Client) -> None:
    for number in range(3):
        create_table(shop, f"t{number}")
        shop.post("/v1/namespaces/shop/views", {**VIEW, "name": f"v{number}"})
        shop.post("/v1/namespaces", {"namespace": ["shop", f"n{number}"]})
    tables = walk(shop, "/v1/namespaces/shop/tables", "identifiers", 2)
    assert tables == [[identifier("t0"), identifier("t1")], [identifier("t2")]]
    views = walk(shop, "/v1/namespaces/shop/views", "identifiers", 2)
    assert views == [[identifier("v0"), identifier("v1")], [identifier("v2")]]
    inner = walk(shop, "/v1/namespaces", "namespaces", 2, parent="shop")
    assert inner == [[["shop", "n0"], ["shop", "n1"]], [["shop", "n2"]]]


def identifier(name: str) -> dict[str, object]:
    return {"namespace": ["shop"], "name": name}


def test_a_token_goes_on_after_a_name_that_is_gone(client: Client, endpoint: Endpoint) -> None:
    for name in ("a", "b", "d", "e"):
        endpoint.catalog.create_namespace(name)
    first = client.get("/v1/namespaces", pageToken="", pageSize=2)
    assert first.json["namespaces"] == [["a"], ["b"]]
    endpoint.catalog.drop_namespace("b")
    endpoint.catalog.create_namespace("aa")
    endpoint.catalog.create_namespace("c")
    rest = client.get("/v1/namespaces", pageToken=first.json["next-page-token"], pageSize=10)
    assert rest.json["namespaces"] == [["c"], ["d"], ["default"], ["e"]]


def test_an_empty_listing_has_no_next_page(shop: Client) -> None:
    answer = shop.get("/v1/namespaces/shop/tables", pageToken="", pageSize=5)
    assert answer.json == {"identifiers": [], "next-page-token": None}


@pytest.mark.parametrize(
    "query",
    [
        {"pageToken": "x"},
        {"pageToken": "ÿ%00"},
        {"pageToken": "YWJj"},
        {"pageSize": "0"},
        {"pageSize": "-1"},
        {"pageSize": "two"},
        {"pageSize": ""},
        {"pageSize": "²"},
    ],
)
def test_tokens_and_sizes_that_make_no_sense_are_refused(client: Client, query: dict[str, Any]) -> None:
    assert client.get("/v1/namespaces", **query).error == (400, "BadRequestException")
