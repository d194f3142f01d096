"""Iceberg clients read the tables of `deltalake` and of delta-spark as Delta readers do, at every version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import MissingFileError, NotSayableInIcebergError
from deltalakedb.serve.server import Endpoint
from tests.fixtures.golden import SOME_BY_SPARK
from tests.fixtures.sizes import every
from tests.fixtures.spark import submit_arguments
from tests.golden import by_deltalake
from tests.golden.judges import SparkTable
from tests.iceberg.delta.lake import load
from tests.iceberg.delta.reading import Clients, rows_of
from tests.interop.kinds import KINDS
from tests.interop.maker import Maker

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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)
def test_spark_reads_all_tables(
    tables_by_deltalake: Mapping[str, Path],
    tables_by_spark: Mapping[str, SparkTable],
    endpoint: Endpoint,
    tmp_path: Path,
) -> None:
    catalog = endpoint.catalog
    catalog.create_namespace("shop")
    golden = {f"by_{name}": path for name, path in tables_by_deltalake.items()}
    golden |= {name: table.path for name, table in tables_by_spark.items() if name not in REFUSED}
    for name, path in golden.items():
        catalog.attach_table(str(shutil.copytree(path, tmp_path / name)), f"shop.{name}")
    tables = [f"shop.{name}" for name in golden]
    for name, steps in KINDS.items():
        table = Maker(catalog, f"shop.our_{name}", tmp_path / "lake" / name)
        assert list(steps(table))
        tables.append(table.name)
    assert spark_differences(endpoint, tables, tmp_path) == []


def spark_differences(endpoint: Endpoint, tables: Sequence[str], folder: Path) -> list[str]:
    """What Spark reads otherwise than Delta readers, at every version, planning by itself and with the catalog's plans.

    Where a version has lost files, so that Delta readers fail, Spark has to fail, too.
    """
    names = [name.partition(".")[2] for name in tables]
    done = subprocess.run(
        [sys.executable, "-m", "tests.iceberg.delta.spark_reads", f"{endpoint.url}/iceberg", str(folder), *names],
        env={**os.environ, **submit_arguments(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    wrong = []
    for name in names:
        head = endpoint.catalog.table(f"shop.{name}").version()
        versions = [version for version in range(head + 1) if any(folder.glob(f"{name}.{version}.*"))]
        assert versions, name
        assert versions == list(range(versions[0], head + 1)), name
        for version in versions:
            try:
                rows = endpoint.catalog.table(f"shop.{name}", version=version).to_pyarrow_table()
            except MissingFileError:
                expected = None
            else:
                expected = rows_of(rows)
            for planner in ("lake", "served"):
                place = folder / f"{name}.{version}.{planner}.arrow"
                found = rows_of(pa.ipc.open_file(place).read_all()) if place.exists() else None
                if found != expected:
                    error = "" if place.exists() else place.with_suffix(".error").read_text()[:300]
                    wrong.append(f"{name} version {version}, {planner}: {found and found[:3]} {error}, not {expected}")
    return wrong
