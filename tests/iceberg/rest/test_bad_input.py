"""Whatever is sent, the answer is the protocol's error, and nothing is stored."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb import connect
from deltalakedb.exceptions import BadIcebergRequestError
from deltalakedb.iceberg.metadata_files import check_location
from deltalakedb.serve.iceberg import router
from deltalakedb.serve.server import Endpoint
from tests.fixtures.sizes import sized
from tests.iceberg.rest.wire import SCHEMA, VIEW, Client, create_table, set_properties, table_path, view_path

ORDERS, NEWEST = table_path("orders"), view_path("newest")
TABLES, VIEWS, REGISTER = "/v1/namespaces/shop/tables", "/v1/namespaces/shop/views", "/v1/namespaces/shop/register"
TRANSACTION, RENAME, PROPERTIES = "/v1/transactions/commit", "/v1/tables/rename", "/v1/namespaces/shop/properties"
POSTS = ["/v1/namespaces", PROPERTIES, TABLES, ORDERS, TRANSACTION, RENAME, REGISTER, VIEWS, NEWEST]
BAD = (400, "BadRequestException")
_STATE = (
    "select (select count(*) from dl_tables) as names, (select count(*) from dl_table_versions) as versions, "
    "(select count(*) from dl_namespaces) as namespaces, (select count(*) from dl_audit) as audit, "
    "(select count(*) from dl_iceberg_versions) as iceberg"
)


@pytest.fixture
def stocked(shop: Client) -> Client:
    """A client of a catalog with a namespace, a table and a view."""
    create_table(shop)
    assert shop.post(VIEWS, VIEW).status == 200
    return shop


@pytest.fixture
def unchanged(stocked: Client, endpoint: Endpoint, warehouse: Path) -> Iterator[Client]:
    """A client of that catalog; afterwards SQL and the warehouse are as they were."""
    files, state = files_in(warehouse), endpoint.catalog.sql(_STATE).to_pylist()
    yield stocked
    assert endpoint.catalog.sql(_STATE).to_pylist() == state
    assert files_in(warehouse) == files


def files_in(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"text"', b"7", b"\xff\xfe", b'{"a": NaN}', b'{"a": "\\ud800"}', b"{}{}", b"null"],
    ids=["cut off", "list", "text", "number", "not UTF-8", "NaN", "lone surrogate", "two", "null"],
)
def test_what_is_not_a_json_object_is_refused(unchanged: Client, path: str, body: bytes) -> None:
    assert unchanged.post(path, body).error == BAD


@pytest.mark.parametrize("path", POSTS)
def test_deep_bodies_are_refused(unchanged: Client, path: str) -> None:
    for depth in (201, 5_000, 200_000):
        assert unchanged.post(path, b'{"a":' * depth + b"1" + b"}" * depth).error == BAD
        assert unchanged.post(path, b'{"a":' + b"[" * depth + b"]" * depth + b"}").error == BAD


def test_a_schema_of_deeply_nested_types_is_still_accepted(shop: Client) -> None:
    nested: Any = "long"
    for number in range(50):
        field = {"id": number + 2, "name": "f", "required": False, "type": nested}
        nested = {"type": "struct", "fields": [field]}
    schema = {"type": "struct", "fields": [{"id": 1, "name": "outer", "required": False, "type": nested}]}
    assert shop.post(TABLES, {"name": "deep", "schema": schema}).status == 200


def test_huge_bodies_are_refused_before_they_are_read(unchanged: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MAX_BODY_BYTES", 100_000)
    body = json.dumps({"namespace": ["big"], "properties": {"a": "x" * 100_000}}).encode()
    assert unchanged.post("/v1/namespaces", body).error == (413, "RequestTooLargeException")


def test_a_client_that_goes_away_in_the_middle_changes_nothing(unchanged: Client, endpoint: Endpoint) -> None:
    address = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.putrequest("POST", "/iceberg/v1/namespaces")
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b'{"namespace": ["half"')
    connection.close()
    assert unchanged.head("/v1/namespaces/half").status == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/namespaces", {}),
        ("/v1/namespaces", {"namespace": []}),
        ("/v1/namespaces", {"namespace": "x"}),
        ("/v1/namespaces", {"namespace": ["a", 1]}),
        ("/v1/namespaces", {"namespace": ["a", ""]}),
        ("/v1/namespaces", {"namespace": ["x" * 300]}),
        ("/v1/namespaces", {"namespace": ["a\u0000b"]}),
        ("/v1/namespaces", {"namespace": ["a\u001fb"]}),
        ("/v1/namespaces", {"namespace": ["new"], "properties": ["a"]}),
        ("/v1/namespaces", {"namespace": ["new"], "properties": {"a": 1}}),
        ("/v1/namespaces", {"namespace": ["new"], "properties": {"a": None}}),
        (PROPERTIES, {"updates": {"a": {}}}),
        (PROPERTIES, {"removals": "a"}),
        (PROPERTIES, {"removals": [1]}),
        (TABLES, {"schema": SCHEMA}),
        (TABLES, {"name": 7, "schema": SCHEMA}),
        (TABLES, {"name": "", "schema": SCHEMA}),
        (TABLES, {"name": "a\nb", "schema": SCHEMA}),
        (TABLES, {"name": "new"}),
        (TABLES, {"name": "new", "schema": "long"}),
        (TABLES, {"name": "new", "schema": []}),
        (TABLES, {"name": "new", "schema": {"type": "struct"}}),
        (TABLES, {"name": "new", "schema": {"type": "struct", "fields": [{"id": 1}]}}),
        (TABLES, {"name": "new", "schema": SCHEMA, "stage-create": "yes"}),
        (TABLES, {"name": "new", "schema": SCHEMA, "location": 7}),
        (TABLES, {"name": "new", "schema": SCHEMA, "properties": {"a": 1}}),
        (TABLES, {"name": "new", "schema": SCHEMA, "partition-spec": 7}),
        (TABLES, {"name": "new", "schema": SCHEMA, "write-order": []}),
        (TABLES, {"name": "new", "schema": SCHEMA, "properties": {"format-version": "9"}}),
        (ORDERS, {"requirements": []}),
        (ORDERS, {"updates": []}),
        (ORDERS, {"requirements": {}, "updates": []}),
        (ORDERS, {"requirements": [1], "updates": []}),
        (ORDERS, {"requirements": [], "updates": ["x"]}),
        (ORDERS, {"requirements": [], "updates": [{}]}),
        (ORDERS, {"requirements": [], "updates": [{"action": "dance"}]}),
        (ORDERS, {"requirements": [], "updates": [{"action": 7}]}),
        (ORDERS, {"requirements": [{"type": "assert-good-will"}], "updates": []}),
        (ORDERS, {"requirements": [{}], "updates": []}),
        (ORDERS, {"requirements": [], "updates": [{"action": "add-snapshot"}]}),
        (ORDERS, {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": {"snapshot-id": "x"}}]}),
        (ORDERS, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": 1}}]}),
        (ORDERS, {"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 2**70}]}),
        (ORDERS, {"identifier": "x", "requirements": [], "updates": []}),
        (TRANSACTION, {}),
        (TRANSACTION, {"table-changes": {}}),
        (TRANSACTION, {"table-changes": [{"requirements": [], "updates": []}]}),
        (RENAME, {}),
        (RENAME, {"source": {"namespace": ["shop"], "name": "orders"}}),
        (RENAME, {"source": {"namespace": ["shop"], "name": "orders"}, "destination": {"namespace": [], "name": "x"}}),
        (REGISTER, {}),
        (REGISTER, {"name": "new"}),
        (REGISTER, {"name": "new", "metadata-location": 7}),
        (REGISTER, {"name": "new", "metadata-location": "/x.json", "overwrite": "yes"}),
    ],
)
def test_wrong_types_and_missing_fields_are_refused(unchanged: Client, path: str, body: dict[str, Any]) -> None:
    assert unchanged.post(path, body).error == BAD


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (VIEWS, {"name": "new"}),
        (VIEWS, {**VIEW, "name": "new", "view-version": []}),
        (VIEWS, {**VIEW, "name": "new", "schema": 7}),
        (NEWEST, {"updates": [{"action": "dance"}]}),
        (NEWEST, {"updates": [{"action": "set-current-view-version", "view-version-id": "x"}]}),
    ],
)
def test_views_with_wrong_types_are_refused(unchanged: Client, path: str, body: dict[str, Any]) -> None:
    assert unchanged.post(path, body).status == 400


@pytest.mark.parametrize(
    "location",
    [
        "/etc/orders",
        "file:///etc/orders",
        "{warehouse}/../outside",
        "{warehouse}/a/../../outside",
        "{warehouse}-beside/orders",
        "s3://bucket/orders",
        "http://example.com/orders",
        "orders",
        "file:///",
        "{warehouse}/./x",
        "\u0000",
        "",
    ],
)
def test_locations_outside_of_the_warehouse_are_refused(unchanged: Client, warehouse: Path, location: str) -> None:
    place = location.replace("{warehouse}", warehouse.as_uri())
    for stage in (False, True):
        body = {"name": "new", "schema": SCHEMA, "location": place, "stage-create": stage}
        assert unchanged.post(TABLES, body).error == BAD
    moved = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
    assert unchanged.post(ORDERS, moved).error == BAD
    assert unchanged.post(VIEWS, {**VIEW, "name": "new", "location": place}).status == 400
    assert unchanged.post(REGISTER, {"name": "new", "metadata-location": f"{place}/v1.json"}).error == BAD
    files = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"write.metadata.path": place}}]}
    if place:
        assert unchanged.post(ORDERS, files).error == BAD


@pytest.mark.parametrize(
    "place", ["lake/orders", "orders", "./orders", "~/orders", f"LAKE/{'y' * 300}", "LAKE" + "/abcdefgh" * 500]
)
def test_locations_that_clients_could_not_use_are_refused(unchanged: Client, warehouse: Path, place: str) -> None:
    body = {"name": "new", "schema": SCHEMA, "location": place.replace("LAKE", warehouse.as_uri())}
    assert unchanged.post(TABLES, body).error == BAD


@pytest.mark.parametrize("key", ["a//b", "a?b", "a#b", "a" * 900])
def test_keys_of_objects_that_clients_read_differently_are_refused(key: str) -> None:
    with pytest.raises(BadIcebergRequestError, match="cannot be at 's3://lake/"):
        check_location(f"s3://lake/{key}", None, what="the table")


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_are_taken_out_of_urls_are_refused(unchanged: Client, name: str) -> None:
    assert unchanged.post(TABLES, {"name": name, "schema": SCHEMA}).error == BAD
    assert unchanged.post("/v1/namespaces", {"namespace": ["a", name]}).error == BAD


@pytest.mark.parametrize("key", ["write.metadata.path", "write.data.path"])
def test_files_are_not_put_into_the_folder_of_another_table(unchanged: Client, key: str) -> None:
    """Its purge would delete them."""
    other = unchanged.get(ORDERS).json["metadata"]["location"]
    created = {"name": "new", "schema": SCHEMA, "properties": {key: f"{other}/metadata"}}
    refused = unchanged.post(TABLES, created)
    assert refused.error == BAD
    assert "in the folder of shop.orders" in refused.message


def test_a_link_out_of_the_warehouse_is_no_way_out(unchanged: Client, warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (warehouse / "link").symlink_to(tmp_path / "outside")
    body = {"name": "new", "schema": SCHEMA, "location": str(warehouse / "link" / "orders")}
    assert unchanged.post(TABLES, body).error == BAD
    assert not list((tmp_path / "outside").iterdir())


def test_the_location_of_another_table_is_refused(unchanged: Client) -> None:
    location = unchanged.get(ORDERS).json["metadata"]["location"]
    for place in (location, f"{location}/inside"):
        refused = unchanged.post(TABLES, {"name": "new", "schema": SCHEMA, "location": place})
        assert refused.error == (409, "AlreadyExistsException")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format-version": 2}', b"\x1f\x8bnot gzip", b"PAR1" * 100, b'{"a":' * 9_000]
)
def test_a_file_that_is_not_metadata_is_not_registered(unchanged: Client, warehouse: Path, content: bytes) -> None:
    file = warehouse / "foreign.metadata.json"
    file.write_bytes(content)
    try:
        for path in (REGISTER, "/v1/namespaces/shop/register-view"):
            refused = unchanged.post(path, {"name": "new", "metadata-location": str(file)})
            assert refused.status == 400
    finally:
        file.unlink()
    assert unchanged.post(REGISTER, {"name": "new", "metadata-location": str(file)}).status == 400
    assert unchanged.post(REGISTER, {"name": "new", "metadata-location": str(warehouse)}).status == 400


def test_metadata_of_a_location_outside_is_not_registered(unchanged: Client, warehouse: Path) -> None:
    metadata = {**unchanged.get(ORDERS).json["metadata"], "location": "file:///etc"}
    file = warehouse / "foreign.metadata.json"
    file.write_text(json.dumps(metadata))
    assert unchanged.post(REGISTER, {"name": "new", "metadata-location": str(file)}).error == BAD
    file.unlink()


@pytest.mark.parametrize("path", ["/v1/namespaces/%FF", "/v1/namespaces/%1F", "/v1/namespaces/a%00", "/v1/namespaces/"])
def test_names_in_paths_that_nobody_can_have_are_refused(unchanged: Client, path: str) -> None:
    assert unchanged.get(path).error == BAD
    assert unchanged.head(path).status == 400


def test_values_of_parameters_that_make_no_sense_are_refused(unchanged: Client) -> None:
    assert unchanged.delete(ORDERS, purgeRequested="perhaps").error == BAD
    assert unchanged.get("/v1/namespaces", parent="\x1f").error == BAD


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


OTHERS: list[Any] = [None, 7, "x", [], {}, [None], True]


def mutations(value: Any) -> list[Any]:
    """The value with one part of it, at any depth, taken away or replaced."""
    found: list[Any] = []
    if isinstance(value, dict):
        for name, part in value.items():
            found.append({key: item for key, item in value.items() if key != name})
            found += [{**value, name: other} for other in OTHERS]
            found += [{**value, name: other} for other in mutations(part)]
    elif isinstance(value, list):
        for place, part in enumerate(value):
            others: list[Any] = [None, *mutations(part)]
            found += [[*value[:place], other, *value[place + 1 :]] for other in others]
    return found


@pytest.mark.parametrize("request_", ["create", "commit", "view"])
def test_no_mutation_of_a_good_body_is_a_bug_of_ours(stocked: Client, request_: str) -> None:
    table = stocked.get(ORDERS).json
    snapshot = {
        "snapshot-id": 7,
        "sequence-number": 1,
        "timestamp-ms": table["metadata"]["last-updated-ms"],
        "manifest-list": "file:/x",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    updates = [
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 1}, "last-column-id": 2},
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [spec_field()]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [sort_field()]}},
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7},
    ]
    path, body = {
        "create": (
            TABLES,
            {
                "name": "orders",
                "schema": SCHEMA,
                "partition-spec": {"spec-id": 0, "fields": [spec_field()]},
                "write-order": {"order-id": 1, "fields": [sort_field()]},
                "properties": {"a": "b"},
            },
        ),
        "commit": (ORDERS, {**set_properties(table, a="1"), "updates": updates}),
        "view": (VIEWS, VIEW),
    }[request_]
    chosen = mutations(body)[:: sized(7, 1)]
    assert len(chosen) > 10
    for mutated in chosen:
        answer = stocked.post(path, mutated)
        assert answer.status < 500, (mutated, answer.body)


def spec_field() -> dict[str, Any]:
    return {"name": "bucket", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}


def sort_field() -> dict[str, Any]:
    return {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}


@given(path=st.sampled_from(POSTS), body=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_no_json_object_is_a_bug_of_ours(stocked: Client, path: str, body: dict[str, Any]) -> None:
    answer = stocked.post(path, body)
    assert answer.status < 500, answer.body


def test_a_bug_of_ours_is_told_by_an_id_only(stocked: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("update dl_namespaces set properties = 'password=hush-hush' where namespace = 'shop'")
    broken = stocked.get("/v1/namespaces/shop")
    assert broken.error == (500, "InternalServerError")
    assert "hush" not in broken.message
    assert "JSONDecodeError" in broken.message
    assert broken.message.split()[2] in caplog.text


def test_a_database_that_stays_locked_is_told_as_a_short_absence(tmp_path: Path, warehouse: Path) -> None:
    file = tmp_path / "catalog.db"
    with (
        connect(file, warehouse=str(warehouse), sql_busy_timeout=0.2) as catalog,
        Endpoint(catalog, token=None, bridge=False, iceberg=True) as endpoint,
    ):
        client = Client(endpoint.url)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("begin immediate")
            absent = client.post("/v1/namespaces", {"namespace": ["new"]})
            assert absent.error == (503, "ServiceUnavailableException")
            assert absent.headers["retry-after"] == "1"
            key = {"Idempotency-Key": "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"}
            assert client.post("/v1/namespaces", {"namespace": ["new"]}, headers=key).status == 503
        assert client.post("/v1/namespaces", {"namespace": ["new"]}, headers=key).status == 200
