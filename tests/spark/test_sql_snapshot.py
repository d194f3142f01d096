"""Scans of unmodified Spark SQL, planned by the database: who planned them, which files are kept, and the way back."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltalakedb.spark as dls
from deltalakedb import telemetry
from deltalakedb.exceptions import CommitFailedError, ConcurrentAppendError
from deltalakedb.spark.session import setting
from deltalakedb.telemetry import SPARK_SCANS
from tests.spark.shop import Shop

ENABLED = "spark.deltalakedb.planning.enabled"
SNAPSHOT = "io.deltalakedb.SqlSnapshot"


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which Delta plans."""
    session = spark.newSession()
    session.conf.set(ENABLED, "false")
    yield session
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def snapshot_of(shop: Shop, table: str, session: SparkSession | None = None) -> Any:
    """The snapshot that Delta's own cache of logs has of a table."""
    spark = session or shop.spark
    jvm: Any = spark._jvm
    deltas = jvm.org.apache.spark.sql.delta.DeltaLog
    log = deltas.forTable(spark._jsparkSession, f"dldb:///file{shop.path(table)}")
    return log.unsafeVolatileSnapshot()


def files_of(frame: DataFrame) -> int:
    return len(frame.inputFiles())


def partitioned(shop: Shop, table: str = "events") -> str:
    """Four files: the partitions a and b, with ids 0-9 and 10-19 each."""
    name = shop.name(table)
    shop.spark.sql(f"create table {name} (id long, part string, price double) using delta partitioned by (part)")
    for start in (0, 10):
        for part in ("a", "b"):
            rows = shop.spark.range(start, start + 10).selectExpr("id", f"'{part}' as part", "id / 2 as price")
            rows.coalesce(1).write.format("delta").mode("append").saveAsTable(name)
    return name


def test_the_snapshot_of_a_table_of_the_catalog_is_ours_and_its_state_is_not_read(shop: Shop) -> None:
    name = partitioned(shop)
    before = dls.planned_scans(shop.spark)
    frame = shop.spark.sql(f"select * from {name} where id = 15")
    assert sorted((row.id, row.part) for row in frame.collect()) == [(15, "a"), (15, "b")]
    assert files_of(frame) == 2
    snapshot = snapshot_of(shop, "events")
    assert snapshot.getClass().getName() == SNAPSHOT
    assert not snapshot.stateReconstructionTriggered()
    after = dls.planned_scans(shop.spark)
    assert after.planned > before.planned
    assert after.fallbacks == before.fallbacks


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("part = 'a'", 2),
        ("part = 'a' and id < 5", 1),
        ("upper(part) = 'B' and id between 12 and 14", 1),
        ("id in (3, 17) and part <> 'a'", 2),
        ("not (id in (3, 17)) and part like 'a%'", 2),
        ("price < 1", 2),
        ("part is null", 0),
        ("id = 3 or part = 'b'", 3),
        ("id % 2 = 0", 4),
        ("id = 1 and rand() >= 0", 2),
        ("1 = 1", 4),
    ],
)
def test_a_scan_keeps_the_files_and_rows_that_plain_delta_keeps(
    shop: Shop, plain: SparkSession, condition: str, files: int
) -> None:
    name = partitioned(shop)
    query = f"select * from {name} where {condition}"
    by_delta = plain.sql(query)
    expected = sorted(map(tuple, by_delta.collect()))
    kept_by_delta = files_of(by_delta)
    frame = shop.spark.sql(query)
    assert sorted(map(tuple, frame.collect())) == expected
    assert files_of(frame) == files <= kept_by_delta


def test_a_limit_older_versions_and_changes_of_rows_are_planned(shop: Shop) -> None:
    name = partitioned(shop)
    spark = shop.spark
    before = dls.planned_scans(spark)
    assert files_of(spark.sql(f"select * from {name} limit 12")) == 2
    assert files_of(spark.sql(f"select * from {name} where part = 'a' limit 3")) == 1
    assert files_of(spark.sql(f"select * from {name} version as of 2 where id < 30")) == 2
    spark.sql(f"delete from {name} where id = 15 and part = 'a'")
    spark.sql(f"update {name} set price = 0 where id = 5")
    spark.sql(f"optimize {name} where part = 'a'")
    assert spark.table(name).count() == 39
    after = dls.planned_scans(spark)
    assert after.planned >= before.planned + 6
    assert after.fallbacks == before.fallbacks


