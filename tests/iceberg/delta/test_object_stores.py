"""Files for Iceberg clients are written to object stores as they are to disks, and clients append there."""

from pathlib import Path

import deltalake
import pytest
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb import connect
from deltalakedb.serve.server import Endpoint
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY
from tests.iceberg.delta.reading import rows_of
from tests.interop.maker import numbers


def test_a_table_on_s3(tmp_path: Path, s3: S3) -> None:
    deltalake.write_deltalake(s3.uri("lake/t"), numbers(1, 2), storage_options=s3.storage_options)
    with connect(str(tmp_path / "catalog.db")) as catalog:
        catalog.create_namespace("shop")
        catalog.attach_table(s3.uri("lake/t"), "shop.t", storage_options=s3.storage_options)
        options = {**s3.storage_options, "aws_conditional_put": "etag"}
        for number in range(3, 5):
            deltalake.write_deltalake(s3.uri("lake/t"), numbers(number), mode="append", storage_options=options)
            table = catalog.iceberg("shop.t", storage_options=s3.storage_options)
            assert rows_of(table.scan().to_arrow()) == rows_of(numbers(*range(1, number + 1)))
    assert len([key for key in s3.list_keys() if key.startswith("lake/t/_iceberg/")]) == 3 + 3 + 2


def test_a_client_appends_to_a_table_on_s3(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.storage_options.items():
        monkeypatch.setenv(name, value)
    keys = {
        "s3.endpoint": s3.endpoint_url,
        "s3.access-key-id": ACCESS_KEY_ID,
        "s3.secret-access-key": SECRET_ACCESS_KEY,
        "s3.region": "us-east-1",
    }
    target, warehouse = str(tmp_path / "catalog.db"), s3.uri("lake")
    with Endpoint(target, token=None, bridge=False, iceberg=True, warehouse=warehouse) as endpoint:
        endpoint.catalog.create_namespace("shop")
        with endpoint.catalog.begin() as tx:
            tx.write("shop.t", numbers(1, 2), partition_by=["name"])
        client = RestCatalog("lake", uri=f"{endpoint.url}/iceberg", **keys)
        for number in (3, 4):
            client.load_table("shop.t").append(numbers(number))
        endpoint.catalog.mirror.flush()
        expected = rows_of(numbers(1, 2, 3, 4))
        assert rows_of(client.load_table("shop.t").scan().to_arrow()) == expected
        assert rows_of(endpoint.catalog.table("shop.t").to_pyarrow_table()) == expected
        assert [entry["operation"] for entry in endpoint.catalog.table("shop.t").history()][:2] == ["WRITE", "WRITE"]
        place = endpoint.catalog.table("shop.t").table_uri
    others = deltalake.DeltaTable(place, storage_options=s3.storage_options)
    assert rows_of(others.to_pyarrow_table()) == expected
