"""Run by test_connect.py in a process of its own: a Spark Connect client, and the functions that need no jar."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import deltalakedb as dl
import deltalakedb.spark as dls


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    with dl.connect(folder / "catalog.db", warehouse=str(folder / "lake")) as catalog:
        rows = spark.range(60).selectExpr(
            "id", "cast(id % 12 as string) p", "timestamp_micros(id) at", "struct(id a) s"
        )
        assert dls.write_table(rows, "a.t", partition_by="p", catalog=catalog) == 0
        assert dls.write_table(rows.where("p = '1'"), "a.t", "overwrite", replace_where="p = '1'", catalog=catalog) == 1
        assert dls.write_table(rows.where("id = 3"), "a.t", "overwrite", replace_where="id = 3", catalog=catalog) == 2
        with catalog.begin() as tx:
            tx.write("a.u", rows.select("id"))
        assert tx.result == {"a.u": 0}
        whole = dls.read_table(spark, "a.t", catalog=catalog)
        assert sorted(row.id for row in whole.collect()) == list(range(60))
        few = dls.read_table(spark, "a.t", where="p = '5' and s.a > 20", columns=["id"], catalog=catalog)
        assert sorted(row.id for row in few.collect()) == [29, 41, 53]
        failing = rows.selectExpr("if(id = 50, raise_error('boom'), id) id")
        with pytest.raises(PySparkException, match="boom"):
            dls.write_table(failing, "a.u", catalog=catalog)
        assert catalog.table("a.u").version() == 0
    spark.stop()
    print("all of it worked")


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(Path(sys.argv[1]))
