"""What Spark processes do in the tests of kills; each is told its part by a Peer, and may die at a named step."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import deltalakedb.spark as dls
from deltalakedb.exceptions import CommitFailedError
from deltalakedb.runtime import steps
from deltalakedb.spark.transaction import SparkTransaction

ACCOUNTS = ("bank.left", "bank.right")
START = 1_000
SINKS = ("stream.events", "stream.totals")


def kill_at(step: str) -> None:
    """Die at a step as a machine does. `name#2`: when it is reached for the second time."""
    name, _, times = step.partition("#")
    left = [int(times or 1)]

    def die(reached: str) -> None:
        if reached == name:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.observe(die)


def open_accounts(spark: SparkSession) -> None:
    with dls.begin(spark) as tx:
        for name in ACCOUNTS:
            tx.sql(f"create table {{{name}}} (id long, amount long) using delta")
            tx.sql(f"insert into {{{name}}} values (0, {START})")


def transfer(spark: SparkSession, seed: int, count: int) -> dict[str, int]:
    """Move amounts from one table to the other, in one transaction each; a lost race is run again."""
    choices = random.Random(seed)
    lost = 0
    for number in range(count):
        amount = choices.randrange(1, 50)
        while True:
            try:
                with dls.begin(spark, message=f"transfer {seed}/{number}") as tx:
                    move(spark, tx, amount, identifier=(seed << 20) + number + 1)
                break
            except CommitFailedError:
                lost += 1
                if lost > 20 * count:
                    raise
                time.sleep(choices.random() / 5)
    return {"done": count, "lost": lost}


def move(spark: SparkSession, tx: SparkTransaction, amount: int, identifier: int) -> None:
    """A statement that reads what it changes on the one side, an append on the other."""
    left, right = ACCOUNTS
    tx.sql(f"update {{{left}}} set amount = amount - {amount} where id = 0")
    rows = spark.createDataFrame([(identifier, amount)], "id long, amount long").coalesce(1)
    rows.write.format("delta").mode("append").save(tx.path(right))


def balances(spark: SparkSession) -> list[int]:
    """Both sums in one read transaction."""
    with dls.begin(spark) as tx:
        return [int(tx.table(name).agg({"amount": "sum"}).collect()[0][0]) for name in ACCOUNTS]


def hold(spark: SparkSession, fresh: str) -> str:
    """A transaction that has staged something in three tables, one of them new, and stays open; its id."""
    tx = dls.begin(spark, message="never to be committed")
    move(spark, tx, 500, identifier=-1)
    tx.sql(f"create table {{{fresh}}} using delta as select * from {{{ACCOUNTS[1]}}}")
    _kept.append(tx)
    return tx.txn_id


_kept: list[SparkTransaction] = []


def deliver(source: Path, files: int, rows: int) -> None:
    """Files of a stream; every row has a number of its own."""
    source.mkdir(parents=True)
    for number in range(files):
        ids = list(range(number * rows, (number + 1) * rows))
        path = source / f"{number:04}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        os.utime(path, (1_760_000_000 + number,) * 2)  # Spark takes the oldest first


def stream(spark: SparkSession, source: str, checkpoint: str) -> int:
    """Each batch goes into two tables: its rows, and how many there were, merged by remainder; how many batches ran."""
    ran: list[int] = []

    def merge(batch: DataFrame, batch_id: int, tx: SparkTransaction) -> None:
        ran.append(batch_id)
        counts = batch.groupBy((batch.id % 3).alias("id")).agg({"*": "count"}).toDF("id", "rows")
        tx.sql(
            f"merge into {{{SINKS[1]}}} t using {{counts}} c on t.id = c.id "
            "when matched then update set rows = t.rows + c.rows when not matched then insert *",
            counts=counts,
        )

    writers: dict[str, Callable[..., Any]] = {SINKS[0]: lambda batch, _batch_id: batch, SINKS[1]: merge}
    query = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
        .writeStream.foreachBatch(dls.foreach_batch(writers))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(ran)
