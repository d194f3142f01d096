"""The pure PySpark functions against delta-spark in one run: a selective read of real files, and a large append."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalakedb as dl
import deltalakedb.spark as dls
from bench.measure import Timing, time_in_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES, ROWS_A_FILE, CHOSEN = 2_000, 500, 20
APPEND_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Versus:
    """One thing done in two ways, in milliseconds."""

    name: str
    ours: Timing
    theirs: Timing

    @property
    def ratio(self) -> float:
        """How many times as long delta-spark takes."""
        return self.theirs.median_ms / self.ours.median_ms

    def __str__(self) -> str:
        ours, theirs = self.ours.median_ms, self.theirs.median_ms
        return f"{self.name}: ours {ours:.0f} ms, delta-spark {theirs:.0f} ms, {self.ratio:.2f}x"


def make_files(spark: SparkSession, folder: Path, files: int = FILES) -> Path:
    """A table of so many files by delta-spark, each with a range of ids of its own."""
    rows = spark.range(0, files * ROWS_A_FILE, numPartitions=files)
    rows.selectExpr("id", "id % 97 k", "concat('name ', id) name", "id * 0.5D amount").write.format("delta").save(
        str(folder)
    )
    return folder


def selective_read(spark: SparkSession, catalog: dl.Catalog, name: str, location: Path) -> list[Versus]:
    """20 of 2,000 files: planned, and read to the end; delta-spark warm, and with its caches emptied."""
    where = f"id >= {100 * ROWS_A_FILE} and id < {(100 + CHOSEN) * ROWS_A_FILE}"

    def planned() -> DataFrame:
        return dls.read_table(spark, name, where=where, catalog=catalog)

    def delta() -> DataFrame:
        return spark.read.format("delta").load(str(location)).where(where)

    def count_files(frame: DataFrame) -> int:
        return len(frame.inputFiles())

    def total(frame: DataFrame) -> Any:
        return frame.selectExpr("count(*)", "sum(amount)", "max(name)").collect()

    def cold(frame: Callable[[], DataFrame], use: Callable[[DataFrame], Any]) -> Callable[[], Any]:
        def call() -> Any:
            spark.catalog.clearCache()
            _forget_logs(spark)
            return use(frame())

        return call

    found = []
    for label, use in (("plan of 20 of 2,000 files", count_files), ("read of 20 of 2,000 files", total)):
        warm = time_in_turns({"ours": lambda u=use: u(planned()), "delta": lambda u=use: u(delta())}, 7)  # type: ignore[misc]
        assert warm["ours"].answer == warm["delta"].answer, "both see the same"
        found.append(Versus(f"{label}, warm", warm["ours"], warm["delta"]))
        chilly = time_in_turns({"ours": lambda u=use: u(planned()), "delta": cold(delta, use)}, 3)  # type: ignore[misc]
        found.append(Versus(f"{label}, cold", chilly["ours"], chilly["delta"]))
    return found


def _forget_logs(spark: SparkSession) -> None:
    """Empty Delta's cache of snapshots: the next read is that of a new process, but for compiled code."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def append(spark: SparkSession, catalog: dl.Catalog, folder: Path, rows: int = APPEND_ROWS, rounds: int = 5) -> Versus:
    """2M rows of 8 columns appended, in turns: into a table of the catalog, and by delta-spark into a plain one."""
    data = spark.range(0, rows, numPartitions=8).selectExpr(
        "id",
        "cast(id % 1000 as int) k",
        "concat('name ', id % 10000) name",
        "id * 0.5D amount",
        "cast(id % 100000 as decimal(12,2)) price",
        "timestamp_micros(1700000000000000 + id * 1000) at",
        "date_add(date'2026-01-01', cast(id % 365 as int)) day",
        "id % 7 = 0 flag",
    )
    plain, ours, theirs = str(folder / "plain"), [], []
    dls.write_table(data.limit(1), "bench.appended", mode="ignore", catalog=catalog)
    data.limit(1).write.format("delta").mode("append").save(plain)
    for place in range(rounds + 1):
        began = time.perf_counter()
        dls.write_table(data, "bench.appended", catalog=catalog)
        middle = time.perf_counter()
        data.write.format("delta").mode("append").save(plain)
        ended = time.perf_counter()
        if place:  # the first is a warm-up
            ours.append((middle - began) * 1000)
            theirs.append((ended - middle) * 1000)
    return Versus(f"append of {rows:,} rows x 8 columns", _timing(ours), _timing(theirs))


def _timing(taken: list[float]) -> Timing:
    return Timing(statistics.median(taken), min(taken), len(taken))
