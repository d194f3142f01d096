"""A table made by delta-spark goes through its whole life: followed, promoted in a race, written by us, given back."""

import threading
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.log.protocol.fence import FEATURE

pytestmark = pytest.mark.spark

SparkErrors = (PySparkException, Py4JJavaError)

WRITERS_BY_SQL = (
    "insert into delta.`{}` values (1000, 'x')",
    "update delta.`{}` set day = 'y' where id = 1",
    "delete from delta.`{}` where id = 1",
    "merge into delta.`{0}` t using (select 1 as id) u on t.id = u.id when matched then delete",
    "optimize delta.`{}`",
    "restore table delta.`{}` to version as of 0",
    "alter table delta.`{}` set tblproperties ('a' = 'b')",
)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    """Four versions by Spark, partitioned by day: created, appended to, deleted from, appended to."""
    path = tmp_path / "orders"
    append_by_spark(spark, path, 0, 10)
    append_by_spark(spark, path, 10, 20)
    spark.sql(f"delete from delta.`{path}` where id = 5")
    append_by_spark(spark, path, 20, 30)
    return path


def append_by_spark(spark: SparkSession, path: Path, first: int, last: int) -> None:
    frame = spark.range(first, last, numPartitions=1).selectExpr("id", "cast(id % 2 as string) as day")
    frame.write.format("delta").partitionBy("day").mode("append").save(str(path))


def append_by_deltalake(path: Path, *ids: int) -> None:
    deltalake.write_deltalake(path, rows(*ids), mode="append")


def append_by_us(cat: Catalog, *ids: int) -> None:
    with cat.begin(message="ours") as tx:
        tx.write("orders", rows(*ids), mode="append")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [str(number % 2) for number in ids]})


def check_everyone_reads(spark: SparkSession, path: Path, ids: set[int]) -> None:
    frame = spark.read.format("delta").load(str(path))
    assert sorted(row["id"] for row in frame.collect()) == sorted(ids)
    read = deltalake.DeltaTable(path).to_pyarrow_table()
    assert sorted(read.column("id").to_pylist()) == sorted(ids)


class RacingSpark:
    """Appends with Spark, again and again, until it is refused; what it was told is kept."""

    def __init__(self, append: Callable[[int], None], first: int) -> None:
        self.acknowledged: list[int] = []
        self.refusal = ""
        self.committed = threading.Event()
        self._append, self._next = append, first
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "RacingSpark":
        self._thread.start()
        assert self.committed.wait(120), "the racing writer did not get going"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive(), "the racing writer was never refused"

    def _run(self) -> None:
        for number in range(self._next, self._next + 1000):
            try:
                self._append(number)
            except SparkErrors as error:
                self.refusal = str(error)
                return
            self.acknowledged.append(number)
            self.committed.set()


@pytest.mark.slow
def test_a_table_by_spark_is_followed_promoted_in_a_race_written_and_given_back(
    spark: SparkSession, target: str, lake: Path
) -> None:
    ids = set(range(30)) - {5}
    with dl.connect(target) as cat:
        assert cat.attach_table(lake, "orders").version() == 3
        with RacingSpark(lambda number: append_by_spark(spark, lake, number, number + 1), 100) as race:
            promoted = cat.promote_table("orders")
        ids |= set(race.acknowledged)
        assert promoted.mode == "managed"
        assert FEATURE in race.refusal or "protocol" in race.refusal.lower(), race.refusal
        assert promoted.version() == 4 + len(race.acknowledged), "every commit Spark was told of lies before the fence"
        check_everyone_reads(spark, lake, ids)

        append_by_us(cat, 200, 201)
        append_by_us(cat, 202)
        ids |= {200, 201, 202}
        check_everyone_reads(spark, lake, ids)
        assert cat.validate("orders").drift is None

        detached = cat.detach_table("orders")
        assert detached.version() == promoted.version() + 3
        append_by_spark(spark, lake, 300, 302)
        append_by_deltalake(lake, 302)
        spark.sql(f"delete from delta.`{lake}` where id = 200")
        spark.sql(f"update delta.`{lake}` set id = 900 where id = 201")
        deltalake.DeltaTable(lake).delete("id = 0")
        ids = (ids | {300, 301, 302, 900}) - {0, 200, 201}
        check_everyone_reads(spark, lake, ids)

        again = cat.promote_table("orders")
        assert again.version() == detached.version() + 6
        append_by_us(cat, 400)
        check_everyone_reads(spark, lake, ids | {400})
        assert cat.validate("orders").drift is None


def test_every_writer_of_spark_and_deltalake_is_refused_by_the_fence(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    """The fence is in the files, whatever engine put it there."""
    ids = set(range(30)) - {5}
    with dl.connect(tmp_path / "catalog.db") as cat:
        version = cat.import_table(lake, "orders").version()
        for statement in WRITERS_BY_SQL:
            with pytest.raises(SparkErrors, match=FEATURE):
                spark.sql(statement.format(lake)).collect()
        with pytest.raises(SparkErrors, match=FEATURE):
            append_by_spark(spark, lake, 50, 51)
        with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
            append_by_deltalake(lake, 50)
        assert deltalake.DeltaTable(lake).version() == version
        check_everyone_reads(spark, lake, ids)
        assert cat.validate("orders").drift is None
