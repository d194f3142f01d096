"""What drivers of streams do in the tests of kills: one query with Delta's own sink, one with `dls.foreach_batch`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import deltalakedb.spark as dls
from deltalakedb.spark.transaction import SparkTransaction


def start(spark: SparkSession, namespace: str, source: str, checkpoint: str) -> list[StreamingQuery]:
    """Both queries read the files of a folder, one a batch, until all are written."""
    events, copy, totals = (f"{namespace}.{name}" for name in ("events", "copy", "totals"))

    def merge(batch: DataFrame, _batch_id: int, tx: SparkTransaction) -> None:
        counts = batch.groupBy((batch.id % 3).alias("id")).agg({"*": "count"}).toDF("id", "rows")
        tx.sql(
            f"merge into {{{totals}}} t using {{counts}} c on t.id = c.id "
            "when matched then update set rows = t.rows + c.rows when not matched then insert *",
            counts=counts,
        )

    files = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(source)
    writers: dict[str, Callable[..., Any]] = {copy: lambda batch, _batch_id: batch, totals: merge}
    by_delta = files.writeStream.option("checkpointLocation", f"{checkpoint}/events").trigger(availableNow=True)
    by_us = files.writeStream.option("checkpointLocation", f"{checkpoint}/copy").trigger(availableNow=True)
    return [by_delta.format("delta").toTable(events), by_us.foreachBatch(dls.foreach_batch(writers)).start()]


def finish(queries: list[StreamingQuery]) -> list[int]:
    """Wait for the end; how many batches ran."""
    for query in queries:
        query.awaitTermination()
    return [sum(1 for progress in query.recentProgress if progress.numInputRows) for query in queries]


def slowly(spark: SparkSession, rows: int, tasks: int, pause_seconds: float) -> DataFrame:
    """Rows whose tasks take their time, on executors."""
    import time

    def wait(batches: Any) -> Any:
        for batch in batches:
            time.sleep(pause_seconds)
            yield batch

    return spark.range(0, rows, 1, tasks).mapInArrow(wait, "id long")


def written(table: Path) -> set[str]:
    """Names of the data files in a table's folder, committed or not."""
    return {path.name for path in table.rglob("*.parquet") if not path.name.startswith(".")}
