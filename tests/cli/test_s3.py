"""A table on S3: where it is is remembered, the keys come from the environment each time."""

from __future__ import annotations

import json

import deltalake
import pytest

import deltalakedb
from tests.cli.conftest import Dl, rows
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY


@pytest.fixture
def where(s3: S3) -> list[str]:
    """The options that say where the bucket is, and not who may read it."""
    secret = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    pairs = [f"{key}={value}" for key, value in s3.storage_options.items() if key not in secret]
    return [part for pair in pairs for part in ("--storage-option", pair)]


def write(s3: S3, key: str, first: int) -> None:
    options = {**s3.storage_options, "aws_conditional_put": "etag"}
    deltalake.write_deltalake(s3.uri(key), rows(first, first + 2), mode="append", storage_options=options)


def test_follow_needs_only_the_keys_again(
    dl: Dl, s3: S3, where: list[str], monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    write(s3, "lake/orders", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    assert dl("attach", s3.uri("lake/orders"), "--as", "sales.orders", *where).exit_code == 0
    write(s3, "lake/orders", 4)
    followed = dl("follow", "--json")
    assert followed.exit_code == 0, followed.stderr
    assert json.loads(followed.stdout)[0]["to_version"] == 1
    assert dl("validate", "--all").exit_code == 0
    with deltalakedb.connect(catalog) as opened:
        ours = sorted(opened.table("sales.orders").file_uris())
    theirs = deltalake.DeltaTable(s3.uri("lake/orders"), storage_options=s3.storage_options).file_uris()
    assert ours == sorted(theirs)


def test_tables_below_a_prefix_of_a_bucket_are_found(dl: Dl, s3: S3) -> None:
    for key in ("lake/eu/orders", "lake/eu/customers", "other/x"):
        write(s3, key, 1)
    options = [part for key, value in s3.storage_options.items() for part in ("--storage-option", f"{key}={value}")]
    found = dl("import", "--recursive", s3.uri("lake"), "--json", *options)
    assert found.exit_code == 0, found.stderr
    assert sorted(entry["table"] for entry in json.loads(found.stdout)) == ["eu.customers", "eu.orders"]
    assert SECRET_ACCESS_KEY not in dl("sql", "select * from dl_tables", "--json").stdout
    assert SECRET_ACCESS_KEY not in dl("audit", "--json").stdout
