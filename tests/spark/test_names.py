"""Tables of the catalog by their names in Spark SQL: made here or by others, beside what else the session has."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltalakedb.spark as dls
from tests.spark.naming import NOT_FOUND, Names


def test_tables_are_created_filled_and_read_by_name(names: Names) -> None:
    names.sql("create table ns.orders (id bigint, day string) using delta partitioned by (day)")
    names.sql("insert into ns.orders values (1, 'a'), (2, 'b')")
    names.sql("create table ns.copy using delta as select * from ns.orders")
    assert names.sql("select * from ns.copy order by id") == [(1, "a"), (2, "b")]
    names.sql("create or replace table ns.copy using delta as select id from ns.orders where id = 2")
    assert names.sql("select * from ns.copy") == [(2,)]
    names.sql("create table if not exists ns.copy (other string) using delta")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        names.sql("create table ns.copy (id bigint) using delta")
    names.sql("create table ns.like like ns.orders")
    assert names.tables() == names.registered() == ["copy", "like", "orders"]
    assert names.catalog.table(names.name("orders")).metadata().partition_columns == ["day"]
    assert names.catalog.table(names.name("copy")).to_pyarrow_table().to_pylist() == [{"id": 2}]


def test_dataframes_are_saved_under_names(names: Names) -> None:
    frame, name = names.spark.range(3).coalesce(1), names.name("saved")
    frame.write.format("delta").saveAsTable(name)
    frame.write.format("delta").mode("append").saveAsTable(name)
    assert names.spark.table(name).count() == 6
    frame.write.format("delta").mode("overwrite").saveAsTable(name)
    frame.write.insertInto(name)
    frame.writeTo(names.name("other")).using("delta").create()
    assert names.sql("select count(*) from ns.saved union all select count(*) from ns.other") == [(6,), (3,)]
    assert names.registered() == ["other", "saved"]
    with pytest.raises(AnalysisException, match="already exists"):
        frame.write.format("delta").saveAsTable(name)


def test_history_time_travel_and_maintenance_work_by_name(names: Names) -> None:
    names.sql("create table ns.t (id bigint) using delta tblproperties ('delta.enableChangeDataFeed' = 'true')")
    for number in range(3):
        names.sql(f"insert into ns.t values ({number})")
    table = names.catalog.table(names.name("t"))
    assert [row[4] for row in names.sql("describe history ns.t")] == ["WRITE", "WRITE", "WRITE", "CREATE TABLE"]
    assert names.sql("describe detail ns.t")[0][2].endswith(names.name("t"))
    assert names.sql("select id from ns.t version as of 2 order by id") == [(0,), (1,)]
    at = datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC)
    asked = f"select id from ns.t timestamp as of '{at:%Y-%m-%d %H:%M:%S.%f}' order by id"
    assert names.sql(asked) == [(0,), (1,)]
    names.sql("update ns.t set id = 9 where id = 0")
    changes = names.sql("select id, _change_type from table_changes('ns.t', 4) order by 2")
    assert changes == [(9, "update_postimage"), (0, "update_preimage")]
    names.sql("optimize ns.t")
    names.sql("vacuum ns.t")
    names.sql("restore table ns.t to version as of 3")
    assert names.sql("select id from ns.t order by id") == [(0,), (1,), (2,)]
    operations = {entry["operation"] for entry in names.catalog.table(names.name("t")).history()}
    assert {"OPTIMIZE", "RESTORE", "UPDATE"} <= operations


def for_name(spark: SparkSession, name: str) -> Any:
    """`DeltaTable.forName` of delta-spark's Python package, which calls this."""
    jvm: Any = spark._jvm
    return jvm.io.delta.tables.DeltaTable.forName(spark._jsparkSession, name)


def test_delta_table_for_name_finds_a_table_that_this_session_never_saw(names: Names) -> None:
    names.make("unseen", 1, 2, 3)
    for_name(names.spark, names.name("unseen")).delete("id = 1")
    assert names.catalog.table(names.name("unseen")).count() == 2
    names.make("other", 1, 2)
    names.make("`odd-1`", 1, 2)
    names.sql(f"use {names.ns}")
    for_name(names.spark, "other").delete("id = 1")
    for_name(names.spark, "`odd-1`").delete("id = 1")
    names.sql("use default")
    names.spark.catalog.setCurrentDatabase(names.ns)
    assert [for_name(names.spark, name).toDF().count() for name in ("other", "unseen", "`odd-1`")] == [1, 2, 1]
    assert for_name(names.spark, f"spark_catalog.{names.ns}.other").toDF().count() == 1
    names.spark.range(7).createOrReplaceTempView("other")
    with pytest.raises(AnalysisException, match="not a Delta table"):
        for_name(names.spark, "other")
    names.spark.catalog.dropTempView("other")
    with pytest.raises(AnalysisException, match="not a Delta table"):
        for_name(names.spark, "nosuch")


