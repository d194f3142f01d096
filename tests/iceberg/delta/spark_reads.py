"""Reads all versions of Delta tables through an Iceberg REST endpoint with Spark, and stores them as Arrow files."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from tests.iceberg.clients.spark_job import session


def main(uri: str, folder: str, *tables: str) -> None:
    served = {
        "spark.sql.catalog.served": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.served.type": "rest",
        "spark.sql.catalog.served.uri": uri,
        "spark.sql.catalog.served.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.served.scan-planning-mode": "server",
        "spark.sql.catalog.lake.scan-planning-mode": "client",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = session(uri, **served)
    for table in tables:
        rows = spark.sql(f"select snapshot_id, summary['delta.version'] from lake.shop.{table}.snapshots").collect()
        for snapshot, version in rows:
            for catalog in ("lake", "served"):
                place = f"{folder}/{table}.{version}.{catalog}"
                try:
                    found = spark.sql(f"select * from {catalog}.shop.{table} version as of {snapshot}").toArrow()
                except Exception as error:  # the test compares it with what Delta readers do
                    Path(f"{place}.error").write_text(str(error))
                else:
                    with pa.OSFile(f"{place}.arrow", "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
                        writer.write_table(found)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
