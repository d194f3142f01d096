"""What tests of the pipeline share beside the session: a namespace of their own."""

import uuid

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from tests.spark.shop import Shop


@pytest.fixture
def shop(spark: SparkSession, bridge_catalog: dl.Catalog) -> Shop:
    """A namespace that no other test has."""
    return Shop(spark, bridge_catalog, f"shop_{uuid.uuid4().hex[:8]}")