@pytest.mark.slow
def test_programs_name_tables_of_nested_namespaces(names: Names, tmp_path: Path) -> None:
    spark, name = names.spark, names.name("inner.t")
    frame = spark.range(3).coalesce(1)
    frame.write.format("delta").saveAsTable(name)
    frame.write.format("delta").mode("append").saveAsTable(name)
    frame.write.format("delta").mode("ignore").saveAsTable(name)
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        frame.write.format("delta").saveAsTable(name)
    frame.write.insertInto(name)
    assert spark.table(name).count() == 9
    frame.write.format("delta").mode("overwrite").saveAsTable(name)
    for_name(spark, name).delete("id = 0")
    assert for_name(spark, name).toDF().count() == 2
    assert spark.catalog.tableExists(name)
    assert spark.catalog.getTable(name).tableType == "MANAGED"
    names.sql(f"use {names.ns}.inner")
    with pytest.raises(AnalysisException, match="give the whole name, .*inner.here"):
        frame.write.format("delta").saveAsTable("here")
    frame.writeTo("here").using("delta").create()
    spark.range(5).createOrReplaceTempView("seen")
    assert (spark.table("here").count(), spark.table("seen").count()) == (3, 5)
    names.sql("use default")
    spark.catalog.dropTempView("seen")
    assert names.registered() == ["inner.here", "inner.t"]
    deep = names.name("inner.deeper.deepest.sink")
    stream = spark.readStream.table(name).writeStream.format("delta").trigger(availableNow=True)
    assert stream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(deep).awaitTermination(120)
    assert names.catalog.table(deep).count() == 2
    assert spark.readStream.table(deep).isStreaming


def test_listings_show_every_name_and_whose_files_a_table_has(names: Names, tmp_path: Path) -> None:
    names.make("unseen", 1)
    names.sql("create table ns.`my-table` (id bigint) using delta")
    names.sql(f"create table ns.placed (id bigint) using delta location '{tmp_path}/placed'")
    names.sql("create view ns.seen as select * from ns.unseen")
    names.sql("create table ns.inner.t (id bigint) using delta")
    types = [("my-table", "MANAGED"), ("placed", "EXTERNAL"), ("seen", "VIEW"), ("unseen", "MANAGED")]
    spark, codegen = names.spark, "spark.sql.codegen.factoryMode"
    before = str(spark.conf.get(codegen))
    spark.conf.set(codegen, "FALLBACK")  # without compiling, Spark itself cannot make a Table of a row
    try:
        listed = spark.catalog.listTables(names.ns)
        nested = spark.catalog.listTables(f"{names.ns}.inner")
    finally:
        spark.conf.set(codegen, before)
    assert sorted((one.name, str(one.tableType)) for one in listed) == types
    assert [(one.name, one.tableType) for one in nested] == [("t", "MANAGED")]
    rows = names.sql(f"show table extended in {names.ns} like '*'")
    told = [(row[1], line.removeprefix("Type: ")) for row in rows for line in row[3].split("\n") if "Type: " in line]
    assert sorted(told) == types
    few = names.sql(f"show table extended in {names.ns} like 'my*|pl*'")
    assert sorted(row[1] for row in few) == ["my-table", "placed"]
    assert [row[:2] for row in names.sql(f"show table extended in {names.ns}.inner like '*'")] == [
        (f"{names.ns}.inner", "t")
    ]
    for space, column in ((f"{names.ns}.inner", "Namespace Name"), (names.ns, "Namespace Name")):
        assert column in dict(names.sql(f"describe namespace {space}"))
    names.sql("drop view ns.seen")


