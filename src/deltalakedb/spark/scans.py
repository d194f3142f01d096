"""Scans of planned data files: Spark's own Parquet reader, with each file's data from the log added to its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.log.protocol.codec import deletion_vector_from_json
from deltalakedb.log.schema.types import StructField, StructType
from deltalakedb.spark.places import data_files, metadata_path, reading_path
from deltalakedb.spark.schemas import quoted, to_physical, to_spark, user_metadata
from deltalakedb.spark.session import setting
from deltalakedb.storage.location import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812  the usual name

    from deltalakedb.storage.interface import Storage

MAX_SCANS: Final = 6
"""Up to this many different partition values get a scan each; with more, values are joined to the rows.
Of 3M rows 4 scans took 0.74 of the time of a join, 12 took 1.27, 30 took 2.3: planning a scan costs, joining a row too.
"""
FILE_COLUMNS: Final = ("path", "size", "modification_time", "partition_values", "deletion_vector")
"""The columns needed of each planned file."""
_LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MAX_LISTED_HERE: Final = 512
_USUAL_THRESHOLD: Final = 32
_PATH, _ROW, _FILE, _KEY = "__dldb_path", "__dldb_row", "__dldb_file", "__dldb_key"


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    """In Hadoop's spelling."""
    size: int
    modified_ms: int
    values: tuple[str | None, ...]
    """Partition values as the log writes them, of the columns that are read."""
    vector: str | None


@dataclass(frozen=True, slots=True)
class Scan:
    """A read of a table: what all of its files have in common."""

    spark: SparkSession
    table: str
    location: str
    options: Mapping[str, str] | None
    schema: StructType
    """The columns that are read, including partition columns."""
    partitions: tuple[StructField, ...]
    by_id: bool

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        schema: StructType,
        *,
        table: str,
        location: str,
        options: Mapping[str, str] | None,
        partition_columns: Sequence[str],
        configuration: Mapping[str, str | None],
    ) -> Scan:
        fields = (schema.field(name) for name in partition_columns)
        return cls(
            spark=spark,
            table=table,
            location=location.rstrip("/"),
            options=options,
            schema=schema,
            partitions=tuple(item for item in fields if item is not None),
            by_id=(configuration.get("delta.columnMapping.mode") or "").lower() == "id",
        )

    @property
    def stored(self) -> StructType:
        """The columns that are in data files."""
        return StructType(tuple(item for item in self.schema.fields if item.name not in self.partition_names))

    @property
    def partition_names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.partitions)


def scan_files(task: Scan, planned: pa.Table) -> DataFrame:
    """The rows of these files (FILE_COLUMNS) as the table's columns."""
    files = _files(task, planned)
    whole = [file for file in files if file.vector is None]
    scans = [*_scans(task, whole), *_joined_scan(task, [file for file in files if file.vector is not None])]
    if not scans:
        return task.spark.createDataFrame([], to_spark(task.schema))
    return reduce(lambda left, right: left.unionAll(right), scans)


def _files(task: Scan, planned: pa.Table) -> list[_File]:
    names = [item.physical_name for item in task.partitions]
    paths, *others = (planned.column(name).to_pylist() for name in FILE_COLUMNS)
    values_by_text: dict[str, tuple[str | None, ...]] = {}
    files = []
    for path, size, modified_ms, text, vector in zip(data_files(task.location, paths), *others, strict=True):
        if text not in values_by_text:
            values = json.loads(text or "{}")
            values_by_text[text] = tuple(values.get(name) or None for name in names)
        files.append(_File(path, size, modified_ms, values_by_text[text], vector))
    return files


def _scans(task: Scan, files: list[_File]) -> Iterator[DataFrame]:
    """Scans of files without deleted rows; if there are few partition values, each is a constant of its scan."""
    if not files:
        return
    planned_scan = _known_scan(task, files, task.partitions)
    if planned_scan is not None:
        yield _as_table(task, planned_scan, {})
        return
    groups: dict[tuple[str | None, ...], list[_File]] = {}
    for file in files:
        groups.setdefault(file.values, []).append(file)
    if len(groups) > MAX_SCANS:
        yield from _joined_scan(task, files)
        return
    for values, group in groups.items():
        constants = dict(zip(task.partition_names, map(F.lit, values), strict=True))
        yield _as_table(task, _listed_scan(task, group), constants)


