"""One Spark for a run: a session of each catalog, and the same tables once for plain Delta and once for the bridge."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from bench.lab import Lab, say

ENGINES = ("sqlite", "postgres")
"""DuckDB shuts other processes out while one has it open: it is no catalog for a cluster."""
PLAIN = "delta-spark"
NAMESPACE = "bench"
ROWS_PER_REAL_FILE = 200
CONF = {
    "spark.master": "local[2]",
    "spark.app.name": "deltalakedb-bench",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    # Delta's default of 50 tasks a snapshot is made for clusters; with 2 plain Delta is at its best on two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Bridged:
    """A catalog, the session that is bridged to it, and the paths of its tables."""

    engine: str
    catalog: dl.Catalog
    spark: SparkSession
    warehouse: Path

    def name(self, table: str) -> str:
        return f"{NAMESPACE}.{table}"

    def path(self, table: str) -> str:
        return f"dldb:///file{self.catalog.table(self.name(table)).table_uri.removeprefix('file://').rstrip('/')}"


@dataclass(slots=True)
class SparkLab:
    """Everything of a run that needs the JVM; closed with the lab."""

    folder: Path
    bridged: dict[str, Bridged] = field(default_factory=dict)

    @property
    def spark(self) -> SparkSession:
        """Plain paths are plain Delta's in any of the sessions."""
        return next(iter(self.bridged.values())).spark

    def plain(self, table: str) -> Path:
        return self.folder / "plain" / table

    def folders(self, table: str) -> list[Path]:
        """Where the copies of a table are that was taken in: plain Delta's, and each catalog's."""
        return [self.plain(table), *(self.folder / engine / table for engine in self.bridged)]

    def cold(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call, after Delta has forgotten every table."""

        def forget_and_call() -> Any:
            jvm: Any = self.spark._jvm
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            return call()

        return forget_and_call

    def take_in(self, table: str, log: Path) -> None:
        """A table of files for both sides: a copy stays plain Delta's, another one becomes each catalog's own."""
        if self.plain(table).exists():
            return
        shutil.copytree(log, self.plain(table))
        for engine, side in self.bridged.items():
            copy = self.folder / engine / table
            shutil.copytree(log, copy)
            say(f"importing {table} into {engine}", partial(_import, side, copy, table))

    def close(self) -> None:
        spark = self.spark
        for side in self.bridged.values():
            side.catalog.close()
        spark.stop()


def _import(side: Bridged, copy: Path, table: str) -> None:
    side.catalog.import_table(str(copy), side.name(table))


def spark_lab(lab: Lab) -> SparkLab:
    """The run's Spark, started on first use."""
    return lab.keep("spark", lambda: say("starting Spark", lambda: _start(lab)))


def spark_with_real_files(lab: Lab) -> SparkLab:
    """The run's Spark, with a table `selective` of files that exist, each with a range of ids of its own."""
    spark, count = spark_lab(lab), lab.sizes.real_files
    source = spark.folder / "selective"
    if not source.exists():
        frame = wide_rows(spark.spark, count * ROWS_PER_REAL_FILE, files=count)
        say(f"writing {count:,} files", lambda: frame.write.format("delta").save(str(source)))
        spark.take_in("selective", source)
    return spark


def _start(lab: Lab) -> SparkLab:
    folder = lab.folder / "spark"
    folder.mkdir()
    conf = {
        **CONF,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}/derby",
        "spark.local.dir": str(folder / "local"),
    }
    made = SparkLab(folder)
    for engine in (name for name in lab.engines if name in ENGINES):
        warehouse = folder / f"lake_{engine}"
        catalog = dl.connect(lab.empty_catalog(engine, "spark").uri, warehouse=str(warehouse))
        made.bridged[engine] = Bridged(engine, catalog, dls.session(catalog, **conf), warehouse)
    if not made.bridged:
        raise SystemExit(f"the rows of Spark need a catalog on {' or '.join(ENGINES)}: --engines sqlite")
    return made


def wide_rows(spark: SparkSession, count: int, first: int = 0, files: int | None = None) -> DataFrame:
    """Rows of eight columns, made by Spark itself from a range; `files`: each with a range of ids of its own."""
    return spark.range(first, first + count, numPartitions=files).selectExpr(
        "id",
        "cast(id % 1000 as int) as qty",
        "id * 0.25D as price",
        "concat('customer-', id % 100000) as name",
        "date_add(date'2026-01-01', cast(id % 365 as int)) as day",
        "timestamp_micros(1767225600000000 + id * 1000) as ts",
        "id % 2 = 0 as even",
        "cast(id as decimal(18, 2)) as amount",
    )
