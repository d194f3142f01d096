"""Reads data files as rows of the table: applies partition values, deletion vectors and column mapping."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.data.deletion_vectors import DeletionVectors, Rows
from deltalakedb.data.engine import own_column
from deltalakedb.data.filtering import RowFilter, RowPredicate
from deltalakedb.data.joining import join_files
from deltalakedb.data.projection import Projection
from deltalakedb.data.sources import BATCH_ROWS, gathered, prepare_data
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import StructField, StructType, to_arrow_type
from deltalakedb.runtime import forks
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import open_logged

FILE: Final = own_column("file")
ROW: Final = own_column("row")
IsWanted: TypeAlias = Callable[[int, int, int], bool]
"""(position of the file, first row, end row) -> whether any of these rows is needed."""
POSITIONS: Final = (pa.field(FILE, pa.int32(), nullable=False), pa.field(ROW, pa.int64(), nullable=False))
# A file up to this size is read whole and ahead of its turn; a larger one is streamed in its turn.
_SMALL_BYTES: Final = 16 * 1024 * 1024
_TINY_BYTES: Final = 256 * 1024
_AHEAD: Final = max(4, (os.cpu_count() or 1) * 2)
# This many tiny files on a disk form one task: switching threads for each would take longer than reading it.
_TINY_TOGETHER: Final = 64
# Up to this many files and bytes are read as one file; fewer than the minimum are faster one by one.
_MOST_JOINED: Final = 512
_MOST_JOINED_BYTES: Final = 8 * 1024 * 1024
_FEWEST_JOINED: Final = 32
# INT96 as nanoseconds overflows after the year 2262.
_READ_OPTIONS: Final[dict[str, Any]] = {"coerce_int96_timestamp_unit": "us"}
# For rows of which only the number is needed.
_NO_COLUMNS: Final = pa.schema([("", pa.null())])


def read_files(
    files: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
    *,
    storage: Storage,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str | None] | None = None,
    columns: Sequence[str] | None = None,
    predicate: RowPredicate | None = None,
    positions: bool = False,
    is_wanted: IsWanted | None = None,
) -> pa.RecordBatchReader:
    """The rows of these files (of FILES_SCHEMA), in their order, as a stream of the table's columns.

    `partition_columns` and `configuration` are those of the table's metadata. `columns` selects and orders columns;
    `predicate` (SQL, or a pyarrow expression) keeps the rows for which it is true. Files are not pruned here.

    `positions` adds two columns: FILE, the position of a row's file in `files`, and ROW, its number in the file,
    counting deleted rows. `is_wanted` is called for each row group; refused row groups are not read.
    """
    fields = list(schema.fields) if columns is None else [_field(schema, name) for name in columns]
    row_filter = None if predicate is None else RowFilter(predicate, schema)
    names = {item.name for item in fields} | set(row_filter.columns if row_filter else ())
    task = _Task(
        storage=storage,
        fields=tuple(item for item in schema.fields if item.name in names),
        partitions=frozenset(partition_columns),
        by_id=(configuration or {}).get("delta.columnMapping.mode") == "id",
        vectors=DeletionVectors(storage),
        positions=positions,
        is_wanted=is_wanted,
    )
    result = with_positions(StructType(tuple(fields)).to_arrow(), positions)
    batches = _read_all(task, prepare_data(files))
    return pa.RecordBatchReader.from_batches(result, _finish(batches, row_filter, result))


def with_positions(schema: pa.Schema, positions: bool = True) -> pa.Schema:
    """The schema with the columns FILE and ROW."""
    return pa.schema([*schema, *POSITIONS]) if positions else schema


def _field(schema: StructType, name: str) -> StructField:
    item = schema.field(name)
    if item is None:
        raise no_such_column(name, schema.names)
    return item


def _finish(
    batches: Iterable[pa.RecordBatch], row_filter: RowFilter | None, result: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches if row_filter is None else gathered(batches):
        rows = batch if row_filter is None else row_filter(batch)
        if rows.num_rows:
            yield rows.select(result.names)


@dataclass(frozen=True)
class _Task:
    """The parameters that all files of a read share."""

    storage: Storage
    fields: tuple[StructField, ...]
    partitions: frozenset[str]
    by_id: bool
    vectors: DeletionVectors
    positions: bool
    is_wanted: IsWanted | None

    @property
    def takes_whole_files(self) -> bool:
        """Whether the file of a row does not matter."""
        return not self.positions and self.is_wanted is None

    @cached_property
    def schema(self) -> pa.Schema:
        return with_positions(StructType(self.fields).to_arrow(), self.positions)

    @cached_property
    def stored(self) -> tuple[StructField, ...]:
        """The columns that are in the files."""
        return tuple(item for item in self.fields if item.name not in self.partitions)

    def projection_of(self, file: pa.Schema) -> Projection:
        """The conversion of a file's columns to the table's; cached, because consecutive files mostly share it."""
        for cached_schema, projection in self._last_projection:  # shared by threads: read once
            if cached_schema.equals(
                file, check_metadata=self.by_id
            ):  # ids are in the metadata, which is slow to compare
                return projection
        projection = Projection(file, self.stored, by_id=self.by_id)
        self._last_projection[:] = [(file, projection)]
        return projection

    @cached_property
    def _last_projection(self) -> list[tuple[pa.Schema, Projection]]:
        return []


@dataclass(frozen=True, slots=True)
class _File:
    place: int
    path: str
    size: int
    partition_values: Mapping[str, str | None]
    deleted: Rows | None


def _read_all(task: _Task, files: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The rows of all files in order; threads read small files ahead, so that waiting and decoding overlap."""
    begun_in = forks.generation
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="deltalakedb-read") as pool:
        window: deque[Future[list[pa.RecordBatch]] | _File] = deque()
        try:
            for group in _together(task, _files(task, files)):
                small = group[0].size <= _SMALL_BYTES
                window.append(pool.submit(_read_whole, task, group) if small else group[0])
                if len(window) >= _AHEAD:
                    yield from _next(task, window)
                _check_process(begun_in)
            while window:
                yield from _next(task, window)
                _check_process(begun_in)
        finally:
            for entry in window:
                if isinstance(entry, Future):
                    entry.cancel()


