"""Spark reads Delta tables by manifests as it does by plans of the catalog, and shows its metadata tables of them."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb import DeltaTable, write_deltalake
from deltalakedb.serve.server import Endpoint
from tests.fixtures.spark import submit_arguments
from tests.iceberg.served import address_of

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)]


def rows(*ids: int) -> pa.Table:
    at = [dt.datetime(2024, 1, 1, 0, 0, 0, 123456 + number, dt.UTC) for number in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [f"p {number % 3}" if number else None for number in ids],
            "day": [dt.date(2024, 1, 1 + number) for number in ids],
            "x": [number / 4 for number in ids],
            "at": pa.array(at, pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize("planning", ["client", "server"])
def test_spark_reads_every_version(planning: str, endpoint: Endpoint, uri: str, tmp_path: Path) -> None:
    address = address_of(endpoint, "shop.t", tmp_path / "lake")
    write_deltalake(address, rows(*range(8)), partition_by=["p", "day"])
    write_deltalake(address, rows(8, 9), mode="append")
    endpoint.catalog.iceberg("shop.t")  # version 1 has a manifest of format version 2
    DeltaTable(address).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    write_deltalake(address, rows(10, 11, 12, 13), mode="append")
    DeltaTable(address).optimize.compact()
    DeltaTable(address).delete("id = 11 or id = 5")
    done = subprocess.run(
        [sys.executable, "-m", "tests.iceberg.delta.spark_job", uri, planning],
        env={**os.environ, **submit_arguments(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    head = DeltaTable(address).version()
    assert list(seen["versions"]) == [str(version) for version in range(head + 1)]
    for version in range(head + 1):
        table = DeltaTable(address, version=version).to_pyarrow_table().sort_by("id")
        found = [(row[0], row[1], row[2], row[3]) for row in seen["versions"][str(version)]]
        assert found == [(row["id"], row["p"], str(row["day"]), row["x"]) for row in table.to_pylist()], version
    left = [number for number in range(14) if number not in (5, 11)]
    assert seen["tag"] == [[10]]
    assert seen["history"] == head + 1
    assert sum(record_count for record_count, content in seen["files"] if content == 0) >= len(left)
    assert seen["manifests"] > 0
    assert seen["entries"] >= len(seen["files"])
    assert seen["filtered"] == [[7], [10], [13]]
    assert seen["by_day"] == [[number] for number in left if number >= 2]
    assert seen["ends"] == [[0, 13, "2024-01-01 00:00:00.123456", "2024-01-01 00:00:00.123469"]]
