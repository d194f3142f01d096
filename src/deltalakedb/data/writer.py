"""Writes data: converts a stream of batches to Parquet files and their add actions."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from deltalakedb import telemetry
from deltalakedb.data.arrow_types import file_schema
from deltalakedb.data.conform import Conformer
from deltalakedb.data.parquet import DataFile, ParquetOptions
from deltalakedb.data.partitioning import PartitionKey, check_partition_field, folder_of, split
from deltalakedb.data.sources import prepare_data
from deltalakedb.data.stats import StatsPlan
from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.schema.types import StructType
from deltalakedb.storage.interface import Storage

DEFAULT_TARGET_FILE_SIZE: Final = 100 * 1024 * 1024
# Limits of a partitioned write: rows that wait for their row group, over all partitions, and open files.
_MAX_PENDING_BYTES: Final = 256 * 1024 * 1024
_MAX_OPEN_FILES: Final = 64
_UPLOADS: Final = 8
# Limits of writing a table in memory: the size that is worth a file of its own, and concurrent files.
_SLICE_BYTES: Final = 64 * 1024 * 1024
_MAX_SLICES: Final = 4
_MAX_PLANS: Final = 64
_PLAN_KEYS: Final = (
    "delta.targetFileSize",
    "delta.dataSkippingStatsColumns",
    "delta.dataSkippingNumIndexedCols",
    "delta.enableDeletionVectors",
)
_LEAST_ROWS: Final = 1024
"""At least this many rows of a batch stay together, however small the target: single-row files are useless."""
_DEFAULT_OPTIONS: Final = ParquetOptions()


def write_files(
    data: Any,
    *,
    storage: Storage,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str | None] | None = None,
    target_file_size: int | None = None,
    options: ParquetOptions = _DEFAULT_OPTIONS,
    data_change: bool = True,
    beside: Iterable[pa.RecordBatch] = (),
) -> list[AddFile]:
    """Write data into new files of a table; they are durable when this returns, and part of it once committed.

    The data is cast to the table's schema; if it does not fit, SchemaMismatchError is raised and no file remains.
    `partition_columns` and `configuration` are those of the table's metadata. Data without rows creates no file.
    `beside` has further rows for the same files; their schema may differ.
    """
    arguments: dict[str, Any] = {
        "storage": storage,
        "schema": schema,
        "partition_columns": partition_columns,
        "configuration": configuration,
        "target_file_size": target_file_size,
        "options": options,
        "data_change": data_change,
    }
    slices = 1  # how many files are written concurrently, because pyarrow writes a file on one core
    if isinstance(data, pa.Table) and not partition_columns and not beside:
        slices = min(os.cpu_count() or 1, _MAX_SLICES, data.nbytes // _SLICE_BYTES)
    if slices > 1:
        return _write_slices(data, slices, arguments)
    return _write_stream(prepare_data(data), arguments, beside)


def _write_stream(
    source: pa.RecordBatchReader, arguments: Mapping[str, Any], beside: Iterable[pa.RecordBatch] = ()
) -> list[AddFile]:
    with FileWriter(source.schema, **arguments) as writer:
        for batch in chain(source, beside):
            writer.write(batch)
        return writer.finish()


def _write_slices(data: pa.Table, slices: int, arguments: Mapping[str, Any]) -> list[AddFile]:
    """Write consecutive slices of the rows concurrently; in order, so that the bounds of files stay narrow."""
    step = -(-data.num_rows // slices)
    with ThreadPoolExecutor(slices, thread_name_prefix="deltalakedb-slice") as pool:
        parts = [data.slice(start, step).to_reader() for start in range(0, data.num_rows, step)]
        futures = [pool.submit(_write_stream, part, arguments) for part in parts]
    first_error = next((error for future in futures if (error := future.exception()) is not None), None)
    if first_error is not None:
        for add in (add for future in futures if future.exception() is None for add in future.result()):
            with suppress(OSError, DeltaError):
                arguments["storage"].delete(decode_path(add.path))
        raise first_error
    return [add for future in futures for add in future.result()]


class _Plan:
    """What is computed once for an Arrow schema and a table: casts, column positions, statistics."""

    def __init__(
        self,
        arrow: pa.Schema,
        schema: StructType,
        partition_columns: tuple[str, ...],
        configuration: Mapping[str, str | None],
    ) -> None:
        self.table_schema = schema
        self.conform = Conformer(arrow, schema)
        names = {item.name: position for position, item in enumerate(self.conform.fields)}
        missing = [name for name in partition_columns if name not in names]
        if missing:
            raise SchemaMismatchError(f"the partition column {missing[0]!r} is no column of the table")
        self.partition_places = [names[name] for name in partition_columns]
        self.partition_fields = [self.conform.fields[position] for position in self.partition_places]
        for item in self.partition_fields:
            check_partition_field(item)
        self.partition_names = [item.physical_name for item in self.partition_fields]
        self.places = [position for name, position in names.items() if name not in partition_columns]
        if not self.places:
            raise SchemaMismatchError(
                "there is nothing to store: a data file needs a column that is no partition column, and not void"
            )
        self.file_schema = file_schema(schema, partition_columns)
        self.target_file_size = target_file_size_of(configuration)
        self.stats = StatsPlan(schema, partition_columns, configuration, self.file_schema)


def target_file_size_of(configuration: Mapping[str, str | None]) -> int:
    """The size of files that a table's properties ask for, in bytes."""
    text = (configuration.get("delta.targetFileSize") or "").strip().lower().removesuffix("b")
    units = {"k": 1024, "m": 1024**2, "g": 1024**3}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    return int(digits) * unit if digits.isascii() and digits.isdigit() and int(digits) else DEFAULT_TARGET_FILE_SIZE