def test_deleted_rows_stay_deleted_where_the_database_plans(shop: Shop) -> None:
    shop.create("orders", range(20), enableDeletionVectors="true")
    name, spark = shop.name("orders"), shop.spark
    before = dls.planned_scans(spark)
    spark.sql(f"delete from {name} where id = 7")
    assert [row.id for row in spark.sql(f"select id from {name} where id between 6 and 8 order by id").collect()] == [
        6,
        8,
    ]
    assert not snapshot_of(shop, "orders").stateReconstructionTriggered()
    assert dls.planned_scans(spark).fallbacks == before.fallbacks


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_the_physical_plan_says_that_the_database_planned_and_how_many_files_it_kept(shop: Shop, adaptive: str) -> None:
    name, session = partitioned(shop), shop.spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    frame = session.sql(f"select part, count(*) as n from {name} where id = 15 group by part")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Location: PlannedByDatabase" in plan
    assert "[2 of 4 files, version 4" in plan
    assert sorted(map(tuple, frame.collect())) == [("a", 1), ("b", 1)]
    session.conf.set(ENABLED, "false")
    again = session.sql(f"select part, count(*) as n from {name} where id = 15 group by part")
    assert "PlannedByDatabase" not in again._jdf.queryExecution().executedPlan().toString()


def test_a_setting_turns_it_off(shop: Shop, plain: SparkSession) -> None:
    name = partitioned(shop)
    before = dls.planned_scans(plain)
    assert files_of(plain.sql(f"select * from {name} where id = 15")) == 2
    assert dls.planned_scans(plain) == before
    assert snapshot_of(shop, "events", plain).stateReconstructionTriggered()


def test_what_the_database_does_not_plan_is_planned_by_delta_and_counted(shop: Shop) -> None:
    name = partitioned(shop)
    session = shop.spark.newSession()
    session.conf.set("spark.databricks.delta.alwaysCollectStats.enabled", "true")
    before = dls.planned_scans(session)
    assert session.sql(f"select * from {name} where id = 15").count() == 2
    after = dls.planned_scans(session)
    assert after.planned == before.planned
    reason = "spark.databricks.delta.alwaysCollectStats.enabled is set"
    assert after.fallbacks[reason] > before.fallbacks.get(reason, 0)


def test_the_endpoint_counts_planned_scans_and_those_left_to_delta(shop: Shop) -> None:
    name, reason = partitioned(shop), "spark.databricks.delta.alwaysCollectStats.enabled is set"
    planned, left = (telemetry.value_of(SPARK_SCANS, *labels) or 0 for labels in (("database", ""), ("delta", reason)))
    assert files_of(shop.spark.sql(f"select * from {name} where id = 15")) == 2
    assert (telemetry.value_of(SPARK_SCANS, "database", "") or 0) > planned
    session = shop.spark.newSession()
    session.conf.set("spark.databricks.delta.alwaysCollectStats.enabled", "true")
    assert files_of(session.sql(f"select * from {name} where id = 15")) == 2
    for _ in range(100):  # nobody waits for the message
        if (telemetry.value_of(SPARK_SCANS, "delta", reason) or 0) > left:
            break
        time.sleep(0.1)
    assert (telemetry.value_of(SPARK_SCANS, "delta", reason) or 0) > left


def test_a_reader_with_options_of_its_file_system_is_left_to_delta(shop: Shop) -> None:
    partitioned(shop)
    reader = shop.spark.read.format("delta").option("fs.dldb.some.option", "1")
    frame = reader.load(f"dldb:///file{shop.path('events')}")
    assert frame.where("id = 15").count() == 2


def state_was_read(shop: Shop, table: str) -> bool:
    return bool(snapshot_of(shop, table).stateReconstructionTriggered())


