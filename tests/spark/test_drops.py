"""DROP, UNDROP and PURGE in Spark, tables at places of their own or at a Delta table that is there, and databases."""

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class Drops:
    """A namespace of the test's own, written `ns` in statements."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog) -> None:
        self.spark, self.catalog, self.ns = spark, catalog, f"drops_{uuid.uuid4().hex[:8]}"

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text.replace("ns.", f"{self.ns}.")).collect()]

    def root(self, table: str) -> Path:
        return Path(unquote(self.catalog.table(f"{self.ns}.{table}").table_uri.removeprefix("file://")))

    def tables(self) -> list[str]:
        return sorted(str(one).rpartition(".")[2] for one in self.catalog.tables(self.ns))

    def mode(self, table: str) -> str:
        (found,) = (one for one in self.catalog.table_infos(self.ns) if one.name == table)
        return found.mode

    def described(self, table: str, key: str) -> str | None:
        rows = self.sql(f"describe table extended ns.{table}")
        return next((str(row[1]) for row in rows if row[0] == key), None)


@pytest.fixture
def drops(spark: SparkSession, bridge_catalog: dl.Catalog) -> Iterator[Drops]:
    yield Drops(spark, bridge_catalog)
    spark.sql("use default")


def theirs(folder: Path, *values: int) -> str:
    """A Delta table of another writer."""
    deltalake.write_deltalake(str(folder), pa.table({"id": pa.array(values, pa.int64())}), mode="append")
    return str(folder)


def test_a_dropped_table_comes_back_with_its_rows_and_history(drops: Drops) -> None:
    drops.sql("create table ns.t using delta as select 1 as id")
    drops.sql("insert into ns.t values (2)")
    drops.sql("drop table ns.t")
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        drops.sql("select * from ns.t")
    assert drops.sql("undrop table ns.t") == [(f"{drops.ns}.t",)]
    assert drops.sql("select * from ns.t order by id") == [(1,), (2,)]
    drops.sql("insert into ns.t values (3)")
    assert drops.sql("select count(*) from ns.t version as of 1") == [(2,)]
    drops.sql("drop table ns.t")
    drops.sql("Undrop  Table ns.`t` AS back ;")
    assert drops.tables() == ["back"]
    assert drops.sql("select count(*) from ns.back") == [(3,)]


def test_what_cannot_be_undropped_is_an_error_that_says_why(drops: Drops) -> None:
    with pytest.raises(AnalysisException, match="no dropped table"):
        drops.sql("undrop table ns.never")
    drops.sql("create table ns.t using delta as select 1 as id")
    drops.sql("drop table ns.t")
    drops.sql("create table ns.t using delta as select 2 as id")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        drops.sql("undrop table ns.t")
    drops.sql("undrop table ns.t to ns.first")
    assert drops.sql("select f.id, t.id from ns.first f, ns.t t") == [(1, 2)]
    with pytest.raises(ParseException):
        drops.sql("undrop table")
    with pytest.raises(Exception, match="by their names"):
        drops.sql("undrop table delta.`/some/path`")


def test_a_new_table_under_a_dropped_name_gets_another_folder_and_purge_deletes_at_once(drops: Drops) -> None:
    drops.sql("create table ns.t using delta as select 1 as id")
    old = drops.root("t")
    drops.sql("drop table ns.t")
    drops.sql("create table ns.t (name string) using delta")
    drops.sql("insert into ns.t values ('new')")
    new = drops.root("t")
    assert new != old
    assert drops.sql("select * from ns.t") == [("new",)]
    drops.sql("drop table ns.t purge")
    assert not new.exists()
    drops.sql("undrop table ns.t")
    assert drops.sql("select * from ns.t") == [(1,)], "the one that was dropped, not the one that was purged"


def test_whose_files_a_table_has_is_shown_as_managed_or_external(drops: Drops, tmp_path: Path) -> None:
    drops.sql("create table ns.ours (id int) using delta")
    drops.sql(f"create table ns.placed (id int) using delta location '{tmp_path}/placed'")
    assert [drops.described(table, "Type") for table in ("ours", "placed")] == ["MANAGED", "EXTERNAL"]
    found = [drops.spark.catalog.getTable(f"{drops.ns}.{table}") for table in ("ours", "placed")]
    assert [table.tableType for table in found] == ["MANAGED", "EXTERNAL"]
    drops.sql("insert into ns.ours values (1)")
    drops.sql("insert into ns.placed values (1)")
    roots = [drops.root(table) for table in ("ours", "placed")]
    drops.sql("drop table ns.ours")
    drops.sql("drop table ns.placed")
    assert all(list(root.glob("*.parquet")) for root in roots), "no file goes with a name"
    with pytest.raises(AnalysisException, match="dl attach"):
        drops.sql("undrop table ns.placed")


def test_a_protected_table_is_not_dropped(drops: Drops) -> None:
    drops.sql("create table ns.t (id int) using delta tblproperties ('drop_protection' = 'true')")
    with pytest.raises(AnalysisException, match="drop_protection"):
        drops.sql("drop table ns.t")
    assert drops.sql("select * from ns.t") == []


def test_a_table_created_at_a_delta_table_is_read_and_promoted_by_its_first_insert(
    drops: Drops, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = theirs(tmp_path / "theirs", 1)
    drops.sql(f"create table ns.t using delta location '{place}'")
    assert drops.sql("select * from ns.t") == [(1,)]
    theirs(tmp_path / "theirs", 2)
    assert drops.sql("select * from ns.t order by id") == [(1,), (2,)]
    assert (drops.mode("t"), drops.described("t", "Type")) == ("follower", "EXTERNAL")
    with caplog.at_level(logging.WARNING):
        drops.sql("insert into ns.t values (3)")
    assert "is managed by this catalog from now on" in caplog.text
    assert drops.sql("select * from ns.t order by id") == [(1,), (2,), (3,)]
    assert drops.mode("t") == "managed"
    assert "promote" in {entry["action"] for entry in drops.catalog.audit(table=f"{drops.ns}.t")}
    drops.catalog.mirror.flush(30)
    with pytest.raises(Exception, match="deltalakedb"):
        theirs(tmp_path / "theirs", 4)
    drops.sql("update ns.t set id = 9 where id = 1")
    assert sorted(deltalake.DeltaTable(place).to_pyarrow_table().column("id").to_pylist()) == [2, 3, 9]


def test_an_update_is_what_promotes_a_table_too(drops: Drops, tmp_path: Path) -> None:
    drops.spark.range(3).coalesce(1).write.format("delta").save(str(tmp_path / "plain"))
    drops.spark.catalog.createTable(f"{drops.ns}.t", path=str(tmp_path / "plain"), source="delta")
    drops.sql("update ns.t set id = 10 where id = 1")
    assert drops.sql("select * from ns.t order by id") == [(0,), (2,), (10,)]
    assert drops.mode("t") == "managed"


def test_a_transaction_promotes_a_table_that_it_writes(drops: Drops, tmp_path: Path) -> None:
    drops.sql(f"create table ns.t using delta location '{theirs(tmp_path / 'theirs', 1)}'")
    with dls.begin(drops.spark) as tx:
        tx.sql(f"insert into {{{drops.ns}.t}} values (2)")
        tx.sql(f"create table {{{drops.ns}.copy}} using delta as select * from {{{drops.ns}.t}}")
    assert drops.sql("select * from ns.t order by id") == drops.sql("select * from ns.copy order by id") == [(1,), (2,)]
    assert drops.mode("t") == "managed"


def test_names_that_spark_cannot_hold_are_undropped_and_given_to_tables_that_are_there(
    drops: Drops, tmp_path: Path
) -> None:
    drops.sql("create table ns.`an order` using delta as select 1 as id")
    assert drops.described("`an order`", "Type") == "MANAGED"
    drops.sql("drop table ns.`an order`")
    assert drops.sql("undrop table ns.`an order` as ns.inner.`t-1`") == [(f"{drops.ns}.inner.`t-1`",)]
    assert drops.sql("select * from ns.inner.`t-1`") == [(1,)]
    place = theirs(tmp_path / "theirs", 1)
    with pytest.raises(AnalysisException, match="schema"):
        drops.sql(f"create table ns.`th-eirs` (other string) using delta location '{place}'")
    assert drops.catalog.tables(drops.ns) == [f"{drops.ns}.inner.`t-1`"]
    drops.sql(f"create table ns.`th-eirs` using delta location '{place}'")
    drops.sql("insert into ns.`th-eirs` values (2)")
    assert drops.sql("select * from ns.`th-eirs` order by id") == [(1,), (2,)]
    assert (drops.mode("th-eirs"), drops.described("`th-eirs`", "Type")) == ("managed", "EXTERNAL")


def test_a_create_with_other_columns_leaves_no_name_behind(drops: Drops, tmp_path: Path) -> None:
    place = theirs(tmp_path / "theirs", 1)
    with pytest.raises(AnalysisException, match="schema"):
        drops.sql(f"create table ns.t (other string) using delta location '{place}'")
    assert drops.tables() == []
    assert drops.sql(f"show tables in {drops.ns}") == []
    drops.sql(f"create table ns.t (id bigint) using delta location '{place}'")
    assert drops.sql("select * from ns.t") == [(1,)]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        drops.sql(f"create table ns.t using delta location '{place}'")
    with pytest.raises(AnalysisException, match="a location has one owner"):
        drops.sql(f"create table ns.second using delta location '{place}'")
    assert drops.tables() == ["t"]


def test_properties_of_a_database_are_those_of_the_namespace(drops: Drops) -> None:
    drops.sql(f"create database {drops.ns} comment 'what we sell' with dbproperties ('team' = 'a', 'cost' = '7')")
    assert dict(drops.catalog.namespace(drops.ns).properties) == {"comment": "what we sell", "team": "a", "cost": "7"}
    drops.catalog.set_namespace_properties(drops.ns, {"cost": None})
    drops.sql(f"alter database {drops.ns} set dbproperties ('team' = 'b')")
    drops.sql(f"comment on database {drops.ns} is 'sold'")
    told = dict(drops.sql(f"describe database extended {drops.ns}"))
    assert (told["Comment"], told["Properties"]) == ("sold", "((team,b))")
    assert dict(drops.catalog.namespace(drops.ns).properties) == {"comment": "sold", "team": "b"}
    with pytest.raises(AnalysisException, match="looks like a credential"):
        drops.sql("create database " + f"{drops.ns}_secret with dbproperties ('s3.secret-access-key' = 'wJalrXUtnF')")
    assert f"{drops.ns}_secret" not in {row[0] for row in drops.sql("show databases")}


def test_a_database_has_a_location_for_its_new_tables(drops: Drops, tmp_path: Path) -> None:
    drops.sql(f"create database {drops.ns} location '{tmp_path}/of its own'")
    assert drops.catalog.namespace(drops.ns).properties["location"] == (tmp_path / "of its own").as_uri()
    drops.sql("create table ns.t using delta as select 1 as id")
    drops.catalog.create_table(f"{drops.ns}.by_python", "id long")
    assert [drops.root(name) for name in ("t", "by_python")] == [
        tmp_path / "of its own" / "t",
        tmp_path / "of its own" / "by_python",
    ]
    assert drops.described("t", "Type") == "MANAGED"
    told = dict(drops.sql(f"describe database {drops.ns}"))
    assert told["Location"] == f"file:{tmp_path}/of its own"
    drops.sql(f"alter database {drops.ns} set location '{tmp_path}/another'")
    drops.sql("create table ns.u (id int) using delta")
    assert drops.root("u") == tmp_path / "another" / "u"
    assert drops.sql("select * from ns.t") == [(1,)]


def test_cascade_drops_all_of_a_database_or_nothing(drops: Drops, tmp_path: Path) -> None:
    drops.sql("create table ns.a using delta as select 1 as id")
    drops.sql(f"create table ns.placed using delta location '{tmp_path}/placed' as select 1 as id")
    drops.sql("create table ns.inner.z using delta as select 1 as id")
    drops.sql("create table ns.kept (id int) using delta tblproperties ('drop_protection' = 'true')")
    with pytest.raises(AnalysisException, match="kept is protected.*Set it to false first"):
        drops.sql(f"drop database {drops.ns} cascade")
    assert drops.catalog.tables(drops.ns) == [f"{drops.ns}.{name}" for name in ("a", "kept", "placed", "inner.z")]
    assert drops.sql("select * from ns.a") == [(1,)]
    drops.sql("alter table ns.kept set tblproperties ('drop_protection' = 'false')")
    drops.sql(f"drop database {drops.ns} cascade")
    assert not {name for name in drops.catalog.namespaces() if name.startswith(drops.ns)}
    assert (drops.ns,) not in drops.sql("show databases")
    assert deltalake.DeltaTable(tmp_path / "placed").to_pyarrow_table().num_rows == 1
    drops.sql(f"create database {drops.ns}")
    drops.sql("create table ns.a (name string) using delta")
    assert drops.sql("select * from ns.a") == []
    drops.sql("undrop table ns.inner.z")
    assert drops.sql("select * from ns.inner.z") == [(1,)]
