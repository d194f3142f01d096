"""Reads the footers of many files at once: by threads of the driver, or by executors if there are thousands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.data.footers import FooterStats
from deltalakedb.exceptions import DeltaError, StorageError
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.opening import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DRIVER_FILES: Final = 2_000
"""Up to this many the driver reads itself, in a third of a second on a disk; starting Python on executors is slower."""
_READERS: Final = 16
_FILES_A_TASK: Final = 500
_SCHEMA: Final = "place bigint, num_rows bigint, stats string"


class Gathered(NamedTuple):
    """The row count and statistics from a footer."""

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
    """The row count and the statistics of each of a table's files, in their order."""
    if len(paths) > driver_files:
        try:
            return _by_executors(spark, paths, stats, location, dict(options or {}))
        except Exception as error:  # an executor may lack Python, or this package in it; the driver has both
            logger.warning("executors cannot read the footers of %s, the driver does: %.200s", location, error)
    storage = open_storage(location, options)
    if len(paths) < 3:
        return [_read(storage, path, stats) for path in paths]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="deltalakedb-footer") as pool:
        return list(pool.map(lambda path: _read(storage, path, stats), paths))


def _read(storage: Storage, path: str, stats: FooterStats) -> Gathered:
    try:
        with storage.open(path) as opened:  # without its size, because only its end is read
            footer = pq.read_metadata(opened)
    except StorageError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DeltaError(f"cannot read {path} of {storage.location}, which Spark wrote: {error}") from error
    return Gathered(footer.num_rows, stats.of(footer))


def _by_executors(
    spark: SparkSession, paths: Sequence[str], stats: FooterStats, location: str, options: dict[str, str]
) -> list[Gathered]:
    named = pa.table({"place": pa.array(range(len(paths)), pa.int64()), "path": pa.array(paths, pa.string())})
    frame = spark.createDataFrame(named).repartition(max(2, len(paths) // _FILES_A_TASK))
    rows = frame.mapInArrow(_reader(stats, location, options), _SCHEMA).collect()
    gathered = {row["place"]: Gathered(row["num_rows"], row["stats"]) for row in rows}
    return [gathered[place] for place in range(len(paths))]


def _reader(
    stats: FooterStats, location: str, options: dict[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(location, options)
        with ThreadPoolExecutor(_READERS) as pool:
            for batch in batches:
                files = list(pool.map(lambda path: _read(storage, path, stats), batch.column("path").to_pylist()))
                yield pa.record_batch(
                    {
                        "place": batch.column("place"),
                        "num_rows": pa.array([footer.num_rows for footer in files], pa.int64()),
                        "stats": pa.array([footer.stats for footer in files], pa.string()),
                    }
                )

    return read