def _check_process(generation: int) -> None:
    """Raise an error in a forked child: the reading threads are in the parent."""
    if generation != forks.generation:
        raise DeltaError("rows that were begun to be read before a fork are read by its parent; read anew in the child")


def _together(task: _Task, files: Iterable[_File]) -> Iterator[list[_File]]:
    """The files in order, tiny ones on a disk in groups; groups grow, so that the first rows come soon."""
    group: list[_File] = []
    most, size = 1, 0
    limit = _MOST_JOINED if task.takes_whole_files else _TINY_TOGETHER
    for file in files:
        if task.storage.is_remote or file.size > _TINY_BYTES:
            if group:
                yield group
                group, size = [], 0
            yield [file]
            continue
        group.append(file)
        size += file.size
        if len(group) >= most or size >= _MOST_JOINED_BYTES:
            yield group
            group, most, size = [], min(most * 2, limit), 0
    if group:
        yield group


def _next(task: _Task, window: deque[Future[list[pa.RecordBatch]] | _File]) -> Iterator[pa.RecordBatch]:
    first = window.popleft()
    return iter(first.result()) if isinstance(first, Future) else _read_file(task, first)


def _files(task: _Task, files: pa.RecordBatchReader) -> Iterator[_File]:
    position = 0
    for batch in files:
        paths, sizes = batch.column("path").to_pylist(), batch.column("size").to_pylist()
        values, vectors = batch.column("partition_values").to_pylist(), batch.column("deletion_vector").to_pylist()
        for path, size, partition, vector in zip(paths, sizes, values, vectors, strict=True):
            deleted = None if vector is None else task.vectors.rows(deletion_vector_from_json(vector))
            yield _File(position, from_sql_text(path), size or 0, json.loads(partition or "{}"), deleted)
            position += 1


def _read_whole(task: _Task, files: Sequence[_File]) -> list[pa.RecordBatch]:
    if not task.takes_whole_files:
        return [batch for file in files for batch in _read_file(task, file)]
    return [batch for alike in _alike(files) for batch in _read_alike(task, alike)]


def _alike(files: Sequence[_File]) -> Iterator[list[_File]]:
    """Groups of neighbours in one partition without deleted rows; any other file is alone."""
    for _, alike in groupby(files, lambda one: (None if one.deleted is None else one.place, one.partition_values)):
        yield list(alike)


def _read_alike(task: _Task, files: Sequence[_File]) -> Iterator[pa.RecordBatch]:
    """The rows of tiny files; their columns are converted together, which takes as long as for one file."""
    if len(files) == 1:
        yield from _read_file(task, files[0])
        return
    combined = _read_joined(task, files) if len(files) >= _FEWEST_JOINED else None
    if combined is not None:
        yield from _in_table_together(task, files[0], *combined)
        return
    tables: list[pa.Table] = []
    last: Projection | None = None
    for file in files:
        with _reading(task, file) as parquet:
            projection, rows = _read_all_of(task, parquet)
        if last is not None and projection is not last:
            yield from _in_table_together(task, files[0], last, pa.concat_tables(tables))
            tables = []
        tables.append(rows)
        last = projection
    if last is not None:
        yield from _in_table_together(task, files[0], last, pa.concat_tables(tables))


def _read_joined(task: _Task, files: Sequence[_File]) -> tuple[Projection, pa.Table] | None:
    """The rows of files that can be read as one; None if they cannot, and must be read one by one."""
    contents = []
    for file in files:
        with open_logged(task.storage, file.path, file.size) as opened:
            contents.append(opened.read())
    joined = join_files(contents)
    if joined is None:
        return None
    try:
        parquet = pq.ParquetFile(pa.BufferReader(joined), **_READ_OPTIONS)
        projection, rows = _read_all_of(task, parquet)
    except (pa.ArrowException, OSError):
        return None  # reading them one by one reports which file is broken
    return (projection, rows) if rows.num_rows == parquet.metadata.num_rows else None


