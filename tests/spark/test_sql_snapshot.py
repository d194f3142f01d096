"""Scans of unmodified Spark SQL, planned by the database: who planned them, which files are kept, and the way back."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import deltalakedb.spark as dls
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


def test_a_reader_with_options_of_its_file_system_is_left_to_delta(shop: Shop) -> None:
    partitioned(shop)
    reader = shop.spark.read.format("delta").option("fs.dldb.some.option", "1")
    frame = reader.load(f"dldb:///file{shop.path('events')}")
    assert frame.where("id = 15").count() == 2
