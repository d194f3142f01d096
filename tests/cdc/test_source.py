"""`format("pgcdc")` for whoever wants rows: a range of one table or of all, and a stream that moves its slot on."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltalakedb import cdc
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.source.data_source import PostgresChanges
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.slots import create_slot, find_slot
from deltalakedb.exceptions import CaptureError, DeltaError
from tests.cdc.conftest import Source
from tests.cdc.taking import PUBLICATION, create_shop

SLOT = "readers"


@pytest.fixture
def shop(source: Source, spark: SparkSession) -> Callable[..., Any]:
    """Options of a reader of the shop's changes, on a slot of its own."""
    cdc.register(spark)
    create_shop(source)
    with connect(source.dsn) as conn:
        create_slot(conn, SLOT)

    def options(**more: str) -> dict[str, str]:
        return {"source": source.dsn, "publication": PUBLICATION, "slot": SLOT, **more}

    return options


def confirmed(source: Source) -> int:
    with connect(source.dsn) as conn:
        slot = find_slot(conn, SLOT)
    assert slot is not None
    return slot.confirmed_lsn


def test_a_range_of_one_table_has_typed_rows(source: Source, spark: SparkSession, shop: Callable[..., Any]) -> None:
    source.run("insert into orders values (1, 'one', 1.25)", "insert into items values (1, 1, 'x')")
    with connect(source.dsn) as conn:
        middle = flush_lsn(conn)
    source.run("update orders set id = 2, amount = null", "delete from orders")
    before = confirmed(source)
    found = spark.read.format("pgcdc").options(**shop(table="orders")).load()
    assert found.schema["after"].dataType.simpleString() == "struct<id:bigint,name:string,amount:decimal(10,2)>"
    told = [(row["_op"], row["before"], row["after"]) for row in found.orderBy("_lsn", "_ordinal").collect()]
    assert [op for op, _, _ in told] == ["insert", "update", "delete"]
    assert told[0][2].asDict() == {"id": 1, "name": "one", "amount": Decimal("1.25")}
    assert (told[1][1]["id"], told[1][2]["id"], told[1][2]["amount"]) == (1, 2, None)
    assert told[2][1]["id"] == 2
    assert told[2][2] is None
    first = spark.read.format("pgcdc").options(**shop(table="orders", endLsn=format_lsn(middle))).load()
    rest = spark.read.format("pgcdc").options(**shop(table="orders", startLsn=format_lsn(middle))).load()
    assert [row["_op"] for row in first.collect()] == ["insert"]
    assert sorted(row["_op"] for row in rest.collect()) == ["delete", "update"]
    assert confirmed(source) == before, "whoever reads a range leaves the slot alone"


def test_a_range_of_all_tables_has_rows_as_json(source: Source, spark: SparkSession, shop: Callable[..., Any]) -> None:
    assert spark.read.format("pgcdc").options(**shop()).load().collect() == [], "nothing has happened yet"
    source.run(
        "insert into orders values (1, 'o\"ne', 1.25)", "insert into items values (7, 1, null)", "truncate items"
    )
    found = spark.read.format("pgcdc").options(**shop()).load().orderBy("_lsn", "_ordinal").collect()
    assert [(row["table"], row["_op"]) for row in found] == [
        ("public.orders", "insert"),
        ("public.items", "insert"),
        ("public.items", "truncate"),
    ]
    assert json.loads(found[0]["after"]) == {"id": 1, "name": 'o"ne', "amount": 1.25}
    assert json.loads(found[1]["after"]) == {"id": 7, "order_id": 1, "note": None}
    assert found[2]["after"] is None
    assert found[0]["_committed_at"] is not None


def test_a_stream_reads_each_change_once_and_moves_the_slot_on(
    source: Source, spark: SparkSession, shop: Callable[..., Any], tmp_path: Path
) -> None:
    seen: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend(row["after"]["id"] for row in batch.collect())

    def run() -> None:
        changes = spark.readStream.format("pgcdc").options(**shop(table="orders")).load()
        query = changes.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "at")).start()
        try:
            query.processAllAvailable()
            source.run(f"insert into orders values ({len(seen) + 100}, 'later', 1)")
            query.processAllAvailable()
        finally:
            query.stop()

    start = confirmed(source)
    source.run("insert into orders select i, 'x', 1 from generate_series(1, 5) i")
    run()
    assert sorted(seen) == [1, 2, 3, 4, 5, 105]
    assert confirmed(source) > start
    source.run("insert into orders values (50, 'while it was away', 1)")
    run()
    assert sorted(seen) == [1, 2, 3, 4, 5, 50, 105, 107]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slot": ""}, 'option("slot"'),
        ({"slot": "nobodys"}, "pg_create_logical_replication_slot"),
        ({"table": "absent"}, "no table public.absent"),
        ({"output": "pictures"}, "rows or files"),
        ({"colour": "red"}, "no option colour"),
        ({"startLsn": "x"}, "not an LSN"),
        ({"startLsn": "0/1"}, "dl cdc resnapshot"),
    ],
)
def test_options_that_cannot_work_are_refused_with_what_to_do(
    source: Source, options: dict[str, str], said: str
) -> None:
    create_shop(source)
    source.run(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    made = PostgresChanges({"source": source.dsn, "publication": PUBLICATION, "slot": SLOT, **options})
    with pytest.raises(DeltaError) as caught:
        made.reader(StructType()).partitions()
    assert said in str(caught.value)


def test_the_slot_of_a_capture_is_not_for_others(source: Source) -> None:
    create_shop(source)
    source.run(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    options = {"source": source.dsn, "publication": PUBLICATION, "slot": SLOT}
    with RunnerPresence(source.dsn, SLOT):
        reader = PostgresChanges(options).streamReader(StructType())
        with pytest.raises(CaptureError, match="slot of its own"):
            reader.initialOffset()
        reader.stop()
        assert PostgresChanges(options).reader(StructType()).partitions() is not None, "a range may be read"
