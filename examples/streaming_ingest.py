"""A streaming ingest whose late and repeated events are merged into two tables at once.

Readings of sensors arrive as files, some of them late, some of them twice. Every micro-batch merges them into
`iot.readings` (each reading once, by its id) and into `iot.hourly` (totals per sensor and hour), in one transaction:
at any moment, and after any crash, the totals are those of the readings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.spark.transaction import SparkTransaction

SCHEMA = "id long, sensor string, at timestamp, value double"


def create_tables(spark: SparkSession) -> None:
    with dls.begin(spark, message="tables of the ingest") as tx:
        tx.sql(f"create table if not exists {{iot.readings}} ({SCHEMA}) using delta")
        tx.sql(
            "create table if not exists {iot.hourly} (sensor string, hour timestamp, readings long, total double) "
            "using delta"
        )


def new_readings(batch: DataFrame, tx: SparkTransaction) -> DataFrame:
    """The readings of a batch that are not there yet: events may come twice, also within a batch."""
    return batch.dropDuplicates(["id"]).join(tx.table("iot.readings"), "id", "left_anti")


def merge_hours(batch: DataFrame, _batch_id: int, tx: SparkTransaction) -> None:
    """Add what is new to the totals of its hour, however long ago that hour was."""
    hours = (
        new_readings(batch, tx)
        .groupBy("sensor", sf.date_trunc("hour", "at").alias("hour"))
        .agg(sf.count("*").alias("readings"), sf.sum("value").alias("total"))
    )
    tx.sql(
        "merge into {iot.hourly} t using {hours} s on t.sensor = s.sensor and t.hour = s.hour "
        "when matched then update set readings = t.readings + s.readings, total = t.total + s.total "
        "when not matched then insert *",
        hours=hours,
    )


def append_readings(batch: DataFrame, _batch_id: int, tx: SparkTransaction) -> DataFrame:
    return new_readings(batch, tx)


def ingest(spark: SparkSession, source: Path, checkpoint: Path) -> None:
    """Take in whatever has arrived since the last time; with a trigger of its own it would go on for ever."""
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(str(source))
    # In this order: the totals are computed against the readings as they were before this batch.
    sink = dls.foreach_batch({"iot.hourly": merge_hours, "iot.readings": append_readings})
    query = (
        events.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def deliver(source: Path, number: int) -> None:
    """A file of made-up events: twenty of this hour, five late ones of the first hour, five of before once more."""

    def event(identifier: int, hour: int) -> dict[str, Any]:
        minute = f"{identifier % 60:02}"
        return {
            "id": identifier,
            "sensor": f"s{identifier % 3}",
            "at": f"2026-01-01T{hour:02}:{minute}:00Z",
            "value": identifier / 4,
        }

    first = number * 100
    events = [event(first + i, number) for i in range(20)] + [event(first + 50 + i, 0) for i in range(5)]
    if number:
        events += [event(first - 100 + i, number - 1) for i in range(5)]
    source.mkdir(parents=True, exist_ok=True)
    (source / f"events-{number:03}.json").write_text("\n".join(map(json.dumps, events)))


def check(spark: SparkSession) -> tuple[int, float]:
    """Both tables in one transaction: the totals are those of the readings, each of which is there once."""
    with dls.begin(spark) as tx:
        readings = tx.sql("select count(*), count(distinct id), sum(value) from {iot.readings}").first()
        hours = tx.sql("select sum(readings), sum(total) from {iot.hourly}").first()
    assert readings is not None
    assert hours is not None
    assert readings[0] == readings[1] == hours[0], (readings, hours)
    assert abs(readings[2] - hours[1]) < 1e-6, (readings, hours)
    return int(readings[0]), float(readings[2])


def run(spark: SparkSession, root: Path, files: int = 6) -> tuple[int, float]:
    """Half of the files, then the rest: the second query goes on where the first one stopped."""
    create_tables(spark)
    for half in (range(files // 2), range(files // 2, files)):
        for number in half:
            deliver(root / "arrivals", number)
        ingest(spark, root / "arrivals", root / "checkpoint")
    return check(spark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="deltalakedb-ingest-") as scratch:
        root = (folder or Path(scratch)).resolve()
        with dl.connect(root / "catalog.db", warehouse=str(root / "lake")) as catalog:
            spark = dls.session(catalog, **{"spark.ui.enabled": "false"})
            try:
                readings, total = run(spark, root)
                print(f"{readings} readings, {total} in all, in both tables")
                spark.table("iot.hourly").orderBy("sensor", "hour").show()
            finally:
                spark.stop()


if __name__ == "__main__":
    main()