def test_tables_made_dropped_and_changed_by_others_are_seen_at_once(names: Names) -> None:
    names.make("theirs", 1, 2)
    assert names.tables() == ["theirs"]
    assert names.sql("select * from ns.theirs order by id") == [(1,), (2,)]
    with names.catalog.begin() as tx:
        tx.write(names.name("theirs"), pa.table({"id": [3]}), mode="append")
    assert names.sql("select count(*) from ns.theirs") == [(3,)]
    names.catalog.rename_table(names.name("theirs"), names.name("renamed"))
    assert names.sql("select count(*) from ns.renamed") == [(3,)]
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("select * from ns.theirs")
    names.catalog.drop_table(names.name("renamed"))
    assert names.tables() == []
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("select * from ns.renamed")
    assert not names.spark.catalog.tableExists(names.name("renamed"))


def test_drop_leaves_the_files_and_drop_purge_takes_them(names: Names) -> None:
    for table in ("kept", "purged"):
        names.sql(f"create table ns.{table} using delta as select 1 as id")
    kept, purged = (
        Path(names.catalog.table(names.name(t)).table_uri.removeprefix("file://")) for t in ("kept", "purged")
    )
    names.sql("drop table ns.kept")
    names.sql("drop table ns.purged purge")
    assert names.registered() == names.tables() == []
    assert list(kept.glob("*.parquet"))
    assert names.spark.read.format("delta").load(str(kept)).count() == 1
    assert not list(purged.glob("*.parquet"))
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("drop table ns.kept")
    names.sql("drop table if exists ns.kept")
    names.sql("create table ns.purged using delta as select 2 as id, 'x' as more")
    assert names.sql("select * from ns.purged") == [(2, "x")]


def test_renames_and_namespaces_go_through_the_catalog(names: Names) -> None:
    names.sql(f"create database {names.ns}")
    assert names.ns in names.catalog.namespaces()
    names.sql("create table ns.old using delta as select 1 as id")
    names.sql("create table ns.taken using delta as select 1 as id")
    names.sql("alter table ns.old rename to ns.new")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        names.sql("alter table ns.new rename to ns.taken")
    assert names.registered() == names.tables() == ["new", "taken"]
    names.sql(f"use {names.ns}")
    assert names.sql("select id from new") == [(1,)]
    names.sql("use default")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        names.sql(f"drop database {names.ns}")
    names.sql(f"drop database {names.ns} cascade")
    assert names.registered() == []
    assert names.ns not in names.catalog.namespaces()
    assert (names.ns,) not in names.sql("show databases")


def test_a_namespace_of_others_is_a_database(names: Names) -> None:
    names.make("t", 1)
    assert (names.ns,) in names.sql("show databases")
    names.sql(f"use {names.ns}")
    assert names.sql("select * from t") == [(1,)]
    names.sql("create table here using delta as select 2 as id")
    assert names.registered() == ["here", "t"]


@pytest.mark.slow
def test_names_may_have_anything_in_them(names: Names) -> None:
    parts = ["my-table", "a.b", "x/y", "größe", "a``b", "it's", "100%", "😀 x", "1", "ß", "ss"]
    for number, part in enumerate(parts):
        names.sql(f"create table ns.`{part}` (id bigint, day string) using delta partitioned by (day)")
        names.sql(f"insert into ns.`{part}` values ({number}, 'a'), (99, 'b/c')")
        names.sql(f"delete from ns.`{part}` where id = 99")
        assert names.sql(f"select id from ns.`{part}`") == [(number,)]
        table = names.catalog.table(names.name(f"`{part}`"))
        assert (table.name, table.version()) == (names.name(part if part in ("1", "ss") else f"`{part}`"), 2)
        assert table.to_pyarrow_table().column("id").to_pylist() == [number]
    assert names.tables() == sorted(part.replace("``", "`") for part in parts)
    names.make("`made elsewhere`", 1, 2)
    assert names.sql("select count(*) from ns.`MADE ELSEWHERE`") == [(2,)]
    for part in parts:
        names.sql(f"drop table ns.`{part}`")
        with pytest.raises(AnalysisException, match=NOT_FOUND):
            names.sql(f"select * from ns.`{part}`")
    assert names.tables() == ["made elsewhere"]
    assert names.registered() == ["`made elsewhere`"]


