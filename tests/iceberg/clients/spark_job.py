"""What Spark does with the catalog `lake` of an Iceberg REST endpoint; prints one JSON object of what it saw."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def session(uri: str, **conf: str) -> SparkSession:
    """A Spark whose catalog `lake` is the endpoint, and nothing else of ours."""
    settings = {
        "spark.jars.packages": RUNTIME,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        **conf,
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(uri: str) -> None:
    spark = session(uri)
    seen: dict[str, Any] = {}

    def rows(query: str) -> list[Any]:
        return [list(row) for row in spark.sql(query).collect()]

    spark.sql("create namespace lake.shop")
    spark.sql(
        "create table lake.shop.orders (id bigint, region string, amount double) using iceberg "
        "partitioned by (region, bucket(4, id)) "
        "tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql("insert into lake.shop.orders values (1, 'north', 1.0), (2, 'south', 2.0), (3, 'north', 3.0)")
    spark.sql("create table lake.shop.copied using iceberg as select * from lake.shop.orders where id < 3")
    seen["copied"] = rows("select id from lake.shop.copied order by id")
    first = spark.sql("select snapshot_id from lake.shop.orders.snapshots order by committed_at").first()
    assert first is not None
    spark.sql("delete from lake.shop.orders where id = 2")
    spark.sql("update lake.shop.orders set amount = amount * 10 where id = 3")
    spark.sql(
        "merge into lake.shop.orders t using (select 4L as id, 'west' as region, 4.0D as amount) s on t.id = s.id "
        "when not matched then insert *"
    )
    seen["orders"] = rows("select id, region, amount from lake.shop.orders order by id")
    seen["first"] = rows(f"select id from lake.shop.orders version as of {first[0]} order by id")
    spark.sql("alter table lake.shop.orders add columns (note string after id)")
    spark.sql("alter table lake.shop.orders rename column amount to total")
    spark.sql("alter table lake.shop.orders drop partition field bucket(4, id)")
    spark.sql("alter table lake.shop.orders write ordered by id")
    spark.sql("alter table lake.shop.orders create branch side")
    spark.sql("alter table lake.shop.orders create tag before")
    spark.sql("insert into lake.shop.orders.branch_side values (9, 'x', 'side', 9.0)")
    seen["side"] = rows("select id from lake.shop.orders version as of 'side' order by id")
    seen["main"] = rows("select id, note, total from lake.shop.orders order by id")
    seen["history"] = len(rows("select * from lake.shop.orders.history"))
    seen["files"] = len(rows("select * from lake.shop.orders.files"))
    spark.sql(
        "create view lake.shop.totals as select region, sum(total) as total from lake.shop.orders group by region"
    )
    seen["view"] = rows("select region, total from lake.shop.totals order by region")
    spark.sql("alter view lake.shop.totals set tblproperties ('comment' = 'sums')")
    seen["views"] = rows("show views in lake.shop")
    spark.sql("alter table lake.shop.copied rename to shop.renamed")
    seen["tables"] = sorted(row[1] for row in rows("show tables in lake.shop"))
    spark.sql("create or replace table lake.shop.renamed using iceberg as select 7L as id")
    seen["replaced"] = rows("select * from lake.shop.renamed")
    spark.sql("create table lake.shop.rows (id bigint, v string) using iceberg tblproperties ('format-version' = '3', "
              "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')")  # fmt: skip
    spark.sql("insert into lake.shop.rows values (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql("delete from lake.shop.rows where id = 2")
    seen["vectors"] = rows("select id, _row_id from lake.shop.rows order by id")
    spark.sql("call lake.system.rewrite_data_files('shop.orders')")
    spark.sql("call lake.system.expire_snapshots(table => 'shop.orders', older_than => now(), retain_last => 1)")
    seen["after_upkeep"] = rows("select id from lake.shop.orders order by id")
    spark.sql("drop view lake.shop.totals")
    spark.sql("drop table lake.shop.renamed purge")
    print(json.dumps(seen), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
