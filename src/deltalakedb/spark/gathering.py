"""Reads the footers of many files at once: by threads of the driver, and beyond some thousand files by executors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.data.footers import FooterStats
from deltalakedb.data.storage import DataStorage
from deltalakedb.exceptions import DeltaError
from deltalakedb.storage import open_data_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DRIVER_FILES: Final = 2_000
"""So many the driver reads by itself, in a third of a second on a disk; to start Python on executors takes longer."""
_READERS: Final = 16
_FILES_A_TASK: Final = 500
_SCHEMA: Final = "place bigint, num_rows bigint, stats string"


class Gathered(NamedTuple):
    """What a footer says."""

    num_rows: int
    stats: str


def gather(
    spark: SparkSession,
    paths: Sequence[str],
    stats: FooterStats,
    location: str,
    options: Mapping[str, str] | None,
    *,
    driver_files: int = DRIVER_FILES,
) -> list[Gathered]:
    """The number of rows and the statistics of each of a table's files, in their order."""
    if len(paths) > driver_files:
        try:
            return _by_executors(spark, paths, stats, location, dict(options or {}))
        except Exception as error:  # an executor may have no Python, or not this package in it; the driver has both
            logger.warning("executors cannot read the footers of %s, the driver does: %.200s", location, error)
    storage = open_data_storage(location, options)
    if len(paths) < 3:
        return [_read(storage, path, stats) for path in paths]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="deltalakedb-footer") as pool:
        return list(pool.map(lambda path: _read(storage, path, stats), paths))


def _read(storage: DataStorage, path: str, stats: FooterStats) -> Gathered:
    try:
        with storage.open(path) as opened:  # without its size: only the end of it is wanted
            footer = pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        raise DeltaError(f"cannot read {path} of {storage.location}, which Spark wrote: {error}") from error
    return Gathered(footer.num_rows, stats.of(footer))


def _by_executors(
    spark: SparkSession, paths: Sequence[str], stats: FooterStats, location: str, options: dict[str, str]
) -> list[Gathered]:
    named = pa.table({"place": pa.array(range(len(paths)), pa.int64()), "path": pa.array(paths, pa.string())})
    frame = spark.createDataFrame(named).repartition(max(2, len(paths) // _FILES_A_TASK))
    found = frame.mapInArrow(_reader(stats, location, options), _SCHEMA).collect()
    gathered = {row["place"]: Gathered(row["num_rows"], row["stats"]) for row in found}
    return [gathered[place] for place in range(len(paths))]


def _reader(
    stats: FooterStats, location: str, options: dict[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_data_storage(location, options)
        with ThreadPoolExecutor(_READERS) as pool:
            for batch in batches:
                files = list(pool.map(lambda path: _read(storage, path, stats), batch.column("path").to_pylist()))
                yield pa.record_batch(
                    {
                        "place": batch.column("place"),
                        "num_rows": pa.array([one.num_rows for one in files], pa.int64()),
                        "stats": pa.array([one.stats for one in files], pa.string()),
                    }
                )

    return read
