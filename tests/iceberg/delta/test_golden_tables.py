"""Iceberg clients read the tables of `deltalake` and of delta-spark as Delta readers do, at every version."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import NotSayableInIcebergError
from deltalakedb.serve.server import Endpoint
from tests.fixtures.golden import SOME_BY_SPARK
from tests.fixtures.sizes import every
from tests.golden import by_deltalake
from tests.golden.judges import SparkTable
from tests.iceberg.delta.lake import load
from tests.iceberg.delta.reading import Clients

REFUSED = {
    "shallow_clone": "is outside of the table's folder",
    "type_widening": "was widened from",
    "variant": "is of the type variant, which Iceberg does not have",
}
"""Tables that Iceberg cannot say, and why."""

PYICEBERG = ("PyIceberg", "PyIceberg, planned by the catalog")
NO_NULLS = {"PyIceberg, planned by the catalog": "PyIceberg cannot read null as a partition value"}
NOT_READ_OF_DELTALAKE = {
    "partitioned": NO_NULLS,
    "nested": {"DuckDB": "'key' of MAP did not map", **dict.fromkeys(PYICEBERG, "'points': []")},
    "compacted_log": dict.fromkeys(PYICEBERG, "incompatible types: string"),
}
"""What clients do wrong by themselves, with a part of each difference; docs/iceberg.md has the list."""
NOT_READ_BY_SPARK = {
    "partitioned": {**NO_NULLS, **dict.fromkeys(("PyIceberg", "DuckDB", "Polars"), "'city': ''")},
    "multi_part_checkpoints": NO_NULLS,
    "stats_as_struct": NO_NULLS,
}


def check(
    name: str,
    path: Path,
    endpoint: Endpoint,
    duck: duckdb.DuckDBPyConnection,
    folder: Path,
    expected: Mapping[str, str],
) -> None:
    catalog: Catalog = endpoint.catalog
    catalog.create_namespace("shop")
    catalog.attach_table(str(shutil.copytree(path, folder / name)), "shop.t")
    if name in REFUSED:
        with pytest.raises(NotSayableInIcebergError, match=REFUSED[name]):
            load(catalog)
        return
    clients = Clients(f"{endpoint.url}/iceberg", duck)
    found = list(
        clients.differences("shop.t", lambda version: catalog.table("shop.t", version=version).to_pyarrow_table())
    )
    assert [item for item in found if item[0] not in expected or expected[item[0]] not in item[1]] == []
    assert {client for client, _ in found} == set(expected)


@pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", every(5, by_deltalake.TABLES, always=["nested"]))
def test_tables_of_deltalake(
    name: str,
    tables_by_deltalake: Mapping[str, Path],
    endpoint: Endpoint,
    duck: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    check(name, tables_by_deltalake[name], endpoint, duck, tmp_path, NOT_READ_OF_DELTALAKE.get(name, {}))


@pytest.mark.spark
@pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", SOME_BY_SPARK)
def test_tables_of_spark(
    name: str,
    tables_by_spark: Mapping[str, SparkTable],
    endpoint: Endpoint,
    duck: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    check(name, tables_by_spark[name].path, endpoint, duck, tmp_path, NOT_READ_BY_SPARK.get(name, {}))
