"""SHALLOW CLONE names the files of a table by their own addresses, never by those of the bridge."""

import uuid
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.fixtures.readers import Deltalake, DeltalakePyarrow, DuckDB, Polars, Refused

ROWS = [(0, "x y"), (2, "x y"), (3, "x y")]


class Clones:
    """A table with a partition and a deletion vector, `ns.t`."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog) -> None:
        self.spark, self.catalog, self.ns = spark, catalog, f"clones_{uuid.uuid4().hex[:8]}"
        self.sql(
            "create table ns.t (id bigint, p string) using delta partitioned by (p) "
            "tblproperties ('delta.enableDeletionVectors' = 'true')"
        )
        self.sql("insert into ns.t select /*+ coalesce(1) */ id, 'x y' from range(4)")
        self.sql("delete from ns.t where id = 1")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text.replace("ns.", f"{self.ns}.")).collect()]

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return self.sql(f"select id, p from {name} order by id")

    def root(self, table: str) -> Path:
        return Path(self.catalog.table(f"{self.ns}.{table}").table_uri.removeprefix("file://"))


@pytest.fixture(scope="module")
def clones(spark: SparkSession, bridge_catalog: dl.Catalog) -> Clones:
    return Clones(spark, bridge_catalog)


def paths_of(folder: Path) -> str:
    return "".join(one.read_text() for one in (folder / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("name", ["c", "inner.`c-1`"])
def test_a_clone_is_a_table_of_the_catalog_that_plain_spark_and_python_read(clones: Clones, name: str) -> None:
    clones.sql(f"create table ns.{name} shallow clone ns.t")
    assert clones.rows(f"ns.{name}") == ROWS
    table = clones.catalog.table(f"{clones.ns}.{name}")
    assert [tuple(row.values()) for row in table.to_pyarrow_table().sort_by("id").to_pylist()] == ROWS
    clones.catalog.mirror.flush(30)
    assert "dldb:" not in paths_of(clones.root(name))
    plain = clones.spark.read.format("delta").load(str(clones.root(name)))
    assert sorted(map(tuple, plain.select("id", "p").collect())) == ROWS
    assert clones.catalog.validate(f"{clones.ns}.{name}").drifts == ()
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        clones.sql(f"create table ns.{name} shallow clone ns.t")
    clones.sql(f"create table if not exists ns.{name} shallow clone ns.t")


@pytest.mark.slow
def test_a_clone_lives_on_its_own(clones: Clones, tmp_path: Path) -> None:
    clones.sql(f"create table ns.own shallow clone ns.t version as of 1 location '{tmp_path}/own'")
    assert len(clones.rows("ns.own")) == 4
    clones.sql("update ns.own set id = 9 where id = 1")
    clones.sql("delete from ns.own where id = 0")
    assert [row[0] for row in clones.rows("ns.own")] == [2, 3, 9]
    clones.sql("restore table ns.own to version as of 0")
    assert [row[0] for row in clones.rows("ns.own")] == [0, 1, 2, 3]
    clones.sql("vacuum ns.own")
    clones.sql("create table ns.again shallow clone ns.own")
    assert [row[0] for row in clones.rows("ns.again")] == [0, 1, 2, 3]
    assert clones.rows("ns.t") == ROWS
    with clones.catalog.begin() as tx:
        tx.delete(f"{clones.ns}.again", "id = 3")
    assert [row[0] for row in clones.rows("ns.again")] == [0, 1, 2]


def test_a_clone_at_a_path_is_a_plain_table_of_real_files(clones: Clones, tmp_path: Path) -> None:
    clones.sql(f"create table delta.`{tmp_path}/plain` shallow clone ns.t")
    assert clones.rows(f"delta.`{tmp_path}/plain`") == ROWS
    assert "dldb:" not in paths_of(tmp_path / "plain")
    jvm = clones.spark._jvm
    assert jvm is not None
    table = jvm.io.delta.tables.DeltaTable.forName(clones.spark._jsparkSession, f"{clones.ns}.t")
    table.clone(f"{tmp_path}/by_program", True, False)
    assert clones.rows(f"delta.`{tmp_path}/by_program`") == ROWS
    clones.sql(f"insert into delta.`{tmp_path}/plain` values (7, 'z')")
    assert deltalake.DeltaTable(tmp_path / "plain").version() == 1


def test_a_transaction_clones_what_it_wrote(clones: Clones) -> None:
    first, second = f"{clones.ns}.staged", f"{clones.ns}.cloned"
    with dls.begin(clones.spark) as tx:
        tx.sql(f"create table {{{first}}} using delta as select 1L as id")
        tx.sql(f"create table {{{second}}} shallow clone {{{first}}}")
    assert clones.sql("select * from ns.cloned") == [(1,)]
    clones.catalog.mirror.flush(30)
    root = clones.root("cloned")
    assert "dldb:" not in paths_of(root)
    # As docs/spark.md says: absolute paths are in the protocol, and not in every reader.
    assert Deltalake().latest(root).rows.to_pylist() == [{"id": 1}]
    for reader in (DeltalakePyarrow(), DuckDB(), Polars()):
        with pytest.raises(Refused):
            reader.latest(root)
