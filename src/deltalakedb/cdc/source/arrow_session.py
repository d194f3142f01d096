"""A session on the source whose results stream into Arrow."""

from __future__ import annotations

import atexit
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from deltalakedb.cdc.source.server import SESSION, complete_dsn
from deltalakedb.exceptions import MissingExtraError

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
