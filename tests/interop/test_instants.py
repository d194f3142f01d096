"""A commit has one time, whoever is asked: SQL, its text, its file, `deltalake` and Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from tests.interop.conftest import History

pytestmark = pytest.mark.spark


def times_ms(path: Path) -> list[int]:
    """The time that each commit gives itself."""
    commits = sorted((path / "_delta_log").glob("*.json"))
    lines = [line for commit in commits for line in commit.read_text().splitlines() if line.startswith('{"commitInfo"')]
    return [json.loads(line)["commitInfo"]["timestamp"] for line in lines]


def test_spark_and_the_files_tell_the_times_of_the_commits(history: History, spark: SparkSession) -> None:
    path, times = history.logs["commits"], times_ms(history.path)
    assert len(times) == history.head + 1
    assert times == sorted(set(times))
    files = sorted((path / "_delta_log").glob("*.json"))
    assert [file.stat().st_mtime_ns // 1_000_000 for file in files] == times
    told = spark.sql(f"describe history delta.`{path}`").selectExpr("version", "unix_millis(timestamp) as ms").collect()
    assert {row["version"]: row["ms"] for row in told} == dict(enumerate(times))


def test_deltalake_travels_by_the_times_of_the_commits(history: History) -> None:
    table = deltalake.DeltaTable(history.logs["commits"])
    for version, ms in enumerate(times_ms(history.path)):
        table.load_as_version(datetime.fromtimestamp(ms / 1000, UTC))
        assert table.version() == version
