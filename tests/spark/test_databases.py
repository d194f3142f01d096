"""Databases of Spark: their locations, what DROP DATABASE leaves alone, and sessions of two catalogs in one Spark."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltalakedb as dl


class Databases:
    """A database and a folder of the test's own, written `NS` and `DIR` in statements."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog, folder: Path) -> None:
        self.spark, self.catalog, self.folder, self.ns = spark, catalog, folder, f"db_{uuid.uuid4().hex[:8]}"
        warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
        self.sparks_folder = Path(warehouse) / f"{self.ns}.db"

    def sql(self, text: str, spark: SparkSession | None = None) -> list[tuple[Any, ...]]:
        filled = text.replace("NS", self.ns).replace("DIR", str(self.folder))
        return [tuple(row) for row in (spark or self.spark).sql(filled).collect()]

    def listed(self, spark: SparkSession | None = None) -> set[str]:
        """The databases of the test that SHOW DATABASES shows, without what all of them begin with."""
        shown = self.sql("show databases like 'NS*'", spark)
        return {str(row[0]).removeprefix(self.ns) for row in shown}


@pytest.fixture
def databases(spark: SparkSession, bridge_catalog: dl.Catalog, tmp_path: Path) -> Databases:
    return Databases(spark, bridge_catalog, tmp_path)


def test_a_dropped_database_takes_no_file_of_others_with_it(databases: Databases) -> None:
    db, folder = databases, databases.folder / "db"
    folder.mkdir()
    (folder / "stranger.txt").write_text("mine")
    db.sql("create database NS location 'DIR/db'")
    db.sql("create table NS.t using delta as select 1 as id")
    db.sql("create table NS_other.t using delta location 'DIR/db/sub/other' as select 5 as id")
    db.sql("create table NS.own using parquet as select 1 as id")  # Spark's own
    assert (db.sparks_folder / "own").exists()
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        db.sql("drop database NS")
    db.sql("drop database NS cascade")
    assert (db.listed(), db.sparks_folder.exists()) == ({"_other"}, False)
    assert (folder / "stranger.txt").read_text() == "mine"
    assert db.sql("select * from NS_other.t") == [(5,)]
    db.sql("undrop table NS.t")
    assert db.sql("select * from NS.t") == [(1,)]
    db.sql("drop table NS.t")
    db.sql("drop database NS")
    shutil.rmtree(folder / "t")
    with pytest.raises(AnalysisException, match="cannot be undropped: its files are gone"):
        db.sql("undrop table NS.t")
    assert (db.listed(), sorted(one.name for one in folder.iterdir())) == ({"_other"}, ["stranger.txt", "sub"])


def test_a_file_in_the_folder_that_spark_chose_stays_and_the_database_is_made_anew(databases: Databases) -> None:
    db = databases
    db.sql("create database NS")
    (db.sparks_folder / "stranger.txt").write_text("mine")
    db.sql("drop database NS")
    assert (db.listed(), (db.sparks_folder / "stranger.txt").read_text()) == (set(), "mine")
    for statement in ("use NS", "show tables in NS", "describe database NS", "drop database NS"):
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            db.sql(statement)
    assert not db.spark.catalog.databaseExists(db.ns)
    db.sql("create database NS comment 'new'")
    assert dict(db.sql("describe database NS"))["Comment"] == "new"
    (db.sparks_folder / "stranger.txt").unlink()
    db.sql("drop database NS cascade")
    assert (db.listed(), db.sparks_folder.exists()) == (set(), False)


def test_a_database_that_only_others_are_inside_of_is_not_dropped(databases: Databases) -> None:
    db = databases
    db.sql("create table NS.inner.t using delta as select 1 as id")
    db.sql("use NS")
    db.sql("use default")
    for statement, said in (("drop database NS", "SCHEMA_NOT_EMPTY"), ("drop database NS cascade", "are inside it")):
        with pytest.raises(AnalysisException, match=said):
            db.sql(statement)
    assert (db.listed(), db.sparks_folder.exists()) == ({""}, True)
    assert db.sql("select * from NS.inner.t") == [(1,)]


def test_the_places_of_a_dropped_database_are_free_at_once(databases: Databases) -> None:
    db = databases
    for name in ("a", "b"):
        db.sql(f"create table NS.{name} using delta location 'DIR/{name}' as select /*+ coalesce(1) */ 1L as id")
    db.catalog.mirror.flush(30)
    notices = [db.folder / name / "_dldb" / "README.txt" for name in ("a", "b")]
    assert all(one.exists() for one in notices)
    db.sql("drop database NS cascade")
    assert not any(one.exists() for one in notices)
    db.sql("create table NS.again using delta location 'DIR/a'")
    assert db.sql("select * from NS.again") == [(1,)]
    deltalake.write_deltalake(db.folder / "b", pa.table({"id": [2]}), mode="append")