_plans: OrderedDict[tuple[Any, ...], _Plan] = OrderedDict()


def _plan(
    arrow: pa.Schema, schema: StructType, partition_columns: tuple[str, ...], configuration: Mapping[str, str | None]
) -> _Plan:
    """The plan, cached for repeated data of the same kind: many tables get many small writes."""
    key = (arrow, id(schema), partition_columns, *map(configuration.get, _PLAN_KEYS))
    plan = _plans.get(key)
    if plan is None or plan.table_schema is not schema:
        plan = _plans[key] = _Plan(arrow, schema, partition_columns, configuration)
        while len(_plans) > _MAX_PLANS:
            with suppress(KeyError):
                _plans.popitem(last=False)
    return plan


@dataclass(slots=True)
class _Partition:
    """The pending rows of one partition, and its open file."""

    key: PartitionKey
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    pending_rows: int = 0
    file: DataFile | None = None


class _Uploads:
    """Finishes files concurrently, and collects their add actions in order."""

    def __init__(self, adds: list[AddFile]) -> None:
        self._adds = adds
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="deltalakedb-put")
        self._waiting: deque[Future[AddFile]] = deque()

    def add(self, finish: Callable[[], AddFile]) -> None:
        while len(self._waiting) >= _UPLOADS:
            self._adds.append(self._waiting.popleft().result())
        self._waiting.append(self._pool.submit(finish))

    def finish(self) -> None:
        while self._waiting:
            self._adds.append(self._waiting.popleft().result())
        self.stop()

    def stop(self) -> None:
        """Wait for running uploads and start no more."""
        self._pool.shutdown(cancel_futures=True)


