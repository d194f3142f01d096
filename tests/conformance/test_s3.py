"""A table on S3, written there by `deltalake`: attached, followed, validated, discovered; its keys are seen nowhere."""

import logging
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import DeltaError
from deltalakedb.mirror.follow import attach, follow
from deltalakedb.mirror.validate import validate
from deltalakedb.store.connection import Store
from tests.conformance.test_attach import live_paths
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY


def write_rows(s3: S3, key: str, *values: int) -> None:
    options = {**s3.storage_options, "aws_conditional_put": "etag"}
    rows = pa.table({"id": pa.array(values, pa.int64())})
    deltalake.write_deltalake(s3.uri(key), rows, mode="append", storage_options=options)


def expected_paths(s3: S3, key: str) -> set[str]:
    uris = deltalake.DeltaTable(s3.uri(key), storage_options=s3.storage_options).file_uris()
    return {uri.rsplit("/", 1)[-1] for uri in uris}


def test_a_table_on_s3_is_attached_followed_and_validated(store: Store, s3: S3) -> None:
    for number in range(3):
        write_rows(s3, "lake/orders", number)
    location = s3.uri("lake/orders").replace("s3://", "s3a://") + "/"
    table = attach(store, location, namespace="default", name="orders", storage_options=s3.storage_options).table
    assert table.location == s3.uri("lake/orders"), "one location has one spelling"
    deltalake.DeltaTable(s3.uri("lake/orders"), storage_options=s3.storage_options).create_checkpoint()
    write_rows(s3, "lake/orders", 7)
    assert follow(store, table, storage_options=s3.storage_options).to_version == 3
    assert live_paths(store, table) == expected_paths(s3, "lake/orders")
    assert validate(store, table, storage_options=s3.storage_options).drift is None


def test_clean_up_on_s3_is_bridged_by_a_checkpoint(store: Store, s3: S3) -> None:
    write_rows(s3, "orders", 0)
    table = attach(
        store, s3.uri("orders"), namespace="default", name="orders", storage_options=s3.storage_options
    ).table
    for number in range(4):
        write_rows(s3, "orders", number)
    deltalake.DeltaTable(s3.uri("orders"), storage_options=s3.storage_options).create_checkpoint()
    for version in range(4):
        s3.delete(f"orders/_delta_log/{version:020d}.json")
    result = follow(store, table, storage_options=s3.storage_options)
    assert (result.to_version, result.gap and (result.gap.first, result.gap.last)) == (4, (1, 3))
    assert live_paths(store, table) == expected_paths(s3, "orders")


def test_keys_reach_neither_the_database_nor_a_message(
    tmp_path: Path, s3: S3, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(s3, "orders", 1)
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG), dl.connect(tmp_path / "catalog.db") as cat:
        table = cat.attach_table(s3.uri("orders"), "orders", storage_options=s3.storage_options)
        seen += [repr(cat), repr(table), repr(table.history()), repr(cat.audit())]
        for name, value in s3.storage_options.items():
            if name != "AWS_ENDPOINT_URL":
                monkeypatch.setenv(name, value)
        assert cat.follow("orders")[0].to_version == 0, "the endpoint is remembered, the keys come from the environment"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
        wrong = {**s3.storage_options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        with pytest.raises(DeltaError) as caught:
            cat.follow("orders", storage_options=wrong)
        seen += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    seen += [record.getMessage() for record in caplog.records]
    seen.append((tmp_path / "catalog.db").read_bytes().decode("latin-1"))
    for secret in (SECRET_ACCESS_KEY, ACCESS_KEY_ID):
        assert not [text[:200] for text in seen if secret in text]
