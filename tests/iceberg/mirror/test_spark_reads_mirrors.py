"""Delta-Spark reads what other Delta readers refuse: columns that only their ids identify, and promoted types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession

from deltalakedb import Catalog
from tests.fixtures.readers import Spark, sort_rows
from tests.iceberg.mirror.deleting import data_files, delete_positions
from tests.iceberg.mirror.judging import mirror

pytestmark = pytest.mark.spark


def check(spark: SparkSession, catalog: Catalog) -> None:
    path, mirrored = mirror(catalog)
    expected = catalog.iceberg("shop.t").scan().to_arrow()
    reading = Spark(spark).latest(path)
    assert sort_rows(reading.rows, expected.schema).equals(sort_rows(expected, expected.schema))
    assert reading.version == mirrored.delta_version


def test_files_outside_of_the_tables_folder(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/else where"
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.iceberg().create_table("shop.t", rows.schema, properties={"write.data.path": elsewhere}).append(rows)
    check(spark, catalog)


def test_columns_by_their_ids_vectors_and_promoted_types(spark: SparkSession, catalog: Catalog) -> None:
    def rows(*ids: int, kind: pa.DataType, name: str = "s") -> pa.Table:
        item = pa.struct([("x", kind), ("y", pa.string())])
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                name: [f"{name}{number}" for number in ids],
                "n": pa.array(ids, kind),
                "point": pa.array([{"x": number, "y": "p"} for number in ids], item),
                "list": pa.array([[{"x": number, "y": None}] for number in ids], pa.list_(item)),
                "map": pa.array([[("k", {"x": 7, "y": "m"})] for _ in ids], pa.map_(pa.string(), item)),
            }
        )

    first = rows(1, 2, 3, kind=pa.int32())
    table = catalog.iceberg().create_table("shop.t", first.schema)
    table.append(first)
    check(spark, catalog)
    delete_positions(catalog, {data_files(catalog)[0]: [1]})
    check(spark, catalog)
    table.refresh()
    with table.update_schema() as update:
        update.rename_column("s", "name")
        for column in ("n", "point.x", "list.element.x", "map.value.x"):
            update.update_column(column, LongType())
        update.rename_column("list.element.y", "why")
    check(spark, catalog)
    wide = table.schema().as_arrow()
    table.append(rows(2**40, kind=pa.int64(), name="name").cast(wide))
    check(spark, catalog)
    with table.update_schema() as update:
        update.delete_column("name")
    with table.update_schema() as update:
        update.add_column("s", StringType())
    table.append(table.scan().to_arrow().slice(0, 1).cast(table.schema().as_arrow()))
    check(spark, catalog)
