"""What tests of the pipeline share beside the session: a namespace of their own."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from tests.spark.naming import Names
from tests.spark.shop import Shop


@pytest.fixture
def shop(spark: SparkSession, bridge_catalog: dl.Catalog) -> Shop:
    """A namespace that no other test has."""
    return Shop(spark, bridge_catalog, f"shop_{uuid.uuid4().hex[:8]}")


@pytest.fixture
def names(spark: SparkSession, bridge_catalog: dl.Catalog) -> Iterator[Names]:
    yield Names(spark, bridge_catalog)
    spark.sql("use default")