def test_statements_that_write_deletion_vectors_keep_statistics_and_read_no_state(shop: Shop) -> None:
    shop.create("orders", range(20), enableDeletionVectors="true")
    name, spark = shop.name("orders"), shop.spark
    spark.sql(f"insert into {name} select id + 20, 1 from range(20)")
    spark.sql(f"delete from {name} where id in (7, 27)")
    assert not state_was_read(shop, "orders")
    spark.sql(f"update {name} set value = 5 where id = 28")
    spark.sql(f"merge into {name} t using (select 9 as id) s on t.id = s.id when matched then delete")
    assert spark.table(name).count() == 37
    assert not state_was_read(shop, "orders")
    table = shop.catalog.table(name)
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert all(row["num_records"] and row["max.id"] is not None for row in adds)
    assert sum(row["num_records"] for row in adds) >= 37
    assert len(shop.rows("orders")) == 37


def test_a_stream_overwrites_of_partitions_and_transactions_of_applications_read_no_state(
    shop: Shop, tmp_path: Path
) -> None:
    name, spark = partitioned(shop), shop.spark
    copy = shop.name("copy")
    for _ in range(2):
        stream = spark.readStream.table(name).writeStream.format("delta").trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(copy).awaitTermination()
        assert spark.table(copy).count() == 40
    assert not state_was_read(shop, "events")
    assert not state_was_read(shop, "copy")
    rows = spark.range(3).selectExpr("id", "'b' as part", "0d as price")
    rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").saveAsTable(name)
    assert spark.table(name).groupBy("part").count().orderBy("part").collect() == [("a", 20), ("b", 3)]
    assert not state_was_read(shop, "events")


def test_clustered_tables_and_row_ids_are_known_from_sql(shop: Shop) -> None:
    name, spark = shop.name("clustered"), shop.spark
    tracked = "tblproperties ('delta.enableRowTracking' = 'true')"
    spark.sql(f"create table {name} (id long, v long) using delta cluster by (id) {tracked}")
    for start in (0, 10):
        spark.sql(f"insert into {name} select id + {start}, 0 from range(10)")
    spark.sql(f"update {name} set v = 1 where id = 3")
    spark.sql(f"optimize {name}")
    rows = spark.sql(f"select id, _metadata.row_id as row_id from {name} order by id").collect()
    assert [row.id for row in rows] == list(range(20))
    assert len({row.row_id for row in rows}) == 20
    assert not state_was_read(shop, "clustered")


def test_counts_and_extremes_of_whole_tables_are_answered_from_metadata(shop: Shop, plain: SparkSession) -> None:
    name, spark = shop.name("facts"), shop.spark
    columns = "id long, small short, day date, price double, part int"
    tracked = "tblproperties ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"create table {name} ({columns}) using delta partitioned by (part) {tracked}")
    for start in (0, 10):
        day = f"date '2024-01-01' + cast(id as int) + {start}"
        spark.sql(f"insert into {name} select id + {start}, id, {day}, id / 4, {start} - 5 from range(10)")
    query = f"select count(*), min(id), max(id), min(small), max(day), min(price), min(part), max(part) from {name}"
    frame = spark.sql(query)
    assert "LocalTableScan" in frame._jdf.queryExecution().executedPlan().toString()
    rows = frame.collect()
    assert not state_was_read(shop, "facts")
    assert rows == plain.sql(query).collect()
    spark.sql(f"delete from {name} where id in (0, 3)")
    assert spark.sql(query).collect() == plain.sql(query).collect()
    both = f"select (select count(*) from {name}) as one, count(*) from {name} version as of 1"
    assert spark.sql(both).collect() == plain.sql(both).collect() == [(18, 10)]
    filtered = f"select count(*), max(id) from {name} where id < 15"
    assert spark.sql(filtered).collect() == plain.sql(filtered).collect()


