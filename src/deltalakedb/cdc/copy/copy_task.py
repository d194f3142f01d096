"""The task of a copy: writes ranges of a table's pages, at a snapshot, into data files of the lake's table.

The snapshot is shared by all tasks of a copy, or the task's own; then the task reports how far the source's log was
afterwards.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import psycopg
import pyarrow as pa
from psycopg.pq import ExecStatus
from pyarrow import csv

from deltalakedb.cdc.apply.buckets import add_buckets, buckets_of
from deltalakedb.cdc.captured_table import CapturedTable, TableTroubleError
from deltalakedb.cdc.decode.values import convert_table_column
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.source.copy_plan import PageRange, SourceMoved, claim, refusals, session_at
from deltalakedb.cdc.source.postgres import Connection, connect, translate_errors
from deltalakedb.data.writer import FileWriter
from deltalakedb.exceptions import CaptureError, DeltaError, redact
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.schema.types import parse_schema, to_arrow_type
from deltalakedb.storage.location import open_storage

if TYPE_CHECKING:
    from deltalakedb.cdc.apply.landing import Landing
    from deltalakedb.cdc.settings import CaptureSettings

_BLOCK_BYTES: Final = 16 << 20
# An unquoted empty value is null, a quoted one is empty; an empty line is the null of a single column.
_PARSE: Final = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True, slots=True, repr=False)
class CopyTask:
    """The description of a task: where to read, and where and how to write."""

    dsn: str
    table: CapturedTable
    ranges: tuple[PageRange, ...]
    location: str
    options: Mapping[str, str] | None
    schema: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None]
    folder: str
    """Below the table's location; used by this copy alone until it is committed."""
    mask_key: str | None = None
    snapshot: str = ""
    """Empty: the task reads at a snapshot of its own."""
    number: int = 0
    floor: int = 0
    """For a task with its own snapshot: every transaction with a smaller id must have ended in it."""

    @classmethod
    def of(
        cls,
        landing: Landing,
        settings: CaptureSettings,
        ranges: tuple[PageRange, ...],
        *,
        snapshot: str = "",
        number: int = 0,
        floor: int = 0,
    ) -> CopyTask:
        """The task that reads these ranges for a landing."""
        return cls(
            dsn=settings.source,
            table=landing.table,
            ranges=ranges,
            location=landing.location,
            options=landing.options,
            schema=landing.metadata.schema_string,
            partition_columns=tuple(landing.metadata.partition_columns),
            configuration=dict(landing.metadata.configuration),
            folder="" if landing.job is None else landing.job.folder,
            mask_key=settings.mask_key,
            snapshot=snapshot,
            number=number,
            floor=floor,
        )

    @property
    def source(self) -> str:
        return self.table.source


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The files of a task, or why it failed. An exception would reach the driver only as a text of Spark's."""

    source: str
    adds: tuple[AddFile, ...] = ()
    rows: int = 0
    failure: DeltaError | None = None
    moved: str | None = None
    """Why the snapshot can no longer be used for this table."""
    number: int = 0
    copy_id: str = ""
    """Number and folder of the task."""
    watermark: int = 0
    """Where the source's log was afterwards, if the snapshot was the task's own."""
    waits: bool = False
    """Whether a transaction from before the copy is still running: the task must be run again."""


def run_task(task: CopyTask) -> CopyResult:
    """Copy the ranges of a task; the files are durable, but not yet part of a version."""
    try:
        done = _copy(task) if task.snapshot else _copy_now(task)
    except SourceMoved as moved:
        done = CopyResult(task.source, moved=str(moved))
    except DeltaError as error:
        done = CopyResult(task.source, failure=error)
    except (psycopg.Error, pa.ArrowException, OSError) as error:
        message = redact(str(error).strip())
        is_own = not isinstance(error, OSError | MemoryError)  # a full disk is not the table's own trouble
        trouble = TableTroubleError(task.source, f"its copy failed: {message}")
        done = CopyResult(
            task.source, failure=trouble if is_own else CaptureError(f"the copy of {task.source} failed: {message}")
        )
    return replace(done, number=task.number, copy_id=task.folder)


