"""write_table: every mode, read back by delta-spark, `deltalake` and DuckDB; what does not fit is refused in time."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import (
    ConfigError,
    InvalidCommitError,
    NotWritableError,
    SchemaMismatchError,
    TableExistsError,
    UnsupportedFeatureError,
)
from tests.fixtures.readers import DuckDB
from tests.spark.compare import rows_of
from tests.spark.generated import TEXTS, VALUES

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake"), mirror_mode="inline") as opened:
        yield opened


class Lake:
    """Writes through the functions under test, and looks at the outcome with other readers' eyes."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog, root: Path) -> None:
        self.spark = spark
        self.catalog = catalog
        self.root = root / "lake"
        self.duckdb = DuckDB()

    def write(self, frame: DataFrame, name: str = "a.t", **options: Any) -> int | None:
        return dls.write_table(frame, name, catalog=self.catalog, **options)

    def frame(self, text: str) -> DataFrame:
        return self.spark.sql(text)

    def location(self, name: str = "a.t") -> Path:
        return self.root / name.replace(".", "/")

    def delta(self, name: str = "a.t") -> DataFrame:
        return self.spark.read.format("delta").load(str(self.location(name)))

    def ids(self, name: str = "a.t") -> list[int]:
        """The ids of the table, in which four readers agree."""
        ours = sorted(
            row.id for row in dls.read_table(self.spark, name, columns=["id"], catalog=self.catalog).collect()
        )
        path = str(self.location(name))
        assert sorted(row.id for row in self.delta(name).select("id").collect()) == ours
        assert sorted(deltalake.DeltaTable(path).to_pyarrow_table(columns=["id"]).column("id").to_pylist()) == ours
        assert sorted(self.duckdb.latest(self.location(name)).rows.column("id").to_pylist()) == ours
        return ours

    def folders(self, name: str = "a.t") -> set[str]:
        """Of write jobs."""
        return {path.name for path in self.location(name).glob("w-*")}