def test_a_dot_in_backticks_is_no_dot_between_parts(names: Names) -> None:
    names.sql("create table ns.`a.b` using delta as select 1 as id")
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("select * from ns.a.b")
    names.sql("create table ns.a.b using delta as select 2 as id")
    assert names.sql("select * from ns.`a.b`") == [(1,)]
    assert names.sql("select * from ns.a.b") == [(2,)]
    assert names.registered() == ["`a.b`", "a.b"]
    assert names.tables() == ["a.b"]


@pytest.mark.slow
def test_every_statement_takes_names_in_backticks(names: Names) -> None:
    names.sql("create table ns.`t-1` (id bigint) using delta tblproperties ('delta.enableChangeDataFeed' = 'true')")
    names.sql("insert into ns.`t-1` values (1), (2)")
    names.sql("create table if not exists ns.`T-1` (other string) using delta")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        names.sql("create table ns.`t-1` (id bigint) using delta")
    names.sql("update ns.`t-1` set id = 3 where id = 2")
    names.sql("merge into ns.`t-1` t using (select 4 as id) u on t.id = u.id when not matched then insert *")
    changes = names.sql("select id, _change_type from table_changes('ns.`t-1`', 2, 2) order by 2")
    assert changes == [(3, "update_postimage"), (2, "update_preimage")]
    assert names.sql("select id from ns.`t-1` version as of 1 order by id") == [(1,), (2,)]
    names.sql("alter table ns.`t-1` add columns (more string)")
    names.sql("optimize ns.`t-1`")
    names.sql("restore table ns.`t-1` to version as of 1")
    assert len(names.sql("describe history ns.`t-1`")) == len(names.catalog.history(names.name("`t-1`")))
    names.sql("create or replace table ns.`t-1` using delta as select 5 as id")
    names.sql("alter table ns.`t-1` rename to ns.`t-2`")
    names.sql("alter table ns.`t-2` rename to ns.plain")
    names.sql("alter table ns.plain rename to ns.`t-3`")
    assert names.sql("select id from ns.`t-3`") == [(5,)]
    assert names.registered() == ["`t-3`"]
    jvm: Any = names.spark._jvm
    jvm.io.delta.tables.DeltaTable.forName(names.spark._jsparkSession, names.name("`t-3`")).delete("id = 5")
    frame, saved = names.spark.range(3).coalesce(1), names.name("`saved-as`")
    frame.write.format("delta").saveAsTable(saved)
    frame.write.format("delta").mode("append").saveAsTable(saved)
    frame.writeTo(names.name("`write-to`")).using("delta").create()
    assert names.spark.table(saved).count() == 6
    assert names.spark.catalog.tableExists(saved)
    assert not names.spark.catalog.tableExists(names.name("`no-table`"))
    assert names.tables() == ["saved-as", "t-3", "write-to"]


def test_namespaces_may_have_anything_in_them(names: Names) -> None:
    for space in (f"`{names.ns}-x`", f"`{names.ns}.y`"):
        names.sql(f"create database {space}")
        names.sql(f"create table {space}.t using delta as select 1 as id")
        names.sql(f"use {space}")
        names.sql("create table `u-2` using delta as select 2 as id")
        assert names.sql("select t.id, u.id from t, `u-2` u") == [(1, 2)]
        assert sorted(row[1] for row in names.sql("show tables")) == ["t", "u-2"]
        names.sql("use default")
        assert (space,) in names.sql("show databases")
        assert names.catalog.tables(space) == [f"{space}.t", f"{space}.`u-2`"]
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
            names.sql(f"drop database {space}")
        names.sql(f"drop database {space} cascade")
        assert space not in names.catalog.namespaces()


def test_a_name_that_cannot_be_is_refused_before_anything_is_committed(names: Names) -> None:
    names.make("t", 1)
    with pytest.raises(AnalysisException, match=r"control character U\+0009"):
        names.sql("create table ns.`a\tb` (id int) using delta")
    assert names.registered() == names.tables() == ["t"]


