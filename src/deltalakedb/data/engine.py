"""Owns the query engine of the data plane: DuckDB in this process, which spills to disk and sees nothing but what it is
given.

One database serves the process, so that operations share one limit of memory and opening an engine costs no more than a
cursor; what is registered belongs to one engine.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa

from deltalakedb.data.engine_functions import MACROS
from deltalakedb.exceptions import ConfigError, DeltaError, InvalidValueError, PredicateError
from deltalakedb.runtime import forks

BATCH_ROWS = 128 * 1024
# One for each set of limits that callers ask for.
_MAX_DATABASES = 8
_number = count()


def own_column(name: str) -> str:
    """The name of a column of ours beside those of a user; none of his begins with this character."""
    return f"\x01{name}"


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
        self._limits = (memory_limit, temp_folder, max_temp_size, joins_as_written)
        self._database = _database(*self._limits)
        self._connection = self._database.cursor()
        self._stream: pa.RecordBatchReader | None = None
        self._generation = forks.generation
        _live.add(self)
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
        with self._failures():
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
            stream = self._stream = self._connection.execute(sql, params).to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(stream.schema, self._answer(stream))

    def types(self, sql: str) -> list[str]:
        """The types of a query's columns, as DuckDB spells them; nothing is run."""
        return [row[1] for row in self.execute(f"describe {sql}")]

    def close(self) -> None:
        if self._generation == forks.generation:
            self._connection.close()

    def leave_to_parent(self) -> None:
        """After a fork, in the child."""
        forks.leave_to_parent((self._connection, self._stream))

    def _watched(self, data: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from data
        except Exception as error:  # DuckDB makes a text of it; whoever asked gets the error itself
            self._raised.append(error)
            raise

    def _answer(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while True:
            with self._failures():
                batch = next(stream, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _failures(self) -> Iterator[None]:
        import duckdb

        if self._generation != forks.generation:
            raise DeltaError("a query that was begun before a fork is read by its parent; ask again in the child")
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._raised:
                raise self._raised.pop() from None
            if isinstance(error, DeltaError):  # a missing file is both
                raise
            detail = _in_usual_words(str(error).partition("\n")[0])
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):
                _forget(self._limits, self._database)
                raise DeltaError(
                    f"the query engine failed: {detail}; nothing was committed, and later statements get a new engine"
                ) from error
            if isinstance(error, duckdb.OperationalError):
                raise DeltaError(f"the query engine failed: {detail}") from error
            raise (InvalidValueError if _INVALID_VALUE.search(detail) else PredicateError)(detail) from error


_ARROW_NAMES: Final = {
    "TINYINT": "Int8", "INT8": "Int8", "SMALLINT": "Int16", "INT16": "Int16", "INTEGER": "Int32", "INT32": "Int32",
    "BIGINT": "Int64", "INT64": "Int64", "FLOAT": "Float32", "DOUBLE": "Float64", "VARCHAR": "Utf8",
    "BOOLEAN": "Boolean", "BOOL": "Boolean", "DATE": "Date32", "BLOB": "Binary",
}  # fmt: skip
_INVALID_VALUE: Final = re.compile(" too large to store in |Overflowing on|non UTF-8 data|Divide by zero")
"""Errors for which `deltalake` raises a ValueError, or should."""
_WORDINGS: Final = (
    (re.compile(r"Invalid Input Error: (Cast error: Cannot cast string .*)"), "{}"),
    (
        re.compile(r"Conversion Error: Could not cast value -?nan to DECIMAL\((\d+),(\d+)\)(.*)"),
        "Cast error: Cannot cast to Decimal128({}, {}). Overflowing on NaN{}",
    ),
    (
        re.compile(r"Conversion Error: Could not cast value (-?inf) to DECIMAL\((\d+),(\d+)\)(.*)"),
        "Cast error: Cannot cast to Decimal128({1}, {2}). Overflowing on {0}{3}",
    ),
    (
        re.compile(r"Conversion Error: Could not cast value (\S+) to DECIMAL\((\d+),\d+\)(.*)"),
        "{} is too large to store in a Decimal128 of precision {}{}",
    ),
    (
        re.compile(
            r'Conversion Error: Could not convert string "\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*" to DECIMAL\((\d+),\d+\)(.*)'
        ),
        "{} is too large to store in a Decimal128 of precision {}{}",
    ),
    (re.compile(r"Conversion Error: Failure in decode: (.*)"), "Encountered non UTF-8 data: {}"),
    (
        re.compile(r"Conversion Error: Could not convert string '(.*)' to (\w+).*"),
        "Cast error: Cannot cast string '{}' to value of {} type",
    ),
    (
        re.compile(r"Conversion Error: invalid date field format: \"(.*)\", .*"),
        "Cast error: Cannot cast string '{}' to value of Date32 type",
    ),
    (
        re.compile(r"Conversion Error: invalid timestamp field format: \"(.*)\", .*"),
        "Parser error: Error parsing timestamp from '{}': error parsing date",
    ),
    (
        re.compile(r"Conversion Error: Type \w+ with value (\S+) can't be cast because .* type (\w+).*"),
        "Cast error: Can't cast value {} to type {}",
    ),
    (
        re.compile(r'Conversion Error: Casting value "(.*)" to type DECIMAL\((\d+),\d+\) failed.*'),
        "Invalid argument error: {} is too large to store in a Decimal128 of precision {}",
    ),
    (re.compile(r"Invalid Input Error: ((?:Cast error|Execution error|regexp_\w+|the text of).*)"), "{}"),
    (
        re.compile(r"Catalog Error: Scalar Function with name (\w+) does not exist!.*"),
        "Error during planning: Invalid function '{}'.",
    ),
)
"""What DuckDB says of values and functions, and how `deltalake` says it."""


def arrow_name(kind: str) -> str:
    """A type of DuckDB's by the name that Arrow has for it in Rust, as messages of `deltalake` call it."""
    return _ARROW_NAMES.get(kind, kind)


def _in_usual_words(detail: str) -> str:
    for pattern, wording in _WORDINGS:
        match = pattern.fullmatch(detail)
        if match is not None:
            return wording.format(*map(arrow_name, match.groups()))
    return detail


_Limits: TypeAlias = tuple[str | None, str | None, str | None, bool]

_live: weakref.WeakSet[Engine] = weakref.WeakSet()
_databases: dict[_Limits, Any] = {}
"""Of this process, those used last at the end."""
_opening = threading.Lock()


def _database(
    memory_limit: str | None, temp_folder: str | None, max_temp_size: str | None, joins_as_written: bool
) -> Any:
    """The database of this process with these limits; a child of a fork makes its own."""
    limits = (memory_limit, temp_folder, max_temp_size, joins_as_written)
    with _opening:
        database = _databases.pop(limits, None)
        if database is None:
            database = _open(*limits)
        _databases[limits] = database
        while len(_databases) > _MAX_DATABASES:
            del _databases[next(iter(_databases))]  # engines that use it still have it
        return database


def _forget(limits: _Limits, database: Any) -> None:
    """Let no other engine use a database: after an error inside DuckDB it answers nothing any more."""
    with _opening:
        if _databases.get(limits) is database:
            del _databases[limits]


def _hold() -> None:
    _opening.acquire()


def _go_on() -> None:
    _opening.release()


def _after_fork() -> None:
    global _opening
    _opening = threading.Lock()
    forks.leave_to_parent(_databases.values())
    _databases.clear()
    for engine in list(_live):
        engine.leave_to_parent()
    _live.clear()


# No thread is opening a database while the process forks, as DuckDB's own locks would stay locked in the child.
forks.at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_after_fork)


def _open(memory_limit: str | None, temp_folder: str | None, max_temp_size: str | None, joins_as_written: bool) -> Any:
    import duckdb

    # Two databases must not share a folder: each names its files as if it were alone.
    folder = os.path.join(temp_folder or tempfile.gettempdir(), f"deltalakedb-{os.getpid()}-{next(_number)}")
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
        for macro in MACROS:
            database.execute(macro)
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