class FileWriter:
    """Distributes rows over partitions, row groups and files, within limits of memory and open files.

    For callers that write to several places at once; `folder` is below the root. Leaving the block without `finish`
    deletes the written files.
    """

    def __init__(
        self,
        arrow: pa.Schema,
        *,
        storage: Storage,
        schema: StructType,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str | None] | None = None,
        target_file_size: int | None = None,
        options: ParquetOptions = _DEFAULT_OPTIONS,
        data_change: bool = True,
        folder: str = "",
    ) -> None:
        self._plan_of = partial(
            _plan, schema=schema, partition_columns=tuple(partition_columns), configuration=configuration or {}
        )
        self._plan = self._plan_of(arrow)
        self._folder = f"{folder}/" if folder else ""
        self._storage = storage
        self._target = target_file_size or self._plan.target_file_size
        self._options = options
        self._data_change = data_change
        self._chunk_bytes = min(options.row_group_bytes, max(self._target, 1))
        self._partitions: dict[PartitionKey, _Partition] = {}
        self._open: OrderedDict[PartitionKey, _Partition] = OrderedDict()
        self._pending_bytes = 0
        self._paths: list[str] = []
        self._adds: list[AddFile] = []
        self._uploads = _Uploads(self._adds) if storage.is_remote else None
        self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_finished:
            self._abandon()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; those with another Arrow schema are cast separately, into the same files."""
        if batch.num_rows:
            with self._failures():
                self._distribute(self._plan_of(batch.schema).conform(batch))

    def finish(self) -> list[AddFile]:
        """Finish the files, which are then durable; return their add actions."""
        with self._failures():
            for partition in self._partitions.values():
                if partition.pending:
                    self._flush(partition)
                self._close(partition)
            if self._uploads is not None:
                self._uploads.finish()
            if self._paths:
                self._storage.sync(self._paths)
        self._is_finished = True
        return self._adds

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowException as error:
            raise DeltaError(f"cannot write to {self._storage.location}: {error}") from error

    def _distribute(self, columns: Sequence[pa.Array]) -> None:
        """Add rows that conform to the table's schema to their partitions."""
        plan = self._plan
        rows = pa.RecordBatch.from_arrays([columns[position] for position in plan.places], schema=plan.file_schema)
        if not plan.partition_places:
            self._append((), rows)
            return
        for key, indices in split([columns[position] for position in plan.partition_places], plan.partition_fields):
            self._append(key, rows if indices is None else rows.take(indices))

    def _append(self, key: PartitionKey, rows: pa.RecordBatch) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = _Partition(key)
        size = rows.nbytes
        partition.pending.append(rows)
        partition.pending_bytes += size
        partition.pending_rows += rows.num_rows
        self._pending_bytes += size
        if partition.pending_bytes >= self._chunk_bytes or partition.pending_rows >= self._options.row_group_rows:
            self._flush(partition)
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self._relieve()

    def _relieve(self) -> None:
        """Flush the largest partitions until half of the memory is free."""
        for partition in sorted(self._partitions.values(), key=lambda item: item.pending_bytes, reverse=True):
            if self._pending_bytes <= _MAX_PENDING_BYTES // 2:
                return
            self._flush(partition)

    def _flush(self, partition: _Partition) -> None:
        rows = pa.Table.from_batches(partition.pending, self._plan.file_schema)
        size = max(1, partition.pending_bytes)
        self._pending_bytes -= partition.pending_bytes
        partition.pending, partition.pending_bytes, partition.pending_rows = [], 0, 0
        fitting = max(_LEAST_ROWS, rows.num_rows * self._chunk_bytes // size)
        step = max(1, min(self._options.row_group_rows, fitting))
        for start in range(0, rows.num_rows, step):
            file = self._file_of(partition)
            file.write(rows if step >= rows.num_rows else rows.slice(start, step))
            if file.size >= self._target:
                self._close(partition)

    def _file_of(self, partition: _Partition) -> DataFile:
        if partition.file is None:
            while len(self._open) >= _MAX_OPEN_FILES:
                self._close(next(iter(self._open.values())))
            name = f"part-{len(self._paths):05d}-{uuid.uuid4()}-{self._options.suffix}"
            folder = f"{folder_of(self._plan.partition_names, partition.key)}/" if partition.key else ""
            path = f"{self._folder}{folder}{name}"
            partition.file = DataFile(self._storage, path, self._plan.file_schema, self._plan.stats, self._options)
            self._paths.append(path)
            self._open[partition.key] = partition
        else:
            self._open.move_to_end(partition.key)
        return partition.file

    def _close(self, partition: _Partition) -> None:
        file = partition.file
        if file is None:
            return
        values = dict(zip(self._plan.partition_names, partition.key, strict=True))
        partition.file = None
        del self._open[partition.key]
        if self._uploads is None:
            self._adds.append(self._finish(file, values))
        else:
            self._uploads.add(partial(self._finish, file, values))

    def _finish(self, file: DataFile, values: Mapping[str, str | None]) -> AddFile:
        with telemetry.span("deltalakedb.put", file=f"{self._storage.location}/{file.path}"):
            return file.finish(values, data_change=self._data_change)

    def _abandon(self) -> None:
        """Delete the written files; one that cannot be deleted is harmless, because no commit names it."""
        if self._uploads is not None:
            self._uploads.stop()
        for partition in self._open.values():
            if partition.file is not None:
                with suppress(OSError, DeltaError):
                    partition.file.abandon()
        for path in self._paths:
            with suppress(OSError, DeltaError):
                self._storage.delete(path)