def test_a_table_is_made_like_one_whatever_their_names(names: Names) -> None:
    names.sql(
        "create table ns.`a model` (id bigint not null, day string) using delta partitioned by (day) comment 'for all' "
        "tblproperties ('delta.appendOnly' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    names.sql("insert into ns.`a model` values (1, 'x')")
    for name in ("plain", "`liked-it`"):
        names.sql(f"create table ns.{name} like ns.`a model` tblproperties ('more' = '1')")
        made, model = names.catalog.table(names.name(name)), names.catalog.table(names.name("`a model`"))
        assert (made.version(), made.count(), made.schema().to_json()) == (0, 0, model.schema().to_json())
        assert made.metadata().partition_columns == ["day"]
        assert made.metadata().description == "for all"
        assert made.metadata().configuration.items() >= {("delta.appendOnly", "true"), ("more", "1")}
        names.sql(f"insert into ns.{name} values (2, 'y')")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        names.sql("create table ns.`liked-it` like ns.plain")
    names.sql("create table if not exists ns.`liked-it` like ns.plain")
    assert names.sql("select id from ns.`liked-it`") == [(2,)]
    names.sql("create table ns.pq (id int) using parquet")
    with pytest.raises(AnalysisException, match="another format as its model"):
        names.sql("create table ns.`odd-1` like ns.pq using delta")
    assert names.registered() == ["`a model`", "`liked-it`", "plain"]


def test_a_transaction_takes_names_in_backticks(names: Names) -> None:
    first, second = names.name("`a.b`"), names.name("inner.`x/{y}`")
    with dls.begin(names.spark) as tx:
        tx.sql(f"create table {{{first}}} using delta as select 1 as id")
        names.spark.range(2).write.format("delta").save(tx.path(second))
        tx.sql(f"insert into {{{first}}} select id + 10 from {{{second}}}")
    assert tx.result == {first: 1, second: 0}
    assert names.sql("select id from ns.`a.b` order by id") == [(1,), (10,), (11,)]


def test_temporary_views_and_plain_tables_are_sparks_own(names: Names) -> None:
    names.sql(f"create database {names.ns}")
    names.sql("create table ns.plain (id int) using parquet")
    names.sql("insert into ns.plain values (1)")
    names.make("ours", 5)
    names.spark.createDataFrame([(7,)], "id long").createOrReplaceTempView("tv")
    assert names.sql("select p.id, o.id, v.id from ns.plain p, ns.ours o, tv v") == [(1, 5, 7)]
    assert names.tables() == ["ours", "plain", "tv"]
    assert names.registered() == ["ours"]
    names.sql("create view ns.seen as select * from ns.ours")
    assert names.sql("select * from ns.seen") == [(5,)]
    names.sql("drop view ns.seen")
    names.make("plain", 9)
    with pytest.raises(AnalysisException, match="created in this Spark session alone: drop or rename"):
        names.sql("select * from ns.plain")
    names.spark.catalog.dropTempView("tv")


def test_a_table_may_be_created_at_a_place_of_its_own_which_then_is_its(names: Names, tmp_path: Path) -> None:
    names.sql(f"create table ns.placed (id int) using delta location '{tmp_path}/a place'")
    names.sql("insert into ns.placed values (1)")
    assert names.sql("select * from ns.placed") == [(1,)]
    assert names.catalog.table(names.name("placed")).version() == 1
    assert list((tmp_path / "a place").glob("*.parquet"))
    with pytest.raises(AnalysisException, match="a location has one owner"):
        names.sql(f"create table ns.second (id int) using delta location '{tmp_path}/a place'")
    with pytest.raises(AnalysisException, match="location of .* cannot be set.*DROP TABLE, then CREATE TABLE"):
        names.sql(f"alter table ns.placed set location '{tmp_path}/other'")


def test_a_stream_writes_into_a_new_name_and_reads_from_one(names: Names, tmp_path: Path) -> None:
    names.make("source", 1, 2, 3)
    stream = names.spark.readStream.table(names.name("source")).writeStream.format("delta")
    started = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert started.toTable(names.name("sink")).awaitTermination(120)
    odd = stream.option("checkpointLocation", str(tmp_path / "other")).toTable(names.name("`odd/sink`"))
    assert odd.awaitTermination(120)
    assert names.catalog.table(names.name("`odd/sink`")).count() == 3
    assert sorted(names.catalog.table(names.name("sink")).to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]


def test_a_follower_is_read_where_it_lies(names: Names, tmp_path: Path) -> None:
    names.spark.range(4).write.format("delta").save(str(tmp_path / "lake"))
    names.catalog.attach_table(str(tmp_path / "lake"), names.name("follower"))
    assert names.sql("select count(*) from ns.follower") == [(4,)]
    names.catalog.drop_table(names.name("follower"))
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("select count(*) from ns.follower")
