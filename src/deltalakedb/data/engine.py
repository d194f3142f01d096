"""Owns the query engine of the data plane: DuckDB in this process, which spills to disk and sees nothing but what it is
given.

One database serves the process, so that operations share one limit of memory and opening an engine costs no more than a
cursor; what is registered belongs to one engine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from deltalakedb.exceptions import ConfigError, DeltaError, PredicateError

BATCH_ROWS = 128 * 1024
# One for each set of limits that callers ask for.
_MAX_DATABASES = 8
_number = count()


class Engine:
    """Queries over Arrow data. It belongs to one thread, and a stream from `reader` ends with the next query."""

    def __init__(
        self,
        memory_limit: str | None = None,
        temp_folder: str | None = None,
        *,
        max_temp_size: str | None = None,
        joins_as_written: bool = False,
    ) -> None:
        """`joins_as_written`: of two joined tables the second is held in memory. The engine cannot know how long a
        stream is, and takes it for the smaller one."""
        database = _database(os.getpid(), memory_limit, temp_folder, max_temp_size, joins_as_written)
        self._connection = database.cursor()
        self._raised: list[Exception] = []
        """What a registered reader raised: DuckDB only quotes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, name: str, data: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Let queries read `data` as a table of this name; a reader can be read once."""
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        elif isinstance(data, pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_batches(data.schema, self._watched(data))
        self._connection.register(name, data)

    def unregister(self, name: str) -> None:
        self._connection.unregister(name)

    def execute(self, sql: str, params: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query's answer."""
        with self._failures():
            rows: list[tuple[Any, ...]] = self._connection.execute(sql, params).fetchall()
            return rows

    def table(self, sql: str, params: Sequence[Any] | None = None) -> pa.Table:
        with self._failures():
            return self._connection.execute(sql, params).to_arrow_table()

    def reader(self, sql: str, params: Sequence[Any] | None = None) -> pa.RecordBatchReader:
        """The answer as a stream."""
        with self._failures():
            stream = self._connection.execute(sql, params).to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(stream.schema, self._answer(stream))

    def types(self, sql: str) -> list[str]:
        """The types of a query's columns, as DuckDB spells them; nothing is run."""
        return [row[1] for row in self.execute(f"describe {sql}")]

    def close(self) -> None:
        self._connection.close()

    def _watched(self, data: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from data
        except Exception as error:  # DuckDB makes a text of it; whoever asked gets the error itself
            self._raised.append(error)
            raise

    def _answer(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._failures():
            yield from stream

    @contextmanager
    def _failures(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._raised:
                raise self._raised.pop() from None
            detail = str(error).partition("\n")[0]
            if isinstance(error, duckdb.OperationalError):
                raise DeltaError(f"the query engine failed: {detail}") from error
            raise PredicateError(detail) from error


@lru_cache(_MAX_DATABASES)
def _database(
    process: int, memory_limit: str | None, temp_folder: str | None, max_temp_size: str | None, joins_as_written: bool
) -> Any:
    """The database of this process; a fork must not use the one of its parent."""
    import duckdb

    # Two databases must not share a folder: each names its files as if it were alone.
    folder = os.path.join(temp_folder or tempfile.gettempdir(), f"deltalakedb-{process}-{next(_number)}")
    database = duckdb.connect()
    try:
        if memory_limit is not None:
            database.execute(f"set memory_limit = {_quoted(memory_limit)}")
        if max_temp_size is not None:
            database.execute(f"set max_temp_directory_size = {_quoted(max_temp_size)}")
        if joins_as_written:
            # Arrow, which would be handed the filter that a join makes of its keys, orders NaN otherwise.
            optimizers = "join_order,build_side_probe_side,join_filter_pushdown"
            database.execute(f"set disabled_optimizers = {_quoted(optimizers)}")
        keeps_order = "false" if joins_as_written else "true"  # a large join needs less memory without
        database.execute(
            f"set temp_directory = {_quoted(folder)}; set global TimeZone = 'UTC';"
            # as DataFusion and Spark's `div`: whole numbers divide to a whole number
            "set global integer_division = true; set global python_enable_replacements = false;"
            f"set preserve_insertion_order = {keeps_order};"
            "set enable_external_access = false; set lock_configuration = true"
        )
    except duckdb.Error as error:
        database.close()
        raise ConfigError(
            f"data.memory_limit {memory_limit!r} or data.temp_folder {folder!r} cannot be used: "
            f"{str(error).partition(chr(10))[0]}; a limit is written as '2GB' or '500MB'"
        ) from error
    return database


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
