"""Appends to Delta tables by Spark with Iceberg's own runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb import Catalog
from tests.fixtures.spark import submit_arguments
from tests.iceberg.delta.appending import Lake
from tests.iceberg.delta.judges import check_readers

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_spark_inserts_rows_and_changes_nothing_else(catalog: Catalog, lake: Lake, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("d", pa.date32()), ("x", pa.decimal128(9, 2))])

    def rows(*values: tuple[int, str | None, date | None, Decimal | None]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, value, strict=True)) for value in values], schema=schema)

    first = (1, "a b", date(2024, 1, 1), Decimal("1.00"))
    with catalog.begin() as tx:
        tx.write("shop.t", rows(first), partition_by=["p", "d"])
    catalog.table("shop.t").alter.add_constraint({"positive": "id > 0"})
    done = subprocess.run(
        [sys.executable, "-m", "tests.iceberg.delta.spark_appends", lake.uri],
        env={**os.environ, **submit_arguments(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rows"] == [[1, "a b"], [2, "a b"], [3, None], [4, "k+0"]]
    *others, broken = seen["refused"].values()
    assert len(others) == 7
    assert all("shop.t is a Delta table: Iceberg clients append rows to it" in message for message in others)
    assert "these rows break the constraint positive, id > 0" in broken
    assert catalog.table("shop.t").version() == 3
    expected = rows(
        first,
        (2, "a b", date(1969, 12, 31), Decimal("1.25")),
        (3, None, None, None),
        (4, "k+0", date(2024, 2, 29), Decimal("-0.01")),
    )
    check_readers(catalog, lake, expected, served=False)