def _joined_scan(task: Scan, files: list[_File]) -> Iterator[DataFrame]:
    """One scan of all these files; each file's data from the log is joined to its rows by path."""
    if not files:
        return
    spark = task.spark
    texts = {f"{_KEY}{place}": F.col(f"{_KEY}{place}") for place in range(len(task.partitions))}
    about = pa.table(
        {
            _KEY: [metadata_path(file.path) for file in files],
            _FILE: pa.array(range(len(files)), pa.int32()),
            **{name: pa.array([f.values[i] for f in files], pa.string()) for i, name in enumerate(texts)},
        }
    )
    vectors = [(number, file.vector) for number, file in enumerate(files) if file.vector is not None]
    planned_scan = _known_scan(task, files, ())
    scan = _listed_scan(task, files) if planned_scan is None else planned_scan
    places = [F.col("_metadata.file_path").alias(_PATH)]
    if vectors:
        places.append(F.col("_metadata.row_index").alias(_ROW))
    rows = scan.select("*", *places)
    rows = rows.join(F.broadcast(spark.createDataFrame(about)), F.col(_PATH) == F.col(_KEY), "left")
    rows = rows.where(_refuse_unplanned(task))
    if vectors:
        storage = open_storage(task.location, task.options)
        rows = without_deleted(rows, row_key(F.col(_FILE), F.col(_ROW)), vectors, storage, spark)
    yield _select(rows, _columns(task, dict(zip(task.partition_names, texts.values(), strict=True))))


def _refuse_unplanned(task: Scan) -> Column:
    """A filter that fails the job if Spark reports a path that we did not expect: the file would lose its partition
    values, or its deleted rows would come back."""
    message = F.concat(F.lit(f"table {task.table}: Spark reads a file that was not planned: "), F.col(_PATH))
    return F.when(F.col(_FILE).isNotNull(), F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))


def _known_scan(task: Scan, files: list[_File], partitions: tuple[StructField, ...]) -> DataFrame | None:
    """A scan of the stored columns and these partition columns with the log's file data; None without the jar."""
    stored, values = (_physical(task, fields) for fields in (task.stored.fields, partitions))
    rows = [(file.path, file.size, file.modified_ms, *(file.values if partitions else ())) for file in files]
    return scan_known_files(task.spark, stored, values, rows, by_id=task.by_id)


def _physical(task: Scan, fields: tuple[StructField, ...]) -> T.StructType:
    return to_physical(StructType(fields), with_ids=task.by_id, with_notes=True)


def _listed_scan(task: Scan, files: list[_File]) -> DataFrame:
    """A scan of the stored columns; Spark looks at each file."""
    reader = task.spark.read.schema(_physical(task, task.stored.fields))
    if task.by_id:
        reader = reader.option("spark.sql.parquet.fieldId.read.enabled", "true")
    paths = [reading_path(file.path) for file in files]
    with _listing_here(task.spark, paths):
        scan = reader.parquet(*paths)
        if type(scan).__module__.startswith("pyspark.sql.connect"):
            scan.schema  # noqa: B018  the server looks at the files now, while the setting holds
        return scan


@contextmanager
def _listing_here(spark: SparkSession, paths: list[str]) -> Iterator[None]:
    """List known files without a job; a job pays only in an object store, where each look takes long."""
    is_few = len(paths) <= _USUAL_THRESHOLD
    if is_few or (not paths[0].startswith("file:") and len(paths) > _MAX_LISTED_HERE):
        yield
        return
    with setting(spark, _LISTING_THRESHOLD, str(len(paths))):
        yield


def _as_table(task: Scan, scan: DataFrame, partitions: Mapping[str, Column]) -> DataFrame:
    """The table's columns from a scan's; skipped if they are equal, because each step on a DataFrame costs."""
    scanned = task.stored.fields if partitions else (*task.stored.fields, *task.partitions)
    if not task.by_id and _physical(task, scanned) == to_spark(task.schema):
        return scan
    return _select(scan, _columns(task, partitions))


