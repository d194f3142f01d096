"""What clients are told about the storage of a table: where it is, never a secret, and nothing that is empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb.serve.iceberg.call import Call
from deltalakedb.serve.iceberg.storage_settings import StorageSettings
from deltalakedb.serve.server import Endpoint
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY
from tests.iceberg.rest.wire import Client, create_table, table_path

ORDERS = table_path("orders")
ASKING = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}


@pytest.fixture
def on_s3(s3: S3, tmp_path: Path, new_catalog: NewCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a catalog whose warehouse is in a bucket; the server has its keys in the environment."""
    for name, value in s3.storage_options.items():
        monkeypatch.setenv(name, value)
    new_catalog("sqlite", tmp_path / "catalog.db")
    warehouse = s3.uri("lake")
    with Endpoint(tmp_path / "catalog.db", token=None, bridge=False, iceberg=True, warehouse=warehouse) as endpoint:
        client = Client(endpoint.url)
        client.post("/v1/namespaces", {"namespace": ["shop"]})
        yield client


def test_a_client_that_asks_for_access_is_told_how_to_address_the_store(on_s3: Client, s3: S3) -> None:
    create_table(on_s3)
    told = on_s3.get(ORDERS, headers=ASKING).json
    assert told["config"] == {
        "s3.endpoint": s3.endpoint_url,
        "s3.region": "us-east-1",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
    }
    assert "storage-credentials" not in told
    staged = on_s3.post(
        "/v1/namespaces/shop/tables",
        {"name": "staged", "schema": told["metadata"]["schemas"][0], "stage-create": True},
        headers=ASKING,
    )
    assert staged.json["config"] == told["config"]


def test_a_client_that_does_not_ask_keeps_its_own_settings(on_s3: Client) -> None:
    create_table(on_s3)
    assert on_s3.get(ORDERS).json["config"] == {}


def test_no_answer_has_a_secret(on_s3: Client) -> None:
    create_table(on_s3)
    for answer in (
        on_s3.get("/v1/config"),
        on_s3.get(ORDERS, headers=ASKING),
        on_s3.get(f"{ORDERS}/credentials", headers=ASKING),
    ):
        assert answer.status == 200
        assert SECRET_ACCESS_KEY not in answer.body.decode()
        assert ACCESS_KEY_ID not in answer.body.decode()


def test_the_etag_of_an_answer_with_settings_is_another(on_s3: Client) -> None:
    create_table(on_s3)
    with_settings, without = on_s3.get(ORDERS, headers=ASKING), on_s3.get(ORDERS)
    assert with_settings.headers["etag"] != without.headers["etag"]


def test_an_endpoint_with_a_password_in_it_is_not_told() -> None:
    call = Call(headers={"x-iceberg-access-delegation": "vended-credentials"})
    environment = {"AWS_ENDPOINT_URL": "http://me:hush-hush@store.example", "AWS_REGION": ""}
    assert StorageSettings(lambda: environment).of(call, {"location": "s3://bucket/x"}) == {}


def test_tables_on_a_local_disk_need_no_settings(shop: Client) -> None:
    create_table(shop)
    assert shop.get(ORDERS, headers=ASKING).json["config"] == {}