@pytest.fixture
def lake(spark: SparkSession, catalog: dl.Catalog, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(spark, catalog, tmp_path)
    yield lake
    lake.duckdb.close()


def test_a_table_is_made_appended_to_and_overwritten(lake: Lake) -> None:
    assert lake.write(lake.frame("select id, id % 2 p from range(4)"), partition_by="p") == 0
    assert lake.write(lake.frame("select id, 1L p from range(4, 6)")) == 1
    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    assert lake.write(lake.frame("select id, 7L p from range(2)"), mode="overwrite") == 2
    assert lake.ids() == [0, 1]
    assert lake.write(lake.frame("select 9L id, 7L p"), mode="ignore") == 2
    with pytest.raises(TableExistsError, match="the table a.t exists already"):
        lake.write(lake.frame("select 9L id, 7L p"), mode="error")
    assert lake.write(lake.frame("select id, 0L p from range(0)")) == 3  # no rows, as Spark does it: a version
    assert lake.ids() == [0, 1]
    entry = lake.catalog.table("a.t").history(limit=3)[1]
    assert (entry["operation"], entry["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
    assert entry["operationMetrics"]["numOutputRows"] == 2
    assert not list(lake.location().rglob("_SUCCESS"))
    assert lake.spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_every_type_and_odd_partition_values_come_back(lake: Lake) -> None:
    kinds = dict(VALUES)
    rows = []
    for place in range(len(TEXTS)):
        row: list[Any] = [place, TEXTS[place]]
        row += [values[place % len(values)] for values in kinds.values()]
        row += [None if place == 1 else (place, [TEXTS[place]]), {"k": place}, b"\x00\xff"]
        rows.append(tuple(row))
    columns = ["id bigint", "p string", *(f"`c {kind}` {kind}" for kind in kinds)]
    schema = ", ".join([*columns, "s struct<a: bigint, l: array<string>>", "m map<string, int>", "b binary"])
    frame = lake.spark.createDataFrame(rows, schema)
    lake.write(frame, partition_by=["p", "c timestamp"], properties={"delta.columnMapping.mode": "name"})
    ours = dls.read_table(lake.spark, "a.t", catalog=lake.catalog)
    assert rows_of(ours) == rows_of(lake.delta())
    expected = frame.selectExpr("*", "nullif(p, '') p2").drop("p").withColumnRenamed("p2", "p").select(*frame.columns)
    assert rows_of(ours) == rows_of(expected)


def test_timestamps_of_partitions_are_instants_whatever_the_sessions_zone(lake: Lake) -> None:
    abroad = lake.spark.newSession()
    abroad.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    # both are 02:30 of that night in Berlin
    frame = abroad.sql("select id, timestamp_seconds(1761438600 + id * 3600) at from range(2)")
    lake.write(frame, partition_by="at")
    found = dls.read_table(abroad, "a.t", catalog=lake.catalog).selectExpr("id", "unix_seconds(at)").collect()
    assert sorted(map(tuple, found)) == [(0, 1761438600), (1, 1761442200)]
    table = deltalake.DeltaTable(str(lake.location())).to_pyarrow_table()
    assert sorted(int(at.timestamp()) for at in table.column("at").to_pylist()) == [1761438600, 1761442200]


def test_replace_where_takes_partitions_or_single_rows(lake: Lake) -> None:
    lake.write(lake.frame("select id, cast(id % 3 as string) p from range(9)"), partition_by="p")
    lake.write(lake.frame("select 100L id, '1' p"), mode="overwrite", replace_where="p = '1'")
    assert lake.ids() == [0, 2, 3, 5, 6, 8, 100]
    # a condition that no statistics can judge must not take a file too many
    lake.write(lake.frame("select 200L id, '0' p"), mode="overwrite", replace_where="length(p) = 1 and p || p = '00'")
    assert lake.ids() == [2, 5, 8, 100, 200]
    lake.write(lake.frame("select 5L id, '2' p"), mode="overwrite", replace_where="id = 5 or id is null")
    assert lake.ids() == [2, 5, 8, 100, 200]
    before = lake.folders()
    with pytest.raises(PySparkException, match="not within replace_where"):
        lake.write(lake.frame("select id, '2' p from range(3)"), mode="overwrite", replace_where="id < 2")
    assert lake.folders() == before
    assert lake.ids() == [2, 5, 8, 100, 200]
    with pytest.raises(ConfigError, match="replace_where needs the mode overwrite"):
        lake.write(lake.frame("select 1L id, '2' p"), replace_where="id = 1")


def test_rows_that_stay_are_not_rewritten_where_their_identity_is_kept(lake: Lake) -> None:
    lake.write(lake.frame("select id from range(9)"), properties={"delta.enableChangeDataFeed": True})
    with pytest.raises(InvalidCommitError, match="change data feed"):
        lake.write(lake.frame("select 1L id"), mode="overwrite", replace_where="id = 1")


def test_dynamic_overwrite_takes_the_partitions_of_the_data(lake: Lake) -> None:
    lake.write(lake.frame("select id, if(id < 3, null, id % 2) p from range(8)"), partition_by="p")
    new = lake.frame("select * from values (10L, null), (11L, 1L), (12L, 5L) as t(id, p)")
    assert lake.write(new, mode="overwrite", partition_overwrite_mode="dynamic") == 1
    assert lake.ids() == [4, 6, 10, 11, 12]
    with pytest.raises(ConfigError, match="exclude each other"):
        lake.write(new, mode="overwrite", partition_overwrite_mode="dynamic", replace_where="p = 1")


def test_schemas_merge_and_are_overwritten(lake: Lake) -> None:
    lake.write(lake.frame("select id, struct(id a) s, array(struct(id x)) l from range(2)"))
    wider = lake.frame("select 2L id, struct('b' b, 1L a) s, array(struct(1L y, 2L x)) l, 'new' `new col`")
    with pytest.raises(SchemaMismatchError, match=r"table a.t: column 's.b' is in the data and not in the table"):
        lake.write(wider)
    assert lake.write(wider.withColumnRenamed("new col", "new"), merge_schema=True) == 1
    found = {row.id: row for row in lake.delta().collect()}
    assert (found[0].s.a, found[0].s.b, found[0].new) == (0, None, None)
    assert (found[2].s.a, found[2].s.b, found[2].l[0].x, found[2].l[0].y) == (1, "b", 2, 1)
    lake.write(lake.frame("select 3L ID"))  # what is not there is null; names do not care about case
    assert lake.ids() == [0, 1, 2, 3]
    assert lake.write(lake.frame("select 'x' p, 1 id"), mode="overwrite", overwrite_schema=True, partition_by="p") == 3
    assert lake.delta().schema.simpleString() == "struct<p:string,id:int>"
    assert lake.ids() == [1]


def test_values_are_cast_as_spark_assigns_them(lake: Lake) -> None:
    lake.write(lake.frame("select 1L id, 1S small, 'x' t, 1.5D d, date'2026-01-01' day, cast(1 as decimal(5,2)) dec"))
    given = "select 2 id, 7L small, 8 t, 1 d, timestamp'2026-01-02 10:00:00' day, 123 dec"
    lake.write(lake.frame(given))
    row = lake.delta().where("id = 2").first()
    assert row is not None
    assert tuple(row) == (2, 7, "8", 1.0, date(2026, 1, 2), Decimal("123.00"))
    relaxed = lake.spark.newSession()
    relaxed.conf.set("spark.sql.ansi.enabled", "false")
    for bad in ("select 3L id, 70000L small", "select 3L id, 12345 dec"):
        with pytest.raises(PySparkException, match="a value of the data does not fit"):
            lake.write(relaxed.sql(bad))
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 'x' id", "column 'id': the table has long, the data has string"),
        ("select 1L id, array(1) s", "column 's': the table has struct<a:integer>, the data has array<integer>"),
        ("select 1L id, struct(true a) s", "column 's.a': the table has integer, the data has boolean"),
        ("select 1L id, 2 extra", "column 'extra' is in the data and not in the table"),
        ("select 1 s", "column 'id' is not in the data, and the table does not let it be null"),
        ("select 1L id, interval 1 day d", "Spark's interval day is no type of Delta"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_runs(lake: Lake, query: str, message: str) -> None:
    lake.catalog.create_table("a.t", "id long not null, s struct<a: int>")
    with pytest.raises(SchemaMismatchError, match="table a.t") as caught:
        lake.write(lake.frame(query), merge_schema="interval" in query)
    assert message in str(caught.value)
    assert lake.folders() == set()


def test_a_null_in_a_column_that_allows_none_ends_the_job(lake: Lake) -> None:
    lake.catalog.create_table("a.t", "id long not null")
    with pytest.raises(PySparkException, match="the table does not let it be null"):
        lake.write(lake.frame("select if(id = 3, null, id) id from range(5)"))
    assert lake.folders() == set()
    assert lake.write(lake.frame("select if(id = 9, null, id) id from range(5)")) == 1
    assert lake.ids() == [0, 1, 2, 3, 4]


def test_a_failed_task_commits_nothing_and_leaves_nothing(lake: Lake) -> None:
    lake.write(lake.frame("select id from range(3)"))
    before = lake.folders()
    with pytest.raises(PySparkException) as caught:
        lake.write(lake.frame("select if(id = 900, raise_error('boom'), id) id from range(1000)"))
    assert "boom" in str(caught.value)
    assert any("nothing was committed" in note for note in caught.value.__notes__)
    assert lake.folders() == before
    assert lake.catalog.table("a.t").version() == 0
    with pytest.raises(PySparkException):
        lake.write(lake.frame("select raise_error('boom') || id x from range(1)"), "a.new")
    assert lake.catalog.tables() == ["a.t"]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_tables_are_written_with_physical_names_and_ids(lake: Lake, mode: str) -> None:
    frame = lake.frame("select id, struct(id `a,b`) `s t`, 'x' p from range(2)")
    lake.write(frame, partition_by="p", properties={"delta.columnMapping.mode": mode})
    lake.write(lake.frame("select 5L id, struct(2L `a,b`, 3L c) `s t`, 'y' p"), merge_schema=True)
    assert rows_of(lake.delta()) == rows_of(dls.read_table(lake.spark, "a.t", catalog=lake.catalog))
    assert sorted(row[0] for row in lake.delta().where("`s t`.c = 3 or p = 'x'").collect()) == [0, 1, 5]
    (pruned,) = [dls.read_table(lake.spark, "a.t", where="`s t`.`a,b` = 2", catalog=lake.catalog)]
    assert len(pruned.inputFiles()) == 1
    assert [row.id for row in pruned.collect()] == [5]


def test_what_the_data_plane_does_not_compute_is_refused(lake: Lake) -> None:
    path = lake.root.parent / "constrained"
    lake.spark.sql(f"create table delta.`{path}` (id bigint, g bigint generated always as (id + 1)) using delta")
    lake.catalog.import_table(path, "a.generated")
    with pytest.raises(UnsupportedFeatureError, match="generated column"):
        lake.write(lake.frame("select 1L id"), "a.generated")


def test_followers_and_append_only_tables_say_no(lake: Lake) -> None:
    path = lake.root.parent / "followed"
    lake.frame("select id from range(1)").write.format("delta").save(str(path))
    lake.catalog.attach_table(path, "a.follower")
    with pytest.raises(NotWritableError, match="is a follower"):
        lake.write(lake.frame("select 1L id"), "a.follower")
    lake.write(lake.frame("select 1L id"), properties={"delta.appendOnly": True})
    with pytest.raises(InvalidCommitError, match="append-only"):
        lake.write(lake.frame("select 1L id"), mode="overwrite")
    with pytest.raises(SchemaMismatchError, match="does not match table partitioning: expected: \\[\\]"):
        lake.write(lake.frame("select 1L id"), partition_by="id")
