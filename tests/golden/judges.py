"""What others say a version is: delta-spark's snapshot through its own classes, and `deltalake`'s."""

import json
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tests.fixtures.sizes import FULL
from tests.golden.state import State, commit_versions, parse_line

EVERY_VERSION = FULL


@dataclass(frozen=True)
class SparkTable:
    """A table with the states that Spark found, the times of all versions, and the number of rows that it read last."""

    path: Path
    states: dict[int, State]
    timestamps_ms: dict[int, int]
    num_rows: int


def versions_asked(path: Path) -> list[int]:
    """Where Spark, which is slow, tells the state: the first version, the last and those with a checkpoint; or all."""
    versions = commit_versions(path)
    checkpoints = (path / "_delta_log").glob("[0-9]*.checkpoint.*")
    special = {versions[0], versions[-1], *(int(file.name[:20]) for file in checkpoints)}
    return [version for version in versions if EVERY_VERSION or version in special]


def ask_spark(spark: SparkSession, path: Path) -> SparkTable:
    versions, jvm = versions_asked(path), spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    nothing = jvm.scala.Option.empty()
    snapshots = {version: log.getSnapshotAt(version, nothing, nothing, nothing, False) for version in versions}
    frames = [
        DataFrame(snapshot.stateDS().toDF(), spark).selectExpr(f"{version} as version", "to_json(struct(*)) as action")
        for version, snapshot in snapshots.items()
    ]
    states = {version: State() for version in versions}
    for row in reduce(DataFrame.union, frames).collect():  # one job for all versions
        states[row["version"]] = states[row["version"]].apply([parse_line(row["action"])])
    history = spark.sql(f"describe history delta.`{path}`").selectExpr("version", "unix_millis(timestamp) as ms")
    timestamps_ms = {row["version"]: row["ms"] for row in history.collect()}
    return SparkTable(path, states, timestamps_ms, spark.read.format("delta").load(str(path)).count())


@dataclass(frozen=True)
class DeltalakeState:
    """The part of a version that `deltalake` tells."""

    uris: set[str]
    sizes: dict[str, int]
    schema: Any
    configuration: dict[str, str]
    table_id: str
    partition_columns: list[str]
    reader_version: int
    writer_version: int


def ask_deltalake(path: Path, version: int) -> DeltalakeState:
    table = DeltaTable(path, version=version)
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    metadata, protocol = table.metadata(), table.protocol()
    return DeltalakeState(
        uris=set(table.file_uris()),
        sizes={row["path"]: row["size_bytes"] for row in adds},
        schema=json.loads(table.schema().to_json()),
        configuration=dict(metadata.configuration),
        table_id=str(metadata.id),
        partition_columns=list(metadata.partition_columns),
        reader_version=protocol.min_reader_version,
        writer_version=protocol.min_writer_version,
    )