def _columns(task: Scan, partitions: Mapping[str, Column]) -> list[Column | str]:
    """Logical names, and partition values with their types; without `partitions` the scan has them as columns."""
    logical = to_spark(task.schema)
    scanned = StructType((*task.stored.fields, *task.partitions))
    stored = {item.name: item for item in to_physical(scanned, with_ids=False, with_notes=True).fields}
    columns: list[Column | str] = []
    for item, spark_field in zip(task.schema.fields, logical.fields, strict=True):
        if item.name in partitions:
            # As in Spark's Delta: a text that is no value of the type is null.
            column = partitions[item.name].try_cast(spark_field.dataType)
        elif stored[item.physical_name].dataType != spark_field.dataType:
            column = F.col(quoted(item.physical_name)).cast(spark_field.dataType)
        elif not task.by_id:
            columns.append(f"{quoted(item.physical_name)} as {quoted(item.name)}")
            continue
        else:
            column = F.col(quoted(item.physical_name))
        columns.append(column.alias(item.name, metadata=user_metadata(item)))
    return columns


def _select(rows: DataFrame, columns: Sequence[Column | str]) -> DataFrame:
    """Select columns, as texts if all are texts: building a Column takes ten JVM calls."""
    texts = [item for item in columns if isinstance(item, str)]
    if len(texts) == len(columns):
        return rows.selectExpr(*texts)
    return rows.select(*(F.expr(item) if isinstance(item, str) else item for item in columns))


KnownFile: TypeAlias = tuple[str | int | None, ...]
"""A path in Hadoop's spelling, length, modification time in milliseconds, and the text of each partition value."""
_CLASS: Final = "PlannedFiles"
_scans_by_jvm: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def scan_known_files(
    spark: SparkSession, schema: T.StructType, partitions: T.StructType, files: Sequence[KnownFile], *, by_id: bool
) -> DataFrame | None:
    """Scan these files; partition values are the last columns.

    None without the jar, over Spark Connect, or if `spark.deltalakedb.plannedFiles` is false.
    """
    scan = _scan_of(spark)
    if scan is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame

    frame = scan(spark._jsparkSession, schema.json(), partitions.json(), json.dumps(files), by_id)
    return None if frame is None else DataFrame(frame, spark)


def _scan_of(spark: SparkSession) -> Any:
    """The jar's function, or None. Cached, because the lookup takes five JVM calls."""
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is None:
        return None
    if jvm not in _scans_by_jvm:
        from py4j.java_gateway import JavaClass

        java_class = getattr(jvm.io.deltalakedb, _CLASS)
        _scans_by_jvm[jvm] = java_class.scan if isinstance(java_class, JavaClass) else None
    return _scans_by_jvm[jvm]


ROW_BITS: Final = 40
"""A file has fewer than 2^40 rows, a scan fewer than 2^23 files: both fit into one number, the fastest join key."""
_BROADCAST_ROWS: Final = 5_000_000
_DELETED: Final = "__dldb_deleted"


def row_key(file_number: Column, row_index: Column) -> Column:
    """The position of a row in a scan, as one number."""
    return F.shiftleft(file_number.cast("bigint"), ROW_BITS) + row_index


def without_deleted(
    rows: DataFrame, place: Column, vectors: Iterable[tuple[int, str]], storage: Storage, spark: SparkSession
) -> DataFrame:
    """The rows whose `place` is in no vector; vectors are pairs of a file number and the log's JSON."""
    reader = DeletionVectors(storage)
    keys = [
        reader.rows(deletion_vector_from_json(text)).astype(np.int64) + (number << ROW_BITS) for number, text in vectors
    ]
    if not keys:
        return rows
    deleted = pa.table({_DELETED: np.concatenate(keys)})
    frame = spark.createDataFrame(deleted)
    # With more rows a hash table in every executor costs more than moving rows: Spark chooses.
    side = F.broadcast(frame) if deleted.num_rows <= _BROADCAST_ROWS else frame
    return rows.join(side, place == F.col(_DELETED), "left_anti")