def _read_all_of(task: _Task, parquet: pq.ParquetFile) -> tuple[Projection, pa.Table]:
    projection = task.projection_of(parquet.schema_arrow)
    if projection.columns:
        return projection, parquet.read(projection.columns, use_threads=False)
    return projection, pa.Table.from_batches([batch for _, batch in _empty_batches(parquet)], _NO_COLUMNS)


def _in_table_together(task: _Task, like: _File, projection: Projection, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    constants = _constants(task, like)
    for batch in rows.combine_chunks().to_batches(BATCH_ROWS):
        yield _in_table(task, projection, constants, batch)


def _read_file(task: _Task, file: _File) -> Iterator[pa.RecordBatch]:
    with _reading(task, file) as parquet:
        projection, constants = task.projection_of(parquet.schema_arrow), _constants(task, file)
        for start, batch in _batches(task, file, parquet, projection.columns):
            positions = _positions(file, start, batch.num_rows) if task.positions else ()
            rows = _in_table(task, projection, constants, batch, positions)
            yield rows if file.deleted is None else _without(rows, file.deleted, start)


@contextmanager
def _reading(task: _Task, file: _File) -> Iterator[pq.ParquetFile]:
    try:
        with open_logged(task.storage, file.path, file.size) as opened:
            yield pq.ParquetFile(opened, **_READ_OPTIONS)
    except DeltaError:  # a missing file is an OSError too
        raise
    except (pa.ArrowException, OSError) as error:
        detail = str(error).partition("\n")[0]
        raise DeltaError(f"cannot read the data file {file.path} of {task.storage.location}: {detail}") from error


def _in_table(
    task: _Task,
    projection: Projection,
    constants: Mapping[str, pa.Scalar],
    batch: pa.RecordBatch,
    positions: Sequence[pa.Array] = (),
) -> pa.RecordBatch:
    """Convert rows of a file to rows of the table."""
    if not task.schema.names:
        return batch.select([])  # only the number of rows is needed
    stored = iter(projection.arrays(batch))
    arrays = [
        pa.repeat(constants[item.name], batch.num_rows) if item.name in constants else next(stored)
        for item in task.fields
    ]
    return pa.RecordBatch.from_arrays([*arrays, *positions], schema=task.schema)


def _positions(file: _File, start: int, count: int) -> tuple[pa.Array, pa.Array]:
    return pa.repeat(pa.scalar(file.place, pa.int32()), count), pa.array(
        np.arange(start, start + count, dtype=np.int64)
    )


def _batches(
    task: _Task, file: _File, parquet: pq.ParquetFile, columns: list[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches, each with the number of its first row in the file."""
    if not columns:
        yield from _empty_batches(parquet)
        return
    threads = file.size > _TINY_BYTES  # a tiny file is decoded faster without threads
    for start, groups in _row_groups(task, file, parquet):
        for batch in parquet.iter_batches(BATCH_ROWS, groups, columns, use_threads=threads):
            yield start, batch
            start += batch.num_rows


def _row_groups(task: _Task, file: _File, parquet: pq.ParquetFile) -> Iterator[tuple[int, list[int] | None]]:
    """The row groups to read (None: all), with their first row; consecutive ones are read together."""
    if task.is_wanted is None:
        yield 0, None
        return
    metadata = parquet.metadata
    first, groups, start = 0, list[int](), 0
    for group in range(metadata.num_row_groups):
        end = start + metadata.row_group(group).num_rows
        if task.is_wanted(file.place, start, end):
            first = first if groups else start
            groups.append(group)
        elif groups:
            yield first, groups
            groups = []
        start = end
    if groups:
        yield first, groups


def _empty_batches(parquet: pq.ParquetFile) -> Iterator[tuple[int, pa.RecordBatch]]:
    # only partition columns, or columns newer than the file: its rows still count
    rows: int = parquet.metadata.num_rows
    for start in range(0, rows, BATCH_ROWS):
        nulls = pa.nulls(min(BATCH_ROWS, rows - start))
        yield start, pa.RecordBatch.from_arrays([nulls], schema=_NO_COLUMNS)


def _constants(task: _Task, file: _File) -> dict[str, pa.Scalar]:
    """The values of the partition columns, which are not in the file."""
    return {item.name: _constant(item, file.partition_values) for item in task.fields if item.name in task.partitions}


def _constant(item: StructField, values: Mapping[str, str | None]) -> pa.Scalar:
    value = parse_partition_value(values.get(item.physical_name), item.type)
    return pa.scalar(value, to_arrow_type(item.type))


def _without(batch: pa.RecordBatch, deleted: Rows, start: int) -> pa.RecordBatch:
    first, last = np.searchsorted(deleted, [start, start + batch.num_rows])
    if first == last:
        return batch
    keep = np.ones(batch.num_rows, np.bool_)
    keep[deleted[first:last].astype(np.int64) - start] = False
    return batch.filter(pa.array(keep))
