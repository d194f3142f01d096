"""A job as a user writes it, for `spark-submit`: plain Spark, but for how the session is made with `--bridged`.

The name of its table is given, and it prints what it found.
"""

import json
import os
import sys

from pyspark.sql import SparkSession


def start(is_bridged: bool) -> SparkSession:
    builder = SparkSession.builder.appName("job").config("spark.sql.shuffle.partitions", "2")
    if not is_bridged:
        return builder.getOrCreate()
    import deltalakedb.spark as dls

    return dls.configure(builder, endpoint=os.environ["LAKE_ENDPOINT"]).getOrCreate()


def main(table: str, *options: str) -> None:
    spark = start("--bridged" in options)
    spark.sql(f"create table {table} (id long, name string) using delta")
    spark.range(0, 40, 1, 4).selectExpr("id", "'old' name").write.format("delta").mode("append").saveAsTable(table)
    spark.sql(
        f"merge into {table} t using (select id from range(30, 50, 1, 4)) s on t.id = s.id "
        "when matched then update set name = 'new' when not matched then insert (id, name) values (s.id, 'new')"
    )
    rows = spark.sql(f"select name, count(*) from {table} group by name order by name").collect()
    jars = sorted(jar.rpartition("/")[2] for jar in str(spark.conf.get("spark.jars")).split(","))
    print(json.dumps({"rows": [list(row) for row in rows], "master": spark.sparkContext.master, "jars": jars}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
