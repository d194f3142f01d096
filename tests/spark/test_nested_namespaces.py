"""Tables of nested namespaces by their names in Spark SQL."""

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from tests.spark.naming import NOT_FOUND, Names


def test_tables_of_nested_namespaces_are_read_and_written(names: Names) -> None:
    nested = f"{names.ns}.inner.t"
    with names.catalog.begin() as tx:
        tx.create_table(nested, pa.schema([("id", pa.int64())]))
        tx.write(nested, pa.table({"id": [1]}), mode="append")
    names.sql(f"insert into {nested} values (2)")
    assert names.sql(f"select * from {nested} order by id") == [(1,), (2,)]
    assert len(names.sql(f"describe history {nested}")) == 3
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql(f"select * from {names.ns}.inner.nothing")


def test_tables_of_nested_namespaces_are_created_renamed_listed_and_dropped(names: Names) -> None:
    names.sql("create table ns.inner.t (id bigint) using delta")
    names.sql("insert into ns.inner.t values (1)")
    names.sql("create table spark_catalog.ns.inner.`x/y` using delta as select 2 as id")
    names.sql(
        "create or replace table ns.inner.`x/y` using delta as with three as (select 3 as id) select * from three"
    )
    assert names.sql("select t.id, x.id from ns.inner.t t, ns.inner.`x/y` x") == [(1, 3)]
    names.spark.range(2).writeTo(names.name("inner.frame")).using("delta").create()
    names.sql("create table if not exists ns.inner.t (other string) using delta")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        names.sql("create table ns.inner.t (id bigint) using delta")
    names.sql("alter table ns.inner.t rename to ns.inner.deeper.u")
    names.sql("alter table ns.inner.deeper.u rename to ns.u")
    names.sql("alter table ns.u rename to ns.inner.u")
    assert names.registered() == ["inner.`x/y`", "inner.frame", "inner.u"]
    assert sorted(row[1] for row in names.sql(f"show tables in {names.ns}.inner")) == ["frame", "u", "x/y"]
    names.sql(f"use {names.ns}.inner")
    assert names.sql("select id from u") == [(1,)]
    assert len(names.sql("show tables")) == 3
    names.sql("use default")
    names.sql("drop table ns.inner.u")
    names.sql("drop table if exists ns.inner.u")
    with pytest.raises(AnalysisException, match=NOT_FOUND):
        names.sql("drop table ns.inner.u")
    names.sql(f"create namespace {names.ns}.inner.empty")
    names.sql(f"drop namespace {names.ns}.inner.empty")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        names.sql(f"drop namespace {names.ns}.inner")
    names.sql("drop table ns.inner.frame purge")
    assert names.registered() == ["inner.`x/y`"]
    with pytest.raises(AnalysisException, match="REQUIRES_SINGLE_PART_NAMESPACE|TOO_MANY_NAME_PARTS"):
        names.sql("create table ns.inner.plain (id int) using parquet")