def run_tasks(tasks: Sequence[CopyTask]) -> list[CopyResult]:
    """Run small tasks one after the other, in one job."""
    return [run_task(task) for task in tasks]


def _copy(task: CopyTask) -> CopyResult:
    with session_at(task.dsn, task.snapshot) as conn:
        return _write(task, _blocks(task, conn))


def _copy_now(task: CopyTask) -> CopyResult:
    """Copy at a snapshot of the task's own, then write a mark into the log."""
    with closing(connect(task.dsn)) as conn, translate_errors():
        with refusals(conn, task.source):
            conn.execute("begin isolation level repeatable read read only")
            for pages in task.ranges:  # locks need no snapshot: what they exclude happened before it, or after the end
                conn.execute(pages.lock.encode())
        row = conn.execute("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
        assert row is not None, "an aggregate-free select of one row"
        if row[0] < task.floor:
            return CopyResult(task.source, waits=True)
        done = _write(task, _blocks(task, conn, is_own=True))
        conn.execute("commit")
        mark = conn.execute(
            # Transactional, so that the mark is flushed to the server's disk and the stream can reach it.
            "select pg_logical_emit_message(true, 'deltalakedb', %s)::text",
            [f"{task.folder} {task.number}"],
        ).fetchone()
        assert mark is not None, "a function that returns one value"
        return replace(done, watermark=parse_lsn(mark[0]))


def _write(task: CopyTask, blocks: Iterator[bytearray]) -> CopyResult:
    rows = 0
    batches = _rows(task, blocks)
    with FileWriter(
        batches.schema,
        storage=open_storage(task.location, task.options),
        schema=parse_schema(task.schema),
        partition_columns=task.partition_columns,
        configuration=task.configuration,
        folder=task.folder,
    ) as writer:
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
        return CopyResult(task.source, tuple(writer.finish()), rows)


def _rows(task: CopyTask, blocks: Iterator[bytearray]) -> pa.RecordBatchReader:
    """The rows in the lake's types, with buckets."""
    table = task.table
    arrow = pa.schema([pa.field(column.name, to_arrow_type(column.type)) for column in table.columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for block in blocks:
            texts = _split(block, len(table.columns))
            arrays = [
                convert_table_column(texts.column(place), column, table, task.mask_key)
                for place, column in enumerate(table.columns)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    buckets = buckets_of(task.configuration)
    rows = pa.RecordBatchReader.from_batches(arrow, batches())
    return add_buckets(rows, table, buckets) if buckets else rows


def _blocks(task: CopyTask, conn: Connection, is_own: bool = False) -> Iterator[bytearray]:
    """The rows of the ranges. With its own snapshot a whole table needs no check: any filenode can be read."""
    with translate_errors(), refusals(conn, task.source):
        for pages in task.ranges:
            if not (is_own and pages.is_whole):
                claim(conn, pages, task.source)
            yield from _lines(conn, pages.copy)


def _lines(conn: Connection, statement: str) -> Iterator[bytearray]:
    """Blocks of whole rows from COPY; the server sends each row separately.

    It calls libpq directly, because psycopg's own functions cost more per row than everything else.
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
        block += data  # at once, because many small buffers are slow to free
        if len(block) >= _BLOCK_BYTES:
            yield block
            block = bytearray()
    while (end := pgconn.get_result()) is not None:
        if end.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(end)
    if block:
        yield block


def _split(block: bytearray, columns: int) -> pa.Table:
    """The texts of a block by column, as bytes: only columns that stay text need a conversion to text."""
    names = [str(place) for place in range(columns)]
    if block.startswith(BOM_UTF8):
        block[:0] = BOM_UTF8  # the parser removes one BOM; ours is the beginning of a value
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
