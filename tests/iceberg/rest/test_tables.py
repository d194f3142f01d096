"""Tables: created, staged, loaded with an ETag, renamed, registered elsewhere, dropped with and without their files."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from deltalakedb.serve.server import Endpoint
from deltalakedb.telemetry.metrics import ICEBERG_REPORTS, value_of
from tests.iceberg.rest.wire import (
    SCHEMA,
    VIEW,
    Client,
    add_snapshot,
    create_table,
    set_properties,
    table_path,
)

ORDERS = table_path("orders")


def path_of(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))


def test_a_created_table_is_loaded_listed_and_exists(shop: Client, warehouse: Path) -> None:
    created = create_table(shop, properties={"owner": "ann"})
    loaded = shop.get(ORDERS)
    assert loaded.status == 200
    assert loaded.json == created
    assert created["metadata"]["properties"]["owner"] == "ann"
    assert created["config"] == {}
    assert "storage-credentials" not in created
    assert path_of(created["metadata-location"]).is_relative_to(warehouse.resolve())
    assert path_of(created["metadata-location"]).exists()
    assert shop.head(ORDERS).status == 204
    assert shop.get("/v1/namespaces/shop/tables").json == {
        "identifiers": [{"namespace": ["shop"], "name": "orders"}],
        "next-page-token": None,
    }


@pytest.mark.parametrize("name", ["a.b", "a/b", "a b", "Straße", "`x`", "100%", "rename", "metrics"])
def test_names_of_any_characters_come_back_as_they_were_sent(shop: Client, name: str) -> None:
    create_table(shop, name)
    assert shop.head(table_path(name)).status == 204
    identifiers = shop.get("/v1/namespaces/shop/tables").json["identifiers"]
    assert identifiers == [{"namespace": ["shop"], "name": name}]
    assert shop.post(table_path(name), set_properties(shop.get(table_path(name)).json, k="v")).status == 200
    assert shop.delete(table_path(name)).status == 204


def test_a_missing_table_is_told_from_a_missing_namespace(shop: Client) -> None:
    assert shop.get(ORDERS).error == (404, "NoSuchTableException")
    assert shop.get(ORDERS).message == "Table does not exist: shop.orders"
    assert shop.head(ORDERS).status == 404
    # Clients look for metadata tables in this way, and expect this type.
    assert shop.get(table_path("snapshots", "shop", "orders")).error == (404, "NoSuchTableException")
    assert shop.get("/v1/namespaces/x/tables").error == (404, "NoSuchNamespaceException")
    created = shop.post("/v1/namespaces/x/tables", {"name": "orders", "schema": SCHEMA})
    assert created.error == (404, "NoSuchNamespaceException")
    for answer in (
        shop.delete(ORDERS),
        shop.post(ORDERS, {"requirements": [], "updates": []}),
        shop.post(f"{ORDERS}/unregister"),
        shop.post(f"{ORDERS}/metrics", {"report-type": "scan-report"}),
        shop.get(f"{ORDERS}/credentials"),
    ):
        assert answer.error == (404, "NoSuchTableException")


def test_a_name_is_taken_by_a_table_of_either_format_or_a_view(shop: Client, endpoint: Endpoint) -> None:
    create_table(shop)
    endpoint.catalog.create_table("shop.delta", "id long")
    assert shop.post("/v1/namespaces/shop/views", VIEW).status == 200
    messages = {
        "orders": "Table already exists: shop.orders",
        "delta": "Table already exists: shop.delta",
        "newest": "View with same name already exists: shop.newest",
    }
    for stage in (False, True):
        for name, message in messages.items():
            taken = shop.post("/v1/namespaces/shop/tables", {"name": name, "schema": SCHEMA, "stage-create": stage})
            assert taken.error == (409, "AlreadyExistsException")
            assert taken.message == message


def test_a_delta_table_is_listed_and_loaded_and_not_dropped(shop: Client, endpoint: Endpoint) -> None:
    endpoint.catalog.create_table("shop.delta", "id long")
    assert shop.get("/v1/namespaces/shop/tables").json["identifiers"] == [{"namespace": ["shop"], "name": "delta"}]
    loaded = shop.get(table_path("delta"))
    assert loaded.status == 200
    location = loaded.json["metadata-location"]
    assert json.loads(path_of(location).read_bytes()) == loaded.json["metadata"]
    assert shop.get(table_path("delta"), headers={"If-None-Match": loaded.headers["etag"]}).status == 304
    assert shop.delete(table_path("delta")).error == (400, "BadRequestException")
    assert endpoint.catalog.tables() == ["shop.delta"]


def test_a_staged_table_exists_once_it_is_committed(shop: Client) -> None:
    staged = create_table(shop, "orders", **{"stage-create": True})
    assert staged.get("metadata-location") is None
    location = path_of(staged["metadata"]["location"])
    assert (location / "data").is_dir()  # some clients write files before they commit
    assert (location / "metadata").is_dir()
    assert shop.get(ORDERS).error == (404, "NoSuchTableException")
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    committed = shop.post(ORDERS, {"requirements": [{"type": "assert-create"}], "updates": updates})
    assert committed.status == 200, committed.body
    assert committed.json["metadata"]["location"] == metadata["location"]
    assert shop.head(ORDERS).status == 204
    again = shop.post(ORDERS, {"requirements": [{"type": "assert-create"}], "updates": updates})
    assert again.error == (409, "CommitFailedException")


def test_a_load_is_answered_304_while_nothing_has_changed(shop: Client) -> None:
    create_table(shop)
    first = shop.get(ORDERS)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        unchanged = shop.get(ORDERS, headers={"If-None-Match": known})
        assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", tag)
    committed = shop.post(ORDERS, set_properties(first.json, k="v"))
    changed = shop.get(ORDERS, headers={"If-None-Match": tag})
    assert changed.status == 200
    assert changed.headers["etag"] == committed.headers["etag"] != tag


def test_a_load_with_refs_has_only_the_snapshots_of_branches_and_tags(shop: Client) -> None:
    table = create_table(shop)
    for snapshot_id in (2**62 + 1, 17):
        table = shop.post(ORDERS, add_snapshot(table, snapshot_id)).json
    everything, refs = shop.get(ORDERS, snapshots="all"), shop.get(ORDERS, snapshots="refs")
    assert [snapshot["snapshot-id"] for snapshot in everything.json["metadata"]["snapshots"]] == [2**62 + 1, 17]
    assert [snapshot["snapshot-id"] for snapshot in refs.json["metadata"]["snapshots"]] == [17]
    assert everything.headers["etag"] != refs.headers["etag"]
    assert shop.get(ORDERS).headers["etag"] == everything.headers["etag"]
    assert shop.get(ORDERS, headers={"If-None-Match": refs.headers["etag"]}).status == 200
    assert shop.get(ORDERS, snapshots="some").error == (400, "BadRequestException")


def test_a_table_whose_metadata_file_is_gone_is_not_loaded(shop: Client) -> None:
    created = create_table(shop)
    path_of(created["metadata-location"]).unlink()
    missing = shop.get(ORDERS)
    assert missing.error == (404, "NotFoundException")
    assert created["metadata-location"] in missing.message


def rename(client: Client, source: str, target: str, namespace: str = "shop", noun: str = "tables") -> object:
    body = {
        "source": {"namespace": ["shop"], "name": source},
        "destination": {"namespace": [namespace], "name": target},
    }
    answer = client.post(f"/v1/{noun}/rename", body)
    return answer.status if answer.status < 400 else (*answer.error, answer.message)


def test_a_table_is_renamed_also_into_another_namespace(shop: Client) -> None:
    created = create_table(shop)
    shop.post("/v1/namespaces", {"namespace": ["old"]})
    assert rename(shop, "orders", "purchases", "old") == 204
    assert shop.head(ORDERS).status == 404
    assert shop.get(table_path("purchases", "old")).json["metadata"] == created["metadata"]


def test_a_renaming_says_which_name_is_in_the_way(shop: Client) -> None:
    create_table(shop)
    create_table(shop, "other")
    shop.post("/v1/namespaces/shop/views", VIEW)
    already, missing = "AlreadyExistsException", "NoSuchTableException"
    in_the_way = "Cannot rename shop.orders to shop.other. Table already exists"
    assert rename(shop, "orders", "other") == (409, already, in_the_way)
    in_the_way = "Cannot rename shop.orders to shop.newest. View already exists"
    assert rename(shop, "orders", "newest") == (409, already, in_the_way)
    assert rename(shop, "x", "y") == (404, missing, "Table does not exist: shop.x")
    assert rename(shop, "newest", "y") == (404, missing, "Table does not exist: shop.newest")
    no_namespace = (404, "NoSuchNamespaceException", "Namespace does not exist: x")
    assert rename(shop, "orders", "other", "x") == no_namespace
    assert shop.head(ORDERS).status == 204


def test_a_dropped_table_leaves_its_files_and_can_be_registered_again(shop: Client) -> None:
    created = create_table(shop)
    assert shop.delete(ORDERS).status == 204
    assert shop.head(ORDERS).status == 404
    assert path_of(created["metadata-location"]).exists()
    body = {"name": "again", "metadata-location": created["metadata-location"]}
    registered = shop.post("/v1/namespaces/shop/register", body)
    assert registered.status == 200, registered.body
    assert registered.json["metadata"] == created["metadata"]
    assert registered.headers["etag"] == shop.get(table_path("again")).headers["etag"]


def test_a_purge_deletes_the_files(shop: Client) -> None:
    created = create_table(shop)
    assert shop.delete(ORDERS, purgeRequested="true").status == 204
    assert not path_of(created["metadata-location"]).exists()


def test_an_unregistered_table_comes_back_with_its_last_state(shop: Client) -> None:
    created = create_table(shop)
    unregistered = shop.post(f"{ORDERS}/unregister")
    assert unregistered.status == 200
    assert unregistered.json == {key: created[key] for key in ("metadata-location", "metadata")}
    assert shop.head(ORDERS).status == 404
    assert path_of(created["metadata-location"]).exists()


def test_a_registered_name_is_overwritten_only_if_asked(shop: Client) -> None:
    first = create_table(shop)
    second = shop.post(ORDERS, set_properties(first, k="v")).json
    body = {"name": "orders", "metadata-location": first["metadata-location"]}
    assert shop.post("/v1/namespaces/shop/register", body).error == (409, "AlreadyExistsException")
    assert shop.get(ORDERS).json["metadata-location"] == second["metadata-location"]
    assert shop.post("/v1/namespaces/shop/register", {**body, "overwrite": True}).status == 200
    assert shop.get(ORDERS).json["metadata"]["properties"].get("k") is None


def test_reports_are_counted(shop: Client) -> None:
    create_table(shop)
    before = {report: counted(report) for report in ("scan-report", "commit-report")}
    for report in ("scan-report", "scan-report", "commit-report"):
        assert shop.post(f"{ORDERS}/metrics", {"report-type": report, "snapshot-id": 1}).status == 204
    assert counted("scan-report") == before["scan-report"] + 2
    assert counted("commit-report") == before["commit-report"] + 1
    assert shop.post(f"{ORDERS}/metrics", {"report-type": "x"}).error == (400, "BadRequestException")


def counted(report: str) -> float:
    return value_of(ICEBERG_REPORTS, report) or 0.0


def test_no_credentials_are_handed_out(shop: Client) -> None:
    create_table(shop)
    assert shop.get(f"{ORDERS}/credentials").json == {"storage-credentials": []}
