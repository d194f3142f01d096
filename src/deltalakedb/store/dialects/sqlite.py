"""SQLite: WAL, one writer at a time by `begin immediate`, read-only connections for users' SQL."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalakedb.exceptions import StoreError, redact
from deltalakedb.store.connection import Connection, EngineName, SchemaMode
from deltalakedb.store.dialects.file_kinds import not_a_database
from deltalakedb.store.dialects.pool import Pool
from deltalakedb.store.dialects.sqlite_session import DIALECT, SqliteSession, is_busy, raise_store_error, to_arrow

WAL_TRIES = 200
SMALLEST_FILE = 512
_SELECT_ACTIONS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


class SqliteStore:
    """A SQLite file. Connections are pooled; each is used by one block at a time."""

    name: EngineName = "sqlite"
    dialect = DIALECT
    is_for_one_process = False

    def __init__(
        self,
        target: str | Path | Mapping[str, Any],
        *,
        schema: SchemaMode,
        max_connections: int,
        busy_timeout_seconds: float,
    ) -> None:
        self.path = Path(target if isinstance(target, str | Path) else target["path"]).absolute()
        self._busy_timeout_seconds = busy_timeout_seconds
        self._where = f"SQLite database {self.path}"
        self._may_create = schema == "create_if_missing"
        if self.path.is_file() and 0 < self.path.stat().st_size < SMALLEST_FILE:
            # SQLite would take such a short file for an empty database, and overwrite it.
            raise not_a_database(self.path, "sqlite")
        self._pool = Pool(
            self._connect,
            sqlite3.Connection.close,
            size=max_connections,
            timeout_seconds=busy_timeout_seconds,
            what=self._where,
        )
        connection, _ = self._pool.take()
        try:
            if self._may_create:
                self._use_wal(connection)
        except BaseException:
            self._pool.give(connection, broken=True)
            raise
        self._pool.give(connection)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def __enter__(self) -> "SqliteStore":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def read(self, *, single: bool = False) -> Iterator[Connection]:
        with self._session("" if single else "begin") as session:
            yield session

    @contextmanager
    def write(self, *, durable: bool = True, holds_clock: bool = False) -> Iterator[Connection]:
        del holds_clock  # the write lock holds the clock
        with self._session("begin immediate", durable=durable) as session:
            yield session

    @contextmanager
    def _session(self, begin: str, *, durable: bool = True) -> Iterator[SqliteSession]:
        connection, _ = self._pool.take()
        try:
            session = SqliteSession(connection, self._where)
            if not durable:
                # The WAL is not synced now; the next durable commit of any connection syncs it.
                session.execute("pragma synchronous = normal", {})
            if begin:
                session.execute(begin, {})
            yield session
            if begin and self._pool.owns(connection):
                session.execute("commit", {})
        finally:
            if self._pool.owns(connection):  # otherwise the block was opened before a fork, and belongs to the parent
                self._give(connection, durable=durable)

    def _give(self, connection: sqlite3.Connection, *, durable: bool) -> None:
        broken = False
        try:
            if connection.in_transaction:
                connection.rollback()
            if not durable:
                connection.execute("pragma synchronous = full")
        except sqlite3.Error:
            broken = True
        self._pool.give(connection, broken=broken)

    def settle(self) -> None:
        # A transaction that has read the clock holds the write lock until it ends.
        with self._session("begin immediate"):
            pass

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        connection = self._open("ro")
        try:
            # The file is opened read-only; the authorizer allows only SELECT, not even ATTACH or PRAGMA.
            connection.set_authorizer(_allow_select)
            cursor = connection.execute(text, parameters or {})
            if cursor.description is None:
                raise StoreError("only one SELECT statement can be run here")
            return to_arrow([column[0] for column in cursor.description], cursor.fetchall())
        except (sqlite3.Error, sqlite3.Warning) as error:
            if "not authorized" in str(error) or "one statement" in str(error):
                raise StoreError(f"only one SELECT statement can be run here: {redact(str(error))}") from error
            raise_store_error(error, self._where)
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = self._open("rwc" if self._may_create else "rw")
        try:
            connection.execute("pragma synchronous = full")
            # Bulk loads access several indexes at random; with the default cache of 2 MB pages are written many times.
            connection.execute("pragma cache_size = -65536")
            connection.execute("pragma temp_store = memory")
        except sqlite3.Error as error:
            connection.close()
            raise_store_error(error, self._where)
        return connection

    def _open(self, mode: str) -> sqlite3.Connection:
        try:
            return sqlite3.connect(
                f"{self.path.as_uri()}?mode={mode}",
                uri=True,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise_store_error(error, self._where, missing=not self.path.exists())

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Switching to WAL ignores the busy timeout if several processes create the file at once.
        for attempt in range(WAL_TRIES):
            try:
                if connection.execute("pragma journal_mode").fetchone()[0] == "wal":
                    return
                connection.execute("pragma journal_mode = wal").fetchone()
            except sqlite3.Error as error:
                if not is_busy(error) or attempt == WAL_TRIES - 1:
                    raise_store_error(error, self._where)
                time.sleep(0.01)


open_sqlite = SqliteStore


def _allow_select(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _SELECT_ACTIONS else sqlite3.SQLITE_DENY
