"""Transactions over tables on S3: written, read, rolled back and purged there; keys are kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import deltalake
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import MalformedLogError, TableExistsError
from tests.conformance.transacting import days, ids_of, numbers
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY


@pytest.fixture
def catalog(target: str, s3: S3) -> Iterator[Catalog]:
    with deltalakedb.connect(target, warehouse=s3.uri("lake")) as opened:
        yield opened


def test_tables_on_s3_are_written_together_and_read_by_others(catalog: Catalog, s3: S3) -> None:
    options = s3.storage_options
    with catalog.begin() as tx:
        tx.write("sales.a%b c", days((1, "mon"), (2, "tue/x")), partition_by="day", storage_options=options)
        tx.create_table("sales.b", "id long", storage_options=options)
        tx.write("sales.b", numbers(7), mode="append")
        assert ids_of(tx.table("sales.b")) == [7]
    assert tx.result == {"sales.`a%b c`": 0, "sales.b": 1}
    assert ids_of(catalog.table("sales.a%b c")) == [1, 2], "options given once hold while the catalog is open"
    seen = deltalake.DeltaTable(s3.uri("lake/sales/b"), storage_options=options)
    assert (seen.version(), seen.to_pyarrow_table().column("id").to_pylist()) == (1, [7])
    stored = catalog.sql("select properties from dl_tables").column("properties").to_pylist()
    assert all(ACCESS_KEY_ID not in text and SECRET_ACCESS_KEY not in text for text in stored)
    assert all(s3.endpoint_url in text for text in stored), "where it is, is remembered"


def test_what_is_rolled_back_leaves_no_object(catalog: Catalog, s3: S3) -> None:
    tx = catalog.begin()
    tx.write("t", numbers(1), storage_options=s3.storage_options)
    assert len(s3.list_keys()) == 1
    tx.rollback()
    assert s3.list_keys() == []


def test_a_purge_deletes_the_objects_of_the_table_and_no_others(catalog: Catalog, s3: S3) -> None:
    s3.put("lake/default/table-next/keep", b"x")
    with catalog.begin() as tx:
        tx.write("table", numbers(1), storage_options=s3.storage_options)
    assert len(s3.list_keys()) > 1
    catalog.drop_table("table", purge=True)
    assert s3.list_keys() == ["lake/default/table-next/keep"]


def test_a_table_of_others_on_s3_is_not_created_over(catalog: Catalog, s3: S3) -> None:
    s3.put("elsewhere/_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(TableExistsError, match="dl import"), catalog.begin() as tx:
        tx.create_table("t", "id long", location=s3.uri("elsewhere"), storage_options=s3.storage_options)
    with pytest.raises(MalformedLogError):
        catalog.create_table("t", "id long", location=s3.uri("elsewhere"), storage_options=s3.storage_options)
    assert catalog.tables() == []