def test_a_session_of_another_catalog_sees_its_own_databases_alone(
    databases: Databases, bridge: Callable[[dl.Catalog], SparkSession], tmp_path: Path
) -> None:
    db = databases
    db.sql("create table NS.t using delta as select 'first' as x")
    db.sql("create table NS_only.t using delta as select 1 as x")
    db.sql("create table NS.own using parquet as select 1 as id")
    with dl.connect(tmp_path / "other.db", warehouse=str(tmp_path / "other")) as other:
        second = bridge(other)
        assert db.listed(second) == set()
        for statement in ("use NS_only", "show tables in NS_only", "drop database NS_only cascade"):
            with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
                db.sql(statement, second)
        db.sql("create table NS.t using delta as select 'second' as x", second)
        assert db.listed(second) == {""}
        assert [db.sql("select * from NS.t", one) for one in (second, db.spark)] == [[("second",)], [("first",)]]
        db.sql("drop database NS cascade", second)
        assert (db.listed(second), db.listed()) == (set(), {"", "_only"})
        assert db.sql("select x from NS.t") == [("first",)]
        assert db.sql("select * from NS.own") == [(1,)], "Spark's own, of the first session"
    db.sql("drop database NS cascade")
    assert (db.listed(), db.sparks_folder.exists()) == ({"_only"}, False)


def test_a_database_has_no_location_in_the_folder_of_a_table(databases: Databases) -> None:
    db = databases
    deltalake.write_deltalake(str(db.folder / "theirs"), pa.table({"id": [1]}))
    db.sql("create table NS.t using delta location 'DIR/ours' as select 1 as id")
    for inside in ("theirs", "theirs/db", "ours", "ours/deep/db"):
        with pytest.raises(AnalysisException, match="is the folder of .*choose a folder outside of it"):
            db.sql(f"create database NS_new location 'DIR/{inside}'")
        with pytest.raises(AnalysisException, match="is the folder of"):
            db.sql(f"alter database NS set location 'DIR/{inside}'")
    assert db.listed() == {""}


def test_a_purged_place_is_empty_or_the_next_create_says_what_to_do(databases: Databases) -> None:
    db = databases
    db.sql("create table NS.t using delta location 'DIR/t' as select /*+ coalesce(1) */ 1L as id")
    db.sql("insert into NS.t values (2)")
    db.sql("drop table NS.t purge")
    assert not (db.folder / "t").exists(), "no checksum of Hadoop's is left"
    db.sql("create table NS.t (id bigint) using delta location 'DIR/t'")
    (db.folder / "t" / "part-0.parquet").write_bytes(b"")  # as of a write that was never committed
    db.sql("drop table NS.t purge")
    assert [one.name for one in (db.folder / "t").iterdir()] == ["part-0.parquet"]
    rows = db.spark.range(1).write.format("delta").option("path", str(db.folder / "t"))
    for create in (
        lambda: db.sql("create table NS.t (id bigint) using delta location 'DIR/t'"),
        lambda: rows.saveAsTable(f"{db.ns}.t"),
    ):
        with pytest.raises(AnalysisException, match="delete them if nobody needs them, or choose another") as refused:
            create()
        assert refused.value.getCondition() == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    (db.folder / "t" / "part-0.parquet").unlink()
    rows.saveAsTable(f"{db.ns}.t")
    assert db.sql("select * from NS.t") == [(0,)]


@pytest.mark.parametrize(("before", "after"), [("t", "T"), ("`x y`", "`X Y`")])
def test_a_table_is_renamed_to_another_case(databases: Databases, before: str, after: str) -> None:
    db = databases
    db.sql(f"create table NS.{before} using delta as select 1 as id")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        db.sql(f"alter table NS.{before} rename to NS.{before}")
    db.sql(f"alter table NS.{before} rename to {after}")
    assert [row[1] for row in db.sql("show tables in NS")] == [after.strip("`")]
    assert db.sql(f"select * from NS.{before}") == [(1,)]


def test_a_save_at_a_delta_table_of_others_is_told_the_way_in_spark(databases: Databases) -> None:
    db, theirs = databases, databases.folder / "theirs"
    deltalake.write_deltalake(str(theirs), pa.table({"id": [7]}))
    rows = db.spark.range(1).coalesce(1).write.format("delta").mode("append")
    with pytest.raises(AnalysisException, match="a Delta table is there already") as refused:
        rows.option("path", str(theirs)).saveAsTable(f"{db.ns}.t")
    assert "dl import" not in str(refused.value)
    advice = f"CREATE TABLE {db.ns}.t USING delta LOCATION 'file:{theirs}'"
    assert advice in str(refused.value)
    db.sql(advice)
    db.spark.range(1).write.format("delta").mode("append").saveAsTable(f"{db.ns}.t")
    assert db.sql("select * from NS.t order by id") == [(0,), (7,)]


def test_a_delta_table_of_others_where_a_new_table_would_go_is_named(databases: Databases) -> None:
    db = databases
    db.sql("create table NS.first using delta as select 1 as id")
    theirs = Path(db.catalog.table(f"{db.ns}.first").table_uri.removeprefix("file://")).parent / "t"
    deltalake.write_deltalake(str(theirs), pa.table({"id": [7]}))
    for statement in ("create table NS.t using delta as select 42L as id", "create table NS.t (id long) using delta"):
        with pytest.raises(AnalysisException, match="a Delta table is there already.*dl import"):
            db.sql(statement)
    assert deltalake.DeltaTable(str(theirs)).version() == 0
