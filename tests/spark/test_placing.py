"""Tables that Spark creates, replaces or overwrites at a location: as plain Delta does, or refused without effect."""

import uuid
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameWriter, SparkSession

import deltalakedb as dl


class Places:
    """A namespace and a folder of the test's own, written `ns` and `DIR` in statements."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog, folder: Path) -> None:
        self.spark, self.catalog, self.folder, self.ns = spark, catalog, folder, f"places_{uuid.uuid4().hex[:8]}"

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        filled = text.replace("ns.", f"{self.ns}.").replace("DIR", str(self.folder))
        return [tuple(row) for row in self.spark.sql(filled).collect()]

    def theirs(self, name: str, *values: int) -> Path:
        """A Delta table of another writer."""
        rows = pa.table({"id": pa.array(values, pa.int64())})
        deltalake.write_deltalake(str(self.folder / name), rows, mode="append")
        return self.folder / name

    def writer(self, rows: int) -> DataFrameWriter:
        return self.spark.range(rows).coalesce(1).write.format("delta")

    def tables(self) -> list[str]:
        return [str(one).removeprefix(f"{self.ns}.") for one in self.catalog.tables(self.ns)]

    def at(self, folder: Path) -> list[int]:
        """What an unmodified reader finds in a folder."""
        self.catalog.mirror.flush(30)
        ids: list[int] = deltalake.DeltaTable(folder).to_pyarrow_table().column("id").to_pylist()
        return sorted(ids)


@pytest.fixture
def places(spark: SparkSession, bridge_catalog: dl.Catalog, tmp_path: Path) -> Places:
    return Places(spark, bridge_catalog, tmp_path)


@pytest.mark.parametrize("name", ["t", "inner.`odd-1`"])
def test_an_overwriting_save_takes_the_place_that_is_named(places: Places, name: str) -> None:
    full, place = f"{places.ns}.{name}", places.theirs("theirs", 7, 8)
    places.writer(3).mode("overwrite").option("path", str(place)).saveAsTable(full)  # a Delta table of others
    assert sorted(row.id for row in places.spark.table(full).collect()) == places.at(place) == [0, 1, 2]
    assert [row.id for row in places.spark.read.option("versionAsOf", 0).table(full).sort("id").collect()] == [7, 8]
    places.writer(2).mode("overwrite").option("path", str(place)).saveAsTable(full)  # its own
    assert places.at(place) == [0, 1]
    other = places.folder / "other"
    with pytest.raises(AnalysisException, match="DELTA_TABLE_LOCATION_MISMATCH"):
        places.writer(5).mode("overwrite").option("path", str(other)).saveAsTable(full)
    assert (places.at(place), other.exists()) == ([0, 1], False)
    places.writer(1).mode("overwrite").option("path", str(other)).saveAsTable(f"{places.ns}.new")  # nobody's
    assert places.at(other) == [0]


def test_other_modes_create_at_a_free_place_and_never_touch_a_table_that_is_there(places: Places) -> None:
    for mode in ("append", "ignore", "errorifexists"):
        name, place = f"{places.ns}.{mode}", places.folder / mode
        places.writer(2).mode(mode).option("path", str(place)).saveAsTable(name)
        assert places.at(place) == [0, 1]
        theirs = places.theirs(f"{mode}_theirs", 7)
        with pytest.raises(AnalysisException, match="a Delta table is there already.*without AS SELECT"):
            places.writer(2).mode(mode).option("path", str(theirs)).saveAsTable(f"{name}_new")
        assert places.at(theirs) == [7]
    elsewhere = str(places.folder / "elsewhere")
    places.writer(1).mode("append").option("path", elsewhere).saveAsTable(f"{places.ns}.append")
    places.writer(1).mode("ignore").option("path", elsewhere).saveAsTable(f"{places.ns}.ignore")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        places.writer(1).option("path", elsewhere).saveAsTable(f"{places.ns}.errorifexists")
    found = {name: places.at(places.folder / name) for name in ("append", "ignore", "errorifexists")}
    assert found == {"append": [0, 0, 1], "ignore": [0, 1], "errorifexists": [0, 1]}
    assert not Path(elsewhere).exists()
    assert places.tables() == ["append", "errorifexists", "ignore"]


def test_create_or_replace_at_a_delta_table_gives_it_the_name(places: Places) -> None:
    replaced, named = places.theirs("replaced", 1), places.theirs("named", 2)
    places.sql("create or replace table ns.a using delta location 'DIR/replaced' as select 5L as id")
    assert places.sql("select * from ns.a") == [(5,)]
    assert places.at(replaced) == [5]
    places.sql("create or replace table ns.b (id bigint) using delta location 'DIR/named'")
    assert places.sql("select * from ns.b") == [(2,)], "its columns are the same: it is kept as it is"
    places.theirs("other", 3)
    with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_SCHEME_MISMATCH"):
        places.sql("create or replace table ns.c (name string) using delta location 'DIR/other'")
    assert places.tables() == ["a", "b"], "a statement that failed gives no name"
    assert places.at(named) == [2]
    places.theirs("other", 4)
    with pytest.raises(AnalysisException, match="is there already"):
        places.sql("create table ns.c using delta location 'DIR/other' as select 5L as id")
    places.sql("create table ns.d using delta location 'DIR/other'")
    assert places.sql("select * from ns.d order by id") == [(3,), (4,)]


def test_a_table_is_replaced_where_it_is_and_nowhere_else(places: Places) -> None:
    places.sql("create table ns.placed using delta location 'DIR/one' as select 1L as id")
    places.sql("create table ns.ours using delta as select 1L as id")
    for name in ("placed", "ours"):
        for statement in ("create or replace table ns.{} (id bigint) using delta location 'DIR/other'",
                          "create or replace table ns.{} using delta location 'DIR/other' as select 2L as id",
                          "replace table ns.{} using delta location 'DIR/other' as select 2L as id"):  # fmt: skip
            with pytest.raises(AnalysisException, match="DELTA_TABLE_LOCATION_MISMATCH") as refused:
                places.sql(statement.format(name))
            assert f"`file:{places.folder}/other`" in str(refused.value)
        assert places.sql(f"select * from ns.{name}") == [(1,)]
    assert not (places.folder / "other").exists()
    places.sql("create or replace table ns.placed using delta location 'DIR/one' as select 3L as id")
    assert places.at(places.folder / "one") == [3]


def test_a_table_is_restored_to_before_it_was_replaced(places: Places) -> None:
    places.sql("create table ns.t using delta as select 1L as id")
    places.sql("create or replace table ns.t using delta as select 'a' as name")
    places.sql("restore table ns.t to version as of 0")
    places.sql("insert into ns.t values (2)")
    assert places.sql("select * from ns.t order by id") == [(1,), (2,)]
    assert sorted(places.catalog.table(f"{places.ns}.t").to_pyarrow_table().column("id").to_pylist()) == [1, 2]


def test_column_mapping_is_dropped_from_a_table(places: Places) -> None:
    places.sql(
        "create table ns.t (id bigint, p string) using delta tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    places.sql("insert into ns.t values (1, 'a')")
    places.sql("alter table ns.t rename column p to q")
    places.sql("alter table ns.t drop feature columnMapping")
    places.sql("insert into ns.t values (2, 'b')")
    assert places.sql("select q, id from ns.t order by id") == [("a", 1), ("b", 2)]
    table = places.catalog.table(f"{places.ns}.t")
    assert "columnMapping" not in (table.protocol().writer_features or ())
    assert table.to_pyarrow_table().sort_by("id").to_pylist() == [{"id": 1, "q": "a"}, {"id": 2, "q": "b"}]
    assert places.sql("select * from ns.t version as of 1") == [(1, "a")]


@pytest.mark.parametrize("method", ["create", "createIfNotExists", "createOrReplace", "replace"])
def test_delta_table_builders_take_paths_of_the_bridge(places: Places, method: str) -> None:
    spark, jvm = places.spark, places.spark._jvm
    assert jvm is not None

    def build(path: str, name: str | None = None) -> None:
        builder = getattr(jvm.io.delta.tables.DeltaTable, method)(spark._jsparkSession).location(path)
        (builder if name is None else builder.tableName(name)).addColumn("id", "bigint").execute()

    inside = f"dldb:///file{places.catalog.config.warehouse}/{places.ns}/built"
    outside = f"dldb:///file{places.folder}/built"
    if method == "replace":
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            build(inside)
        places.writer(3).save(inside)
        places.writer(3).option("path", f"{places.folder}/named").saveAsTable(f"{places.ns}.named")
    build(inside)
    build(f"dldb:///file{places.folder}/named", f"{places.ns}.named")
    if method == "create":
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            build(inside)
    else:
        build(inside)
        assert spark.read.format("delta").load(inside).count() == 0
    if method != "replace":
        build(outside)  # no table of the catalog: plain Delta
        assert (places.folder / "built" / "_delta_log").exists()
    assert places.tables() == ["built", "named"]


@pytest.mark.parametrize("path", ["a%20b", "back\\\\slash"])
def test_a_place_that_other_readers_look_for_elsewhere_is_refused(places: Places, path: str) -> None:
    with pytest.raises(AnalysisException, match="other Delta readers would look in another folder"):
        places.sql(f"create table ns.t (id int) using delta location 'DIR/{path}'")
    assert places.tables() == []
    assert not list(places.folder.iterdir())
