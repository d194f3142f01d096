"""What a client is told first: the endpoints, the lifetime of keys, and which warehouse this is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.iceberg.rest.wire import Client

PREFIX = "/v1/{prefix}"
NAMESPACE = f"{PREFIX}/namespaces/{{namespace}}"
TABLE, VIEW = f"{NAMESPACE}/tables/{{table}}", f"{NAMESPACE}/views/{{view}}"
ENDPOINTS = {
    f"GET {PREFIX}/namespaces",
    f"POST {PREFIX}/namespaces",
    f"GET {NAMESPACE}",
    f"HEAD {NAMESPACE}",
    f"DELETE {NAMESPACE}",
    f"POST {NAMESPACE}/properties",
    f"GET {NAMESPACE}/tables",
    f"POST {NAMESPACE}/tables",
    f"GET {TABLE}",
    f"HEAD {TABLE}",
    f"POST {TABLE}",
    f"DELETE {TABLE}",
    f"POST {TABLE}/unregister",
    f"POST {TABLE}/metrics",
    f"GET {TABLE}/credentials",
    f"POST {TABLE}/plan",
    f"GET {TABLE}/plan/{{plan-id}}",
    f"DELETE {TABLE}/plan/{{plan-id}}",
    f"POST {TABLE}/tasks",
    f"POST {PREFIX}/tables/rename",
    f"POST {NAMESPACE}/register",
    f"POST {PREFIX}/transactions/commit",
    f"GET {NAMESPACE}/views",
    f"POST {NAMESPACE}/views",
    f"GET {VIEW}",
    f"HEAD {VIEW}",
    f"POST {VIEW}",
    f"DELETE {VIEW}",
    f"POST {PREFIX}/views/rename",
    f"POST {NAMESPACE}/register-view",
}


def test_the_endpoints_are_told_as_the_specification_spells_them(client: Client) -> None:
    config = client.get("/v1/config")
    assert config.status == 200
    assert set(config.json["endpoints"]) == ENDPOINTS
    assert len(config.json["endpoints"]) == len(ENDPOINTS)
    assert config.json["idempotency-key-lifetime"] == "PT60M"
    assert (config.json["defaults"], config.json["overrides"]) == ({}, {})


def test_each_endpoint_that_is_told_answers_with_and_without_a_prefix(client: Client) -> None:
    for endpoint in client.get("/v1/config").json["endpoints"]:
        method, _, path = endpoint.partition(" ")
        for prefix in ("", "/catalog"):
            target = path.replace("/{prefix}", prefix).replace("{", "").replace("}", "")
            answer = client.ask(method, target, {} if method == "POST" else None)
            assert answer.status != 405, (endpoint, prefix)
            if method != "HEAD" and answer.status >= 400:
                assert answer.error[1] not in ("NoSuchEndpointException", "NoSuchWarehouseException"), answer.body


def test_the_warehouse_is_known_by_the_name_of_the_database_and_by_its_location(
    client: Client, warehouse: Path
) -> None:
    for name in ("", "catalog", str(warehouse), warehouse.as_uri()):
        assert client.get("/v1/config", warehouse=name).status == 200, name
    assert client.get(f"/v1/{quote(str(warehouse), safe='')}/namespaces").status == 200


def test_another_warehouse_or_prefix_does_not_exist(client: Client) -> None:
    unknown = client.get("/v1/config", warehouse="elsewhere")
    assert unknown.error == (404, "NoSuchWarehouseException")
    assert "this one is catalog" in unknown.message
    assert client.get("/v1/elsewhere/namespaces").error == (404, "NoSuchWarehouseException")


def test_unknown_paths_and_methods_are_told_apart(client: Client) -> None:
    for path in ("/v1/what", "/v2/config", "/", "/v1/namespaces/a/what", "/v1/namespaces/a/tables/b/c/d"):
        assert client.get(path).error == (404, "NoSuchEndpointException"), path
    assert client.ask("PUT", "/v1/namespaces").error == (405, "MethodNotAllowedException")


def test_a_doubled_slash_at_the_start_does_no_harm(client: Client) -> None:
    assert client.get("//v1/config").status == 200
