"""Comments and tags that Spark SQL sets are those that the catalog finds, and the other way round."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from tests.spark.shop import Shop


def test_comments_and_properties_of_spark_are_found_by_the_catalog(shop: Shop) -> None:
    spark, name = shop.spark, f"{shop.namespace}.orders"
    spark.sql(f"create table {name} (id bigint comment 'of the order', email string) using delta comment 'made here'")
    spark.sql(f"comment on table {name} is 'Invoices sent by Spark'")
    spark.sql(f"alter table {name} alter column email comment 'Where the receipt goes'")
    spark.sql(f"alter table {name} set tblproperties ('tag.pii' = 'yes')")
    (hit,) = shop.catalog.search("invoices receipt", tag="pii=yes")
    assert (hit.table, hit.comment, hit.tags) == (name, "Invoices sent by Spark", {"pii": "yes"})
    assert [(one.column, one.comment) for one in hit.columns] == [("email", "Where the receipt goes")]
    assert shop.catalog.search("made here", namespace=shop.namespace) == []
    assert [one.comment for one in shop.catalog.search("order", namespace=shop.namespace)[0].columns] == [
        "of the order"
    ]


def test_spark_shows_the_comments_that_the_catalog_set(shop: Shop) -> None:
    spark, name = shop.spark, f"{shop.namespace}.lines"
    spark.sql(f"create table {name} (id bigint, price double) using delta")
    with shop.catalog.begin() as tx:
        tx.set_comment(name, "Set by Python")
        tx.set_comment(name, "in euro", column="price")
    spark.sql(f"refresh table {name}")
    described = {row[0]: (row[1], row[2]) for row in spark.sql(f"describe table extended {name}").collect()}
    assert described["price"] == ("double", "in euro")
    assert described["Comment"][0] == "Set by Python"


def test_spark_is_told_that_a_property_looks_like_a_credential(shop: Shop) -> None:
    spark, name = shop.spark, f"{shop.namespace}.secrets"
    spark.sql(f"create table {name} (id bigint) using delta")
    with pytest.raises(AnalysisException, match="storage_options") as raised:
        spark.sql(f"alter table {name} set tblproperties ('loader.password' = 'hunter2-hunter2')")
    assert "loader.password looks like a credential" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert shop.catalog.table(name).version() == 0