def test_what_a_transaction_writes_to_a_table_with_row_ids_is_planned(shop: Shop) -> None:
    name, spark = shop.name("tracked"), shop.spark
    spark.sql(f"create table {name} (id long, v long) using delta tblproperties ('delta.enableRowTracking' = 'true')")
    spark.sql(f"insert into {name} select /*+ coalesce(1) */ id, 0 from range(10)")
    before = dls.planned_scans(spark)
    ids = f"select id, _metadata.row_id as row from {{{name}}} order by id"
    with dls.begin(spark) as tx:
        tx.sql(f"insert into {{{name}}} select /*+ coalesce(1) */ id + 10, 0 from range(5)")
        seen = [(row.id, row.row) for row in tx.sql(ids).collect()]
        assert seen == [(number, number) for number in range(15)]
        tx.sql(f"update {{{name}}} set v = 1 where id in (3, 11)")
        assert [(row.id, row.row) for row in tx.sql(ids).collect()] == seen
        assert tx.sql(f"select * from {{{name}}} version as of 2 where v = 1").count() == 0
        assert tx.sql(f"select * from {{{name}}} where v = 1").count() == 2
    assert dls.planned_scans(spark).fallbacks == before.fallbacks
    after = spark.sql(f"select id, _metadata.row_id as row from {name} order by id").collect()
    assert [(row.id, row.row) for row in after] == seen


def ranges(shop: Shop, table: str) -> str:
    """Two files, with ids 0-9 and 10-19."""
    name = shop.create(table, range(10))
    shop.append_elsewhere(table, range(10, 20))
    return name


def test_a_transaction_conflicts_only_with_changes_of_what_its_scans_may_see(shop: Shop) -> None:
    name, spark = ranges(shop, "stock"), shop.spark
    with dls.begin(spark) as tx:
        assert tx.sql(f"select value from {{{name}}} where id = 4").count() == 1
        tx.sql(f"update {{{name}}} set value = 7 where id = 3")
        spark.sql(f"update {name} set value = 8 where id = 13")
        shop.append_elsewhere("stock", range(30, 33))
    assert tx.result == {name: 5}
    values = dict(shop.rows("stock"))
    assert (values[3], values[13], len(values)) == (7, 8, 23)
    tx = dls.begin(spark)
    tx.sql(f"update {{{name}}} set value = 9 where id = 4")
    spark.sql(f"update {name} set value = 9 where id = 5")  # of the same file
    with pytest.raises(CommitFailedError):
        tx.commit()
    assert dict(shop.rows("stock"))[4] == 0


@pytest.mark.parametrize(("number", "conflicts"), [(100, True), (200, False)])
def test_a_scan_that_keeps_no_file_is_a_read_all_the_same(shop: Shop, number: int, conflicts: bool) -> None:
    name, other = ranges(shop, "stock"), shop.create("log")
    tx = dls.begin(shop.spark)
    assert tx.sql(f"select * from {{{name}}} where id = 100").collect() == []
    tx.sql(f"insert into {{{other}}} values (1, 1)")
    shop.append_elsewhere("stock", [number])
    if conflicts:
        with pytest.raises(ConcurrentAppendError):
            tx.commit()
    else:
        assert tx.commit() == {other: 1}


def test_of_two_transactions_with_write_skew_one_fails(shop: Shop) -> None:
    name = ranges(shop, "duty")
    first, second = dls.begin(shop.spark), dls.begin(shop.spark)
    for tx, seen, changed in ((first, 5, 15), (second, 15, 5)):
        assert tx.sql(f"select value from {{{name}}} where id = {seen}").collect()
        tx.sql(f"update {{{name}}} set value = 1 where id = {changed}")
    assert first.commit() == {name: 3}
    with pytest.raises(CommitFailedError):
        second.commit()
    values = dict(shop.rows("duty"))
    assert (values[5], values[15]) == (0, 1)


def test_in_a_transaction_what_delta_plans_counts_as_the_whole_table(shop: Shop) -> None:
    name, other = ranges(shop, "stock"), shop.create("log")
    tx = dls.begin(shop.spark)
    assert tx.sql(f"select * from {{{name}}} where id = 3").count() == 1
    with setting(shop.spark, "spark.databricks.delta.alwaysCollectStats.enabled", "true"):
        assert tx.sql(f"select * from {{{name}}} where id = 100").collect() == []
    tx.sql(f"insert into {{{other}}} values (1, 1)")
    shop.append_elsewhere("stock", [500])
    with pytest.raises(ConcurrentAppendError):
        tx.commit()
