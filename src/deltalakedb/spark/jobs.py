"""A write job: Spark writes Parquet into a folder of the job's own, and its files become add actions in place."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.data.footers import FooterStats
from deltalakedb.data.partitioning import HIVE_NULL
from deltalakedb.exceptions import DeltaError, StorageError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.paths import decode_path, encode_path
from deltalakedb.log.schema.types import StructField
from deltalakedb.spark.places import is_hidden, spark_location
from deltalakedb.spark.session import setting
from deltalakedb.storage.interface import ListedFile, Storage
from deltalakedb.storage.location import open_storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"
# A marker file would stay for ever: clean-up ignores names that begin with an underscore.
_NO_MARKER: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
_EPOCH: Final = "timestamp_ntz'1970-01-01 00:00:00'"


def partition_text(column: Column, item: StructField) -> Column:
    """A partition value as the log writes it, a timestamp in UTC (PROTOCOL.md, "Partition Value Serialization")."""
    if str(item.type) != "timestamp":
        return column.cast("string")
    # By way of a type without time zone: a text in the session's zone is ambiguous when clocks are set back.
    local = F.timestamp_add("MICROSECOND", F.unix_micros(column), F.expr(_EPOCH))
    return F.concat(F.replace(local.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))


class WriteJob:
    """One job, and its folder, which no other writer uses until its files are committed."""

    def __init__(self, location: str, options: Mapping[str, str] | None, storage: Storage) -> None:
        # No underscore or dot at the beginning: VACUUM never looks into such folders, and would leave orphans.
        self.folder = f"w-{uuid.uuid4()}"
        self._location = location
        self._options = dict(options or {})
        self._storage = storage

    def run(self, rows: DataFrame, partition_columns: Sequence[str], stats: FooterStats) -> list[AddFile]:
        """Write the rows; the files are durable when this returns. If it fails, nothing is left behind."""
        try:
            with setting(rows.sparkSession, _TIMESTAMP_TYPE, "TIMESTAMP_MICROS"):
                rows.write.option(_NO_MARKER, "false").partitionBy(*partition_columns).parquet(
                    f"{spark_location(self._location)}/{self.folder}"
                )
            files = self._list_files()
            adds = self._adds(rows.sparkSession, files, stats)
            if not adds:
                self.clean()
            self._storage.sync([decode_path(add.path) for add in adds])
        except BaseException as error:
            self.clean()
            error.add_note(f"nothing was committed to {self._location}, and the job's files are removed")
            raise
        return adds

    def _adds(self, spark: SparkSession, files: Sequence[ListedFile], stats: FooterStats) -> list[AddFile]:
        footers = gather(spark, [file.path for file in files], stats, self._location, self._options)
        adds = []
        for file, footer in zip(files, footers, strict=True):
            if not footer.num_rows:  # a job without rows leaves a file without rows
                self._storage.delete(file.path)
                continue
            adds.append(
                AddFile(
                    path=encode_path(file.path),
                    partition_values=partition_values(file.path),
                    size=file.size,
                    modification_time=file.modified_ms,
                    data_change=True,
                    stats=footer.stats,
                )
            )
        return adds

    # -- the job's own folder

    def paths(self) -> frozenset[str]:
        """The files in the job's folder, as paths relative to the table's."""
        return frozenset(file.path for file in self._list_files())

    def _list_files(self) -> list[ListedFile]:
        files = [file for file in self._storage.walk(self.folder) if not any(map(is_hidden, file.path.split("/")))]
        return sorted(files, key=lambda file: file.path)

    def clean(self) -> None:
        """Remove the folder; failures are ignored, because VACUUM removes what is left."""
        with suppress(DeltaError):
            self._storage.delete_folder(self.folder)


def partition_values(path: str) -> dict[str, str | None]:
    """The partition values in the names of a file's folders, unescaped as Hive and Spark do."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[1:-1]:
        name, _, text = folder.partition("=")
        values[_unescape(name)] = None if text == HIVE_NULL else _unescape(text)
    return values


def _unescape(text: str) -> str:
    # Spark escapes single ASCII characters; a percent sign that begins no escape is itself escaped.
    return unquote_to_bytes(text).decode() if "%" in text else text


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
