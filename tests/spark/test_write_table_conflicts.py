"""write_table among others: nothing is lost or done twice, a real clash is named, and a loser's files are removed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import ConcurrentAppendError, ConfigError
from deltalakedb.transaction import Transaction
from tests.spark.compare import rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def ids(spark: SparkSession, catalog: dl.Catalog, name: str = "a.t") -> list[int]:
    return sorted(row.id for row in dls.read_table(spark, name, columns=["id"], catalog=catalog).collect())


def folders(catalog: dl.Catalog, name: str = "a.t") -> set[Path]:
    return set(Path(catalog.table(name).table_uri.removeprefix("file://")).glob("w-*"))


def numbers(spark: SparkSession, *values: int, p: str = "x") -> DataFrame:
    return spark.createDataFrame([(value, p) for value in values], "id bigint, p string").coalesce(1)


def test_writers_at_once_lose_nothing(spark: SparkSession, catalog: dl.Catalog) -> None:
    dls.write_table(numbers(spark, 0), "a.t", catalog=catalog)

    def append(number: int) -> int | None:
        return dls.write_table(numbers(spark, number), "a.t", catalog=catalog)

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(append, range(1, 7)))
    assert sorted(versions, key=str) == [1, 2, 3, 4, 5, 6]
    assert ids(spark, catalog) == list(range(7))
    location = catalog.table("a.t").table_uri
    assert rows_of(spark.read.format("delta").load(location)) == rows_of(dls.read_table(spark, "a.t", catalog=catalog))
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


@pytest.mark.parametrize(
    ("options", "clashing", "harmless"),
    [
        ({"replace_where": "p = 'x'"}, "x", "y"),
        ({"replace_where": "id < 3"}, "x", None),
        ({"partition_overwrite_mode": "dynamic"}, "x", "y"),
        ({}, "y", None),
    ],
)
def test_an_overwrite_sees_rows_that_came_meanwhile(
    spark: SparkSession, catalog: dl.Catalog, options: dict[str, Any], clashing: str, harmless: str | None
) -> None:
    dls.write_table(numbers(spark, 1), "a.t", partition_by="p", catalog=catalog)
    for partition, clashes in ((harmless, False), (clashing, True)):
        if partition is None:
            continue
        tx = catalog.begin()
        dls.write_table(numbers(spark, 2), "a.t", mode="overwrite", transaction=tx, **options)
        dls.write_table(numbers(spark, 0, p=partition), "a.t", catalog=catalog)
        before = folders(catalog)
        if clashes:
            with pytest.raises(ConcurrentAppendError):
                tx.commit()
            assert len(folders(catalog)) == len(before) - 1
        else:
            tx.commit()
    assert 0 in ids(spark, catalog)


def test_a_write_of_an_application_is_done_once(spark: SparkSession, catalog: dl.Catalog) -> None:
    def write(number: int, version: int) -> int | None:
        return dls.write_table(numbers(spark, number), "a.t", app_id="job", app_version=version, catalog=catalog)

    assert [write(1, 1), write(2, 1), write(3, 2), write(4, 1)] == [0, 0, 1, 1]
    assert ids(spark, catalog) == [1, 3]
    with ThreadPoolExecutor(3) as pool:  # the same write three times at once: one is made
        versions = list(pool.map(lambda number: write(number, 3), (5, 5, 5)))
    assert set(versions) == {2}
    assert ids(spark, catalog) == [1, 3, 5]
    with pytest.raises(ConfigError, match="give both, or none"):
        dls.write_table(numbers(spark, 1), "a.t", app_id="job", catalog=catalog)


def test_frames_of_spark_are_written_within_a_transaction(spark: SparkSession, catalog: dl.Catalog) -> None:
    with catalog.begin(message="load") as tx:
        tx.write("a.dim", numbers(spark, 1, 2), mode="error", partition_by=["p"])
        tx.write("a.fact", numbers(spark, 7), mode="append", app_transactions=[Transaction("load", 1)])
        tx.write("a.fact", numbers(spark, 8), mode="append")
        assert dls.read_table(spark, tx.table("a.fact"), where="id > 7").count() == 1
    assert tx.result == {"a.dim": 0, "a.fact": 1}
    assert ids(spark, catalog, "a.fact") == [7, 8]
    assert catalog.table("a.fact").transaction_version("load") == 1
    with pytest.raises(ConfigError, match="target_file_size"):
        catalog.begin().write("a.fact", numbers(spark, 9), mode="append", target_file_size=1)


def test_a_transaction_that_is_given_up_leaves_no_file(spark: SparkSession, catalog: dl.Catalog) -> None:
    dls.write_table(numbers(spark, 1), "a.t", catalog=catalog)
    before = folders(catalog)
    tx = catalog.begin()
    tx.write("a.t", numbers(spark, 2), mode="append")
    tx.write("a.new", numbers(spark, 2))
    assert len(folders(catalog)) == len(before) + 1
    tx.rollback()
    assert folders(catalog) == before
    assert ids(spark, catalog) == [1]
    assert catalog.tables() == ["a.t"]
