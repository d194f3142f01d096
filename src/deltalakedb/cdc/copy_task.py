"""The task of a copy: ranges of a table's pages, as a snapshot has them, become data files of the lake's table."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import psycopg
import pyarrow as pa
from psycopg.pq import ExecStatus
from pyarrow import csv

from deltalakedb.cdc.buckets import add_buckets, buckets_of
from deltalakedb.cdc.server import Connection, translate_errors
from deltalakedb.cdc.snapshot import PageRange, SourceMoved, claim, refusals, session_at
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.cdc.values import convert
from deltalakedb.data.writer import FileWriter
from deltalakedb.exceptions import CaptureError, DeltaError, redact
from deltalakedb.log.actions import AddFile
from deltalakedb.log.types import parse_schema, to_arrow_type
from deltalakedb.storage import open_data_storage

_BLOCK_BYTES: Final = 16 << 20
# An empty value without quotes is null, one in quotes is empty; a line without anything is the null of a single column.
_PARSE: Final = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True, slots=True, repr=False)
class CopyTask:
    """What a task must know: where to read, and where and how to write."""

    dsn: str
    snapshot: str
    table: CapturedTable
    ranges: tuple[PageRange, ...]
    location: str
    options: Mapping[str, str] | None
    schema: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None]
    folder: str
    """Below the table's location; its own until the copy is committed."""

    @property
    def source(self) -> str:
        return self.table.source


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a task made, or why it came to nothing. An exception would reach the driver as a text of Spark's alone."""

    source: str
    adds: tuple[AddFile, ...] = ()
    rows: int = 0
    failure: DeltaError | None = None
    moved: str | None = None
    """Why the snapshot is of no use any more for this table."""


def run_task(task: CopyTask) -> CopyResult:
    """Copy the ranges of a task; the files are durable, and no part of any version yet."""
    try:
        return _copy(task)
    except SourceMoved as moved:
        return CopyResult(task.source, moved=str(moved))
    except DeltaError as error:
        return CopyResult(task.source, failure=error)
    except (psycopg.Error, pa.ArrowException, OSError) as error:
        told = redact(str(error).strip())
        return CopyResult(task.source, failure=CaptureError(f"the copy of {task.source} failed: {told}"))


def _copy(task: CopyTask) -> CopyResult:
    rows = 0
    batches = _rows(task)
    with FileWriter(
        batches.schema,
        storage=open_data_storage(task.location, task.options),
        schema=parse_schema(task.schema),
        partition_columns=task.partition_columns,
        configuration=task.configuration,
        folder=task.folder,
    ) as writer:
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
        return CopyResult(task.source, tuple(writer.finish()), rows)


def _rows(task: CopyTask) -> pa.RecordBatchReader:
    """The rows as the lake's table has them."""
    table = task.table
    arrow = pa.schema([pa.field(column.name, to_arrow_type(column.type)) for column in table.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for block in _blocks(task):
            texts = _split(block, len(table.columns))
            arrays = [
                convert(texts.column(place), column.type, where=f"{table.source}.{column.name}")
                for place, column in enumerate(table.columns)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    buckets = buckets_of(task.configuration)
    found = pa.RecordBatchReader.from_batches(arrow, batches())
    return add_buckets(found, table, buckets) if buckets else found


def _blocks(task: CopyTask) -> Iterator[bytearray]:
    with session_at(task.dsn, task.snapshot) as conn, translate_errors(), refusals(conn, task.source):
        for pages in task.ranges:
            claim(conn, pages, task.source)
            yield from _lines(conn, pages.copy)


def _lines(conn: Connection, statement: str) -> Iterator[bytearray]:
    """What COPY sends, in blocks of whole rows, whatever their size: the server sends every row by itself.

    By libpq's own functions: those of psycopg cost more a row than all the rest.
    """
    pgconn = conn.pgconn
    result = pgconn.exec_(statement.encode())
    if result.status != ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(result)
    block = bytearray()
    while True:
        length, data = pgconn.get_copy_data(0)
        if length <= 0:
            break
        block += data  # at once: many small buffers that are kept are slow to free
        if len(block) >= _BLOCK_BYTES:
            yield block
            block = bytearray()
    while (end := pgconn.get_result()) is not None:
        if end.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(end)
    if block:
        yield block


def _split(block: bytearray, columns: int) -> pa.Table:
    """The texts of a block by columns, as bytes: only what stays a text has to be one."""
    names = [str(place) for place in range(columns)]
    if block.startswith(BOM_UTF8):
        block[:0] = BOM_UTF8  # the parser takes one away; ours is the beginning of a value
    return csv.read_csv(
        pa.py_buffer(block),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        parse_options=_PARSE,
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
