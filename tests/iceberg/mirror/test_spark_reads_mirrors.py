"""Delta-Spark reads what other Delta readers refuse: columns that only their ids identify, and promoted types."""

from __future__ import annotations

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


def test_columns_by_their_ids_vectors_and_promoted_types(spark: SparkSession, catalog: Catalog) -> None:
    def rows(*ids: int, kind: pa.DataType, name: str = "s") -> pa.Table:
        values = {"id": pa.array(ids, pa.int64()), name: [f"{name}{number}" for number in ids], "n": ids}
        return pa.table({**values, "n": pa.array(ids, kind)})

    first = rows(1, 2, 3, kind=pa.int32())
    table = catalog.iceberg().create_table("shop.t", first.schema)
    table.append(first)
    check(spark, catalog)
    delete_positions(catalog, {data_files(catalog)[0]: [1]})
    check(spark, catalog)
    table.refresh()
    with table.update_schema() as update:
        update.rename_column("s", "name")
        update.update_column("n", LongType())
    check(spark, catalog)
    table.append(rows(2**40, kind=pa.int64(), name="name"))
    check(spark, catalog)
    with table.update_schema() as update:
        update.delete_column("name")
    with table.update_schema() as update:
        update.add_column("s", StringType())
    table.append(table.scan().to_arrow().slice(0, 1).cast(table.schema().as_arrow()))
    check(spark, catalog)
