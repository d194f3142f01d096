"""What Spark leaves beside the tables under a transaction, and who takes it away; on disk and in S3."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from deltalakedb.serve import LocalEndpoint
from deltalakedb.serve.bridge.overlay import TABLES_AT_ONCE, Leftovers
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.s3 import S3
from tests.serve.wire import make_table


def test_the_overlay_of_a_transaction_goes_when_it_ends(client: EndpointClient, warehouse: Path) -> None:
    path = make_table(client)
    for ends in (client.commit, client.abort):
        tx = client.begin().txn
        client.log(path, txn=tx)
        overlay = warehouse / f"sales/orders/_dldb/txn-{tx}"
        overlay.mkdir(parents=True)
        (overlay / f"{0:020}.crc").write_text("{}")
        shared = warehouse / "sales/orders/_dldb/log"
        shared.mkdir(exist_ok=True)
        ends(tx)
        assert not overlay.exists()
        assert shared.exists()


def test_overlays_of_endpoints_that_died_go_after_a_day(
    client: EndpointClient, endpoint: LocalEndpoint, warehouse: Path
) -> None:
    make_table(client)
    open_one = client.begin().txn
    folders = {}
    for name, age_seconds in [("t" + "1" * 32, 90_000), ("t" + "2" * 32, 1_000), (open_one, 90_000)]:
        folder = folders[name] = warehouse / f"sales/orders/_dldb/txn-{name}"
        folder.mkdir(parents=True)
        file = folder / "x.crc"
        file.write_text("{}")
        for path in (file, folder):
            os.utime(path, (time.time() - age_seconds,) * 2)
    Leftovers(endpoint.catalog).collect(lambda txn: txn == open_one)
    assert {name: folder.exists() for name, folder in folders.items()} == {
        "t" + "1" * 32: False,
        "t" + "2" * 32: True,
        open_one: True,
    }


def test_one_endpoint_looks_for_leftovers_of_all_and_some_tables_at_a_time(
    client: EndpointClient, endpoint: LocalEndpoint, warehouse: Path
) -> None:
    with endpoint.catalog.store.write() as conn:
        conn.run("delete_expired_leases", before_ms=2**62)  # as if the endpoint's own first look were hours ago
    folders = []
    for number in range(TABLES_AT_ONCE + 2):
        make_table(client, f"sales.t{number}")
        folders.append(warehouse / f"sales/t{number}/_dldb/txn-t{'1' * 32}")
        folders[-1].mkdir(parents=True)
        os.utime(folders[-1], (1, 1))
    looks = [Leftovers(endpoint.catalog) for _ in range(2)]
    assert len(looks[0].sweep(lambda _: False)) == TABLES_AT_ONCE
    assert looks[1].sweep(lambda _: False) == [], "another one does it"
    assert len(looks[0].sweep(lambda _: False)) == 2
    assert looks[0].sweep(lambda _: False) == []
    assert not any(folder.exists() for folder in folders)


def test_overlays_in_s3_go_too(catalog_uri: str, s3: S3) -> None:
    options = s3.storage_options
    with pytest.MonkeyPatch.context() as patch:
        for key, value in options.items():
            patch.setenv(key, value)
        with LocalEndpoint(catalog_uri, warehouse=s3.uri("lake")) as endpoint:
            client = EndpointClient(endpoint.url, endpoint.token)
            path = make_table(client, "sales.orders", "a.parquet")
            assert path == f"/s3a/{s3.bucket}/lake/sales/orders"
            tx, dead = client.begin().txn, "t" + "1" * 32
            client.log(path, txn=tx)
            for txn in (tx, dead):
                s3.put(f"lake/sales/orders/_dldb/txn-{txn}/00.crc", b"{}")
                s3.put(f"lake/sales/orders/_dldb/txn-{txn}/_sidecars/x.parquet", b"{}")
            s3.put("lake/sales/orders/_dldb/log/00.crc", b"{}")
            client.commit(tx)
            kept = [key for key in s3.list_keys() if "/_dldb/" in key and not key.endswith("/README.txt")]
            assert sorted(kept) == [
                "lake/sales/orders/_dldb/log/00.crc",
                f"lake/sales/orders/_dldb/txn-{dead}/00.crc",
                f"lake/sales/orders/_dldb/txn-{dead}/_sidecars/x.parquet",
            ]
            leftovers = Leftovers(endpoint.catalog)
            assert leftovers.collect(lambda _: False) == []
            time.sleep(1.1)  # S3 tells times in seconds
            assert leftovers.collect(lambda _: False, dead_seconds=0) == [
                f"{s3.uri('lake/sales/orders')}/_dldb/txn-{dead}"
            ]
            left = [key for key in s3.list_keys() if "/_dldb/" in key and not key.endswith("/README.txt")]
            assert left == ["lake/sales/orders/_dldb/log/00.crc"]
