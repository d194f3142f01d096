"""The 22 queries of TPC-H at scale 0.1, planned by the database, have the same answers as on plain Delta."""

import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import duckdb
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCALE: Final = 0.1
SORTED: Final = {"lineitem": ("l_shipdate", 8), "orders": ("o_orderdate", 4), "partsupp": ("ps_partkey", 4)}
"""Files whose bounds tell them apart."""
PARTITIONED: Final = {"customer": "c_nationkey", "part": "p_brand"}


@pytest.fixture(scope="module")
def generator() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the extension, loaded from its wheel, and the eight tables."""
    folder = Path(cast(str, import_module("duckdb_extension_tpch").__file__)).parent
    with duckdb.connect() as connection:
        connection.execute(f"load '{folder}/extensions/v{duckdb.__version__}/tpch.duckdb_extension'")
        connection.execute(f"call dbgen(sf = {SCALE})")
        yield connection


@pytest.fixture(scope="module")
def databases(
    spark: SparkSession,
    bridge_catalog: dl.Catalog,
    generator: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, str], dict[str, str]]:
    """What SQL calls the tables: the plain ones, and those of the catalog, copies of them."""
    folder = tmp_path_factory.mktemp("tpch")
    plain, ours = {}, {}
    for (name,) in generator.execute("select table_name from duckdb_tables()").fetchall():
        generator.execute(f"copy {name} to '{folder}/{name}.parquet' (format parquet)")
        _write(spark, folder, name)
        shutil.copytree(folder / "plain" / name, folder / "ours" / name)
        bridge_catalog.import_table(str(folder / "ours" / name), f"tpch.{name}")
        plain[name], ours[name] = f"delta.`{folder}/plain/{name}`", f"tpch.{name}"
    return plain, ours


def _write(spark: SparkSession, folder: Path, name: str) -> None:
    rows = spark.read.parquet(f"{folder}/{name}.parquet")
    if name in SORTED:
        column, files = SORTED[name]
        rows = rows.repartitionByRange(files, column)
    else:
        rows = rows.coalesce(1)
    writer = rows.write.format("delta").option("delta.enableDeletionVectors", str(name == "orders").lower())
    if name in PARTITIONED:
        writer = writer.partitionBy(PARTITIONED[name])
    writer.save(f"{folder}/plain/{name}")


@pytest.mark.parametrize("number", range(1, 23))
def test_answers_are_those_of_plain_delta(
    spark: SparkSession,
    generator: duckdb.DuckDBPyConnection,
    databases: tuple[dict[str, str], dict[str, str]],
    number: int,
) -> None:
    found = generator.execute("select query from tpch_queries() where query_nr = ?", [number]).fetchone()
    assert found is not None
    query = str(found[0]).rstrip().rstrip(";")
    plain, of_catalog = databases
    theirs = _answer(spark, query, plain)
    before = dls.planned_scans(spark)
    ours = _answer(spark, query, of_catalog)
    after = dls.planned_scans(spark)
    assert ours == theirs
    assert after.planned + after.remembered > before.planned + before.remembered
    assert after.fallbacks == before.fallbacks
    assert len(ours) == len(generator.execute(query).fetchall())


def _answer(spark: SparkSession, query: str, tables: dict[str, str]) -> list[str]:
    """The rows in any order: columns that tie in `order by` may come in either."""
    for name, table in tables.items():
        spark.table(table).createOrReplaceTempView(name)
    try:
        return sorted(repr(row) for row in spark.sql(query).collect())
    finally:
        for name in tables:
            spark.catalog.dropTempView(name)
