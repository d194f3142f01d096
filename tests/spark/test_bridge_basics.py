"""The bridge at work below all names: paths, the file system, the log store, what happens when the endpoint is away."""

from pathlib import Path

from pyspark.sql import SparkSession

import deltalakedb as dl


def folder(catalog: dl.Catalog, name: str) -> Path:
    namespace, _, table = name.partition(".")
    return Path(str(catalog.config.warehouse)) / namespace / table


def bridged(catalog: dl.Catalog, name: str) -> str:
    return f"dldb:///file{folder(catalog, name)}"


def test_create_append_and_read_by_path_are_commits_in_sql(spark: SparkSession, bridge_catalog: dl.Catalog) -> None:
    path = bridged(bridge_catalog, "basics.first")
    spark.range(10).write.format("delta").save(path)
    spark.range(10, 15).write.format("delta").mode("append").save(path)
    assert spark.read.format("delta").load(path).count() == 15
    table = bridge_catalog.table("basics.first")
    assert table.version() == 1
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(15))
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "WRITE"]
