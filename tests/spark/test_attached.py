"""The bridge on tables whose history Spark did not write: attached, collected, large, or written by Python alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.log.protocol.actions import AddFile, AppTransaction
from tests.spark.judging import assert_rows
from tests.spark.lake import Lake, new_lake

COLUMNS = "id bigint, city string, amount double"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    assert spark.version
    folder = tmp_path_factory.mktemp("attached")
    settings: dict[str, Any] = {"retention_log_days": 0, "retention_deleted_file_days": 0}
    with dl.connect(folder / "catalog.db", warehouse=str(folder / "lake"), **settings) as catalog:
        yield new_lake(catalog, "attached")


def overlay(lake: Lake, table: str) -> list[str]:
    return sorted(path.name for path in (lake.root(table) / "_dldb" / "log").glob("*.checkpoint*"))


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(row.id for row in lake.spark.table(lake.name(table)).select("id").collect())


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "city": ["p"] * len(numbers), "amount": [1.0] * len(numbers)})


def test_a_table_attached_from_a_checkpoint_is_read_and_written(lake: Lake, tmp_path: Path) -> None:
    """Its first commits are gone from the files, and SQL begins with the checkpoint."""
    path = tmp_path / "plain"
    lake.spark.sql(
        f"create table delta.`{path}` ({COLUMNS}) using delta tblproperties ('delta.checkpointInterval'='3')"
    )
    for number in range(4):
        lake.spark.sql(f"insert into delta.`{path}` values ({number}, 'a', {number}.5)")
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    older = {file.name for file in (path / "_delta_log").iterdir()}
    lake.catalog.import_table(str(path), lake.name("imported"))
    promoted = lake.catalog.table(lake.name("imported")).version()
    stage = lake.stage("imported", tmp_path)
    assert ids(lake, "imported") == [0, 1, 2, 3]
    stage.sql("insert into {t} values (4, 'b', 4.5)")
    stage.sql("merge into {t} t using (select 1L as id) s on t.id = s.id when matched then delete")
    stage.sql("optimize {t}")
    stage.refused("select * from {t} version as of 0", "version")
    versions = lake.judge.check(lake.name("imported"), stage, fenced_from=promoted, older=older, seen_from=4)
    assert versions == list(range(3, promoted + 4))
    assert_rows(lake.spark.table(stage.table).toArrow(), [(0, "a", 0.5), (2, "a", 2.5), (3, "a", 3.5), (4, "b", 4.5)])


def test_a_table_whose_history_was_collected_is_read_and_written(lake: Lake, tmp_path: Path) -> None:
    stage = lake.stage("collected", tmp_path)
    stage.sql(f"create table {{t}} ({COLUMNS}) using delta")
    for number in range(4):
        stage.sql(f"insert into {{t}} values ({number}, 'a', 1.0)")
    stage.sql("delete from {t} where id < 2")
    report = lake.catalog.gc(lake.name("collected"))
    assert report.rows_removed > 0
    kept = min(entry["version"] for entry in lake.catalog.history(lake.name("collected")))
    assert ids(lake, "collected") == [2, 3]
    stage.sql("insert into {t} values (9, 'b', 9.0)")
    assert lake.spark._jvm is not None
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert ids(lake, "collected") == [2, 3, 9], "opened anew, from what is left of the log"
    head = lake.catalog.table(lake.name("collected")).version()
    # The first version is kept as a state without its commit, which Delta wants to see before it travels there.
    for version in range(kept + 1, head + 1):
        wanted = {head: [2, 3, 9], head - 1: [2, 3]}.get(version, list(range(version)))
        assert sorted(row[0] for row in stage.sql(f"select id from {{t}} version as of {version}")) == wanted
    stage.sql("update {t} set amount = 0 where id = 2")
    lake.judge.check_mirror(lake.name("collected"), lake.root("collected"))


def test_a_table_of_many_files_is_opened_planned_and_appended_to(lake: Lake, tmp_path: Path) -> None:
    """Files that nobody opens need not exist: planning reads their statistics."""
    files = 2_000
    lake.catalog.create_table(lake.name("many"), COLUMNS)
    with lake.catalog.begin() as tx:
        tx.commit_actions(lake.name("many"), [fake_file(number) for number in range(files)])
    stage = lake.stage("many", tmp_path)
    planned = lake.spark.table(stage.table).where("id between 5000 and 5199").inputFiles()
    assert sorted(name.rpartition("/")[2] for name in planned) == ["file-50.parquet", "file-51.parquet"]
    stage.sql("insert into {t} values (-1, 'new', 1.0)")
    assert stage.sql("select city from {t} where id = -1") == [("new",)]
    assert stage.sql("select count(*) from {t}") == [(files * 100 + 1,)], "from statistics alone"
    stage.sql("delete from {t} where id = -1")
    assert lake.catalog.table(lake.name("many")).files(["path"]).num_rows == files
    lake.judge.check_mirror(lake.name("many"), lake.root("many"))


def fake_file(number: int) -> AddFile:
    low, high = number * 100, number * 100 + 99
    stats = {
        "numRecords": 100,
        "minValues": {"id": low, "city": "a", "amount": 0.5},
        "maxValues": {"id": high, "city": "z", "amount": 9.5},
        "nullCount": {"id": 0, "city": 0, "amount": 0},
    }
    return AddFile(f"file-{number}.parquet", {}, 1000, 1_700_000_000_000, True, json.dumps(stats))


def test_after_many_commits_of_python_spark_starts_from_a_checkpoint_of_ours(lake: Lake, tmp_path: Path) -> None:
    """Spark itself writes none for commits of others: without one it would read them all, each time it starts."""
    name, commits = lake.name("busy"), 105
    with lake.catalog.begin() as tx:
        tx.create_table(name, COLUMNS)
        tx.write(name, rows(1, 2), mode="append")
    for number in range(commits):
        with lake.catalog.begin() as tx:
            tx.commit_actions(name, [AppTransaction("busy", number)])
    stage = lake.stage("busy", tmp_path)
    assert ids(lake, "busy") == [1, 2]
    assert overlay(lake, "busy") != []
    stage.sql("insert into {t} values (3, 's', 3.0)")
    with lake.catalog.begin() as tx:
        tx.write(name, rows(4), mode="append")
    stage.sql("update {t} set amount = 0 where id = 4")
    assert ids(lake, "busy") == [1, 2, 3, 4]
    for version in (0, 1, commits // 2, commits + 1):
        wanted = 0 if version == 0 else 2
        assert stage.sql(f"select count(*) from {{t}} version as of {version}") == [(wanted,)]
    lake.judge.check_mirror(name, lake.root("busy"))
