"""Structured streaming through the bridge: delta-spark's own sink and source, on tables that SQL decides."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.spark.shop import Shop, rows_of

SCHEMA = "id long, value long"
BEGAN = 1_760_000_000


def arrive(folder: Path, *ids: int) -> None:
    """One more file of the source."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    path = folder / f"{number:03}.parquet"
    pq.write_table(rows_of(list(ids), 0), path)
    os.utime(path, (BEGAN + number, BEGAN + number))  # Spark takes the oldest first


def source(shop: Shop, folder: Path) -> DataFrame:
    return shop.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def finish(writer: Any, checkpoint: Path, **target: str) -> list[int]:
    """Run the query over what is there; the number of rows of each batch."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.toTable(target["name"]) if "name" in target else writer.start(target.get("path"))
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


@pytest.mark.parametrize("how", ["path", "name"])
def test_the_sink_writes_each_batch_as_one_version_and_goes_on_after_a_stop(
    shop: Shop, tmp_path: Path, how: str
) -> None:
    name = shop.create("sink")
    target = {"name": name} if how == "name" else {"path": f"dldb:///file{shop.path('sink')}"}
    for batch in ([1, 2], [3], [4]):
        arrive(tmp_path / "in", *batch)
    sink = source(shop, tmp_path / "in").writeStream.format("delta")
    assert finish(sink, tmp_path / "checkpoint", **target) == [2, 1, 1]
    arrive(tmp_path / "in", 5)
    assert finish(sink, tmp_path / "checkpoint", **target) == [1]
    assert finish(sink, tmp_path / "checkpoint", **target) == []
    assert shop.ids("sink") == [1, 2, 3, 4, 5]
    history = shop.catalog.history(name)
    assert [entry["operation"] for entry in history] == ["STREAMING UPDATE"] * 4 + ["CREATE TABLE"]
    (noted,) = shop.catalog.sql(
        "select distinct app_id from dl_txn_actions t join dl_tables n on n.table_id = t.table_id "
        f"where n.namespace = '{shop.namespace}'"
    )["app_id"].to_pylist()
    assert history[0]["operationParameters"]["queryId"] == noted
    shop.check_level("sink")


def test_the_source_reads_a_snapshot_then_what_is_committed_by_anybody(shop: Shop, tmp_path: Path) -> None:
    shop.create("source", [1])
    for number in (2, 3):
        shop.append_elsewhere("source", [number])
    shop.create("copy")
    paths = [f"dldb:///file{shop.path(table)}" for table in ("source", "copy")]
    stream = shop.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(paths[0])
    copy = stream.writeStream.format("delta")
    assert finish(copy, tmp_path / "checkpoint", path=paths[1]) == [1, 1, 1]
    shop.append_elsewhere("source", [4, 5])
    shop.frame([6]).write.format("delta").mode("append").save(paths[0])
    assert finish(copy, tmp_path / "checkpoint", path=paths[1]) == [2, 1]
    assert shop.ids("copy") == [1, 2, 3, 4, 5, 6]
    shop.check_level("source", "copy")


def test_the_source_starts_at_a_version_and_skips_changes_when_asked(shop: Shop, tmp_path: Path) -> None:
    name = shop.create("source", [1])
    shop.append_elsewhere("source", [2])
    path = f"dldb:///file{shop.path('source')}"
    shop.spark.sql(f"update delta.`{path}` set value = 9 where id = 1")
    shop.append_elsewhere("source", [3])
    reader = shop.spark.readStream.format("delta").option("startingVersion", 2)
    seen: list[int] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.extend(row.id for row in batch.collect())

    with pytest.raises(StreamingQueryException, match=r"skipChangeCommits"):
        finish(reader.load(path).writeStream.foreachBatch(note), tmp_path / "refused")
    seen.clear()
    skipping = reader.option("skipChangeCommits", "true").load(path)
    finish(skipping.writeStream.foreachBatch(note), tmp_path / "skipping")
    assert sorted(seen) == [2, 3]
    assert shop.catalog.table(name).version() == 4


def test_the_change_feed_of_a_table_is_a_stream(shop: Shop, tmp_path: Path) -> None:
    shop.create("source", enableChangeDataFeed="true")
    path = f"dldb:///file{shop.path('source')}"
    shop.append_elsewhere("source", [1, 2])
    shop.spark.sql(f"update delta.`{path}` set value = 9 where id = 1")
    shop.spark.sql(f"delete from delta.`{path}` where id = 2")
    changes = (
        shop.spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    )
    seen: list[tuple[Any, ...]] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.extend(tuple(row) for row in batch.select("_commit_version", "_change_type", "id", "value").collect())

    finish(changes.writeStream.foreachBatch(note), tmp_path / "checkpoint")
    assert sorted(seen) == [
        (1, "insert", 1, -1),
        (1, "insert", 2, -1),
        (2, "update_postimage", 1, 9),
        (2, "update_preimage", 1, -1),
        (3, "delete", 2, -1),
    ]


def test_a_sink_that_meets_other_writers_goes_on(shop: Shop, tmp_path: Path) -> None:
    shop.create("shared")
    path = f"dldb:///file{shop.path('shared')}"
    for number in range(3):
        arrive(tmp_path / "in", number)

    def disturb(batch: DataFrame, batch_id: int) -> None:
        options = {"txnAppId": "disturbed", "txnVersion": str(batch_id)}
        shop.append_elsewhere("shared", [100 + batch_id])
        for _ in range(2):  # what was committed under this id and batch is not committed again
            batch.write.format("delta").mode("append").options(**options).save(path)

    finish(source(shop, tmp_path / "in").writeStream.foreachBatch(disturb), tmp_path / "checkpoint")
    assert shop.ids("shared") == [0, 1, 2, 100, 101, 102]
    assert isinstance(shop.catalog.table(shop.name("shared")).to_pyarrow_table(), pa.Table)
    shop.check_level("shared")
