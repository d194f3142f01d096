"""Reads a range of the source's log: a copy of the slot is peeked into Arrow and decoded as it arrives."""

from __future__ import annotations

import atexit
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, Self

import pyarrow as pa

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.decode.pgoutput import ChangeRows, Decoder, Event, RangeRead, RelationChanged, Stopped
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source.postgres import SESSION, complete_dsn, read_sql, translate_errors
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    MissingExtraError,
    SlotLostError,
    SourceUnavailableError,
    redact,
)

__all__ = ["ChangeRows", "RangeRead", "RelationChanged", "Stopped", "read_changes"]

_PREPARE: Final = read_sql("prepare_peek").decode()
_PEEK: Final = read_sql("peek_changes").decode()
_COPY: Final = read_sql("copy_slot").decode()

_SERVER_ERROR: Final = re.compile(r"ERROR:\s+(.*)")
_LOST_TEXTS: Final = re.compile(
    r'replication slot ".*" does not exist|cannot advance replication slot|can no longer|invalidated'
)
_UNPUBLISHED: Final = re.compile('publication ".*" does not exist')
_BUSY_TEXTS: Final = re.compile("all replication slots are in use|modified incompatibly")


def read_changes(
    dsn: str,
    slot: str,
    publication: str,
    start: int,
    end: int,
    tables: Sequence[CapturedTable],
    *,
    mask_key: str | None = None,
) -> Iterator[Event]:
    """The changes of `tables` in transactions whose commit record begins in [start, end), then one RangeRead.

    The slot itself is not changed, and may be read by others at the same time.
    """
    decoder = Decoder(tables, start, end, mask_key=mask_key)
    if start < end:
        with translate_errors(), ArrowSession(dsn) as session:
            with _slot_errors(slot, start):
                _copy_slot(session, slot, publication, start, end)
                batches = session.execute(_PEEK)
            while (batch := _next_batch(batches, slot, start)) is not None:
                yield from decoder.decode(batch.column(0))
    yield decoder.finish()


def _next_batch(batches: pa.RecordBatchReader, slot: str, start: int) -> pa.RecordBatch | None:
    with _slot_errors(slot, start):
        try:
            return batches.read_next_batch()
        except StopIteration:
            return None


def _copy_slot(session: ArrowSession, slot: str, publication: str, start: int, end: int) -> None:
    """Create a copy of the slot at `start` that ends with the session; only this session can read it."""
    copy = f"dl_read_{uuid.uuid4().hex}"
    *_, is_there, quoted = session.fetch(_PREPARE, slot, copy, format_lsn(start), format_lsn(end), publication)
    if not is_there:
        raise CaptureSetupError(
            f"the source has no publication {publication}: create publication {quoted} for all tables; "
            "what was changed while it was missing is not in the log's messages, so copy the tables again then: "
            "dl cdc resnapshot"
        )
    session.fetch(_COPY)


@contextmanager
def _slot_errors(slot: str, start: int) -> Iterator[None]:
    """Translate server errors about a lost slot, or no room for a copy, and a broken stream."""
    try:
        yield
    except Exception as error:  # ADBC's error classes cannot be named without loading it
        is_stream = isinstance(
            error, OSError | pa.ArrowException
        )  # the reader of a stream does not raise ADBC's errors
        if not is_stream and not type(error).__module__.startswith("adbc_driver"):
            raise
        match = _SERVER_ERROR.search(str(error))
        text = redact(match[1] if match else str(error).strip())
        if _BUSY_TEXTS.search(text):
            raise SourceUnavailableError(
                f"the slot {slot} cannot be copied for a reader just now: {text}; if it stays so, more of them are "
                "needed: alter system set max_replication_slots"
            ) from error
        if _LOST_TEXTS.search(text):
            raise SlotLostError(
                f"the slot {slot} cannot be read from {format_lsn(start)}: {text}; "
                "changes are lost, copy the tables again: dl cdc resnapshot"
            ) from error
        if _UNPUBLISHED.search(text):
            raise CaptureSetupError(
                f"the publication of {slot} was not there when the log at {format_lsn(start)} was written, or was made "
                "anew since: what was changed meanwhile is in no message, so copy the tables again: dl cdc resnapshot"
            ) from error
        if is_stream and match is None:
            raise SourceUnavailableError(f"the connection to the source broke: {text.splitlines()[0]}") from error
        if is_stream:
            raise CaptureError(f"the slot {slot} cannot be read from {format_lsn(start)}: {text}") from error
        raise


try:
    import adbc_driver_manager as adbc
    import adbc_driver_postgresql
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.cdc", "cdc") from None

_BATCH_BYTES: Final = 4 << 20  # the arrays of a batch stay in the cache: a fifth faster than 16 MB
_BATCH_OPTION: Final = "adbc.postgresql.batch_size_hint_bytes"
# Settings made in a function last as long as the session, and it takes one round trip.
_SESSION: Final = f"do $session$ begin {SESSION} end $session$"


class ArrowSession:
    """A session with our settings; it ends with its block."""

    def __init__(self, dsn: str) -> None:
        self._connection = adbc.AdbcConnection(_database(complete_dsn(dsn)))
        self._statements: list[adbc.AdbcStatement] = []
        try:
            self.execute(_SESSION)
        except BaseException:
            self.close()
            raise

    def execute(self, query: str, *values: str) -> pa.RecordBatchReader:
        """Execute a statement; the result streams if the statement has no parameters ($1, ...)."""
        statement = adbc.AdbcStatement(self._connection)
        self._statements.append(statement)
        statement.set_options(**{_BATCH_OPTION: str(_BATCH_BYTES)})
        statement.set_sql_query(query)
        if values:
            row = pa.record_batch(
                [pa.array([value]) for value in values], [f"${place}" for place in range(len(values))]
            )
            statement.prepare()
            schema, array = row.__arrow_c_array__()
            statement.bind(array, schema)
        stream, _ = statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream)

    def fetch(self, query: str, *values: str) -> tuple[Any, ...]:
        """The only row of a statement's result."""
        (row,) = self.execute(query, *values).read_all().to_pylist()
        return tuple(row.values())

    def close(self) -> None:
        for statement in reversed(self._statements):
            statement.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_trouble: object) -> None:
        self.close()


@lru_cache(maxsize=64)
def _database(dsn: str) -> adbc.AdbcDatabase:
    """ADBC's database object, cached because loading its types takes longer than reading a small range."""
    database: adbc.AdbcDatabase = adbc_driver_postgresql.connect(dsn)
    atexit.register(_release, database)
    return database


def _release(database: adbc.AdbcDatabase) -> None:
    with suppress(adbc.Error):
        database.close()
