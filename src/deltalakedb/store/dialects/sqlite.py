"""SQLite: WAL, one writer at a time by `begin immediate`, read-only connections for users' SQL."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from deltalakedb.exceptions import StoreBusyError, StoreError, redact
from deltalakedb.store.connection import (
    LIVE,
    Connection,
    DuplicateRowError,
    EngineName,
    SchemaMode,
    Session,
    UndefinedTableError,
    select_columns,
    spelled,
)
from deltalakedb.store.dialects.file_kinds import not_a_database
from deltalakedb.store.dialects.pool import Pool
from deltalakedb.store.dialects.sqlite_columns import fetch_columns, fetch_pages
from deltalakedb.store.queries import Dialect, arrow_types

DIALECT = Dialect(
    name="sqlite", parameter=":%s", now_ms="cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as bigint)"
)
WAL_TRIES = 200
BULK_ROWS = 10_000
BULK_CACHE_KIB = 65_536
"""Pages of the indexes that a bulk insert keeps in memory; SQLite's own 2 MB would be written out again and again."""
SMALLEST_FILE = 512
PAGE_FILE_IDS = 4096
"""A page of the list of all files: small enough for its texts to stay in memory that is used again and again."""

MANY_ROWS = 1000
"""Results from this size on are worth a second execution that fetches columns instead of rows."""

_CLOSED = pa.schema(
    [("key_hash", pa.binary()), ("file_id", pa.int64()), ("size", pa.int64()), ("num_records", pa.int64())]
)
_CREATE_CLOSING = """
create temp table if not exists closing (key_hash blob primary key, removed_version bigint) without rowid"""
# `cross join` holds SQLite to the join order: from the few keys to their rows, never over all rows of the table.
_CLOSE_FILES = """
update dl_add_files set removed_version =
    (select c.removed_version from temp.closing c where c.key_hash = dl_add_files.key_hash)
where rowid in (
    select f.rowid from temp.closing c cross join dl_add_files f
    where f.table_id = :table_id and f.key_hash = c.key_hash and f.removed_version = :live)
returning key_hash, file_id, size, num_records"""
_SELECT_ACTIONS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


class SqliteSession(Session):
    """One transaction on a SQLite connection."""

    dialect = DIALECT

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection = connection
        self._where = where

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        try:
            cursor = self._connection.execute(statement, parameters)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            _raise(error, self._where)
        names = [column[0] for column in cursor.description or ()]
        flags = [index for index, name in enumerate(names) if arrow_types().get(name) == pa.bool_()]
        return names, _with_booleans(rows, flags) if flags else rows

    def fetch_arrow(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table:
        try:
            cursor = self._connection.execute(statement, parameters)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(MANY_ROWS)
            if len(rows) == MANY_ROWS:
                table = fetch_columns(self._connection, statement, parameters, names, rows)
                if table is not None:
                    return table
                rows += cursor.fetchall()
        except sqlite3.Error as error:
            _raise(error, self._where)
        return _to_arrow(names, rows)

    def live_files(self, columns: Sequence[str], *, table_id: int, version: int) -> pa.Table:
        reach = self.one("select_live_file_ids", table_id=table_id)
        if reach is not None and reach["first_file_id"] is not None:
            ids = range(reach["first_file_id"], reach["last_file_id"] + 1)
            table = self._in_pages(columns, "select_live_files_between", ids, PAGE_FILE_IDS, table_id=table_id)
            if table is not None:
                return table
        return super().live_files(columns, table_id=table_id, version=version)

    def file_page(
        self,
        columns: Sequence[str],
        *,
        table_id: int,
        version: int,
        first_file_id: int,
        last_file_id: int,
        at_head: bool,
    ) -> pa.Table:
        ids = range(first_file_id, last_file_id + 1)
        # Where most ids are gone, pages of a fixed width would be many empty ones.
        width = max(2 * PAGE_FILE_IDS, len(ids) // 8)
        if at_head:
            table = self._in_pages(columns, "select_live_files_between", ids, width, table_id=table_id)
        else:
            table = self._in_pages(columns, "select_files_between", ids, width, table_id=table_id, version=version)
        if table is not None:
            return table
        return super().file_page(
            columns,
            table_id=table_id,
            version=version,
            first_file_id=first_file_id,
            last_file_id=last_file_id,
            at_head=at_head,
        )

    def _in_pages(
        self, columns: Sequence[str], query: str, ids: range, width: int, **parameters: int
    ) -> pa.Table | None:
        statement = spelled(select_columns(columns, query), self.dialect).text
        pages = [
            {**parameters, "first_file_id": first, "last_file_id": min(first + width, ids.stop) - 1}
            for first in ids[::width]
        ]
        try:
            return fetch_pages(self._connection, statement, pages, columns)
        except sqlite3.Error as error:
            _raise(error, self._where)

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        try:
            return self._connection.execute(statement, parameters).rowcount
        except sqlite3.Error as error:
            _raise(error, self._where)

    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            _raise(error, self._where)

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        try:
            if rows.num_rows >= BULK_ROWS:
                self._connection.execute(f"pragma cache_size = -{BULK_CACHE_KIB}")
            for batch in batches:
                self._insert_batch(table, batch)
        except sqlite3.Error as error:
            _raise(error, self._where)

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        try:
            self._connection.executemany(_insert_statement(table, tuple(columns)), zip(*columns.values(), strict=True))
        except sqlite3.Error as error:
            _raise(error, self._where)

    def _insert_batch(self, table: str, batch: pa.RecordBatch) -> None:
        # What is null in every row is not bound at all: with the larger cache a quarter less time for bounds.
        names = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
        if names:
            columns = [batch.column(name).to_pylist() for name in names]
            self._connection.executemany(_insert_statement(table, tuple(names)), zip(*columns, strict=True))

    def close_files(self, table_id: int, closes: pa.Table) -> pa.Table:
        keys = zip(closes.column("key_hash").to_pylist(), closes.column("removed_version").to_pylist(), strict=True)
        try:
            self._connection.execute(_CREATE_CLOSING)
            self._connection.execute("delete from temp.closing")
            self._connection.executemany("insert into temp.closing (key_hash, removed_version) values (?, ?)", keys)
            found = self._connection.execute(_CLOSE_FILES, {"table_id": table_id, "live": LIVE}).fetchall()
        except sqlite3.Error as error:
            _raise(error, self._where)
        columns = list(zip(*found, strict=True)) or [()] * len(_CLOSED)
        return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, _CLOSED, strict=True)], schema=_CLOSED)

    def has_table(self, name: str) -> bool:
        _, rows = self.fetch("select 1 from sqlite_master where type = 'table' and name = :name", {"name": name})
        return bool(rows)

    def defer(self) -> None:
        """An embedded database answers at once."""

    def lock_schema(self) -> None:
        """`begin immediate` has locked the whole database already."""

    def now_ms(self) -> int:
        # An embedded database has no clock but its process's.
        return time.time_ns() // 1_000_000


class SqliteStore:
    """A SQLite file. Connections are pooled; each is used by one block at a time."""

    name: EngineName = "sqlite"
    dialect = DIALECT

    def __init__(
        self, path: str | Path, *, schema: SchemaMode, max_connections: int, busy_timeout_seconds: float
    ) -> None:
        self.path = Path(path).absolute()
        self._busy_timeout_seconds = busy_timeout_seconds
        self._where = f"SQLite database {self.path}"
        self._may_create = schema == "create_if_missing"
        if self.path.is_file() and 0 < self.path.stat().st_size < SMALLEST_FILE:
            # SQLite would take so short a file for an empty database, and overwrite it.
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
        del holds_clock  # the write lock does
        with self._session("begin immediate", durable=durable) as session:
            yield session

    @contextmanager
    def _session(self, begin: str, *, durable: bool = True) -> Iterator[SqliteSession]:
        connection, _ = self._pool.take()
        broken = False
        try:
            session = SqliteSession(connection, self._where)
            if not durable:
                # The WAL is not forced to disk now; the next durable commit, of whoever, forces all before it too.
                session.execute("pragma synchronous = normal", {})
            if begin:
                session.execute(begin, {})
            yield session
            if begin:
                session.execute("commit", {})
        finally:
            if connection.in_transaction:
                try:
                    connection.rollback()
                except sqlite3.Error:
                    broken = True
            if not durable and not broken:
                try:
                    connection.execute("pragma synchronous = full")
                except sqlite3.Error:
                    broken = True
            self._pool.give(connection, broken=broken)

    def settle(self) -> None:
        # Whoever has read the clock holds the write lock until its transaction ends.
        with self._session("begin immediate"):
            pass

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        connection = self._open("ro")
        try:
            # The file is opened read-only; the authorizer leaves nothing but SELECT, so not even ATTACH or PRAGMA.
            connection.set_authorizer(_allow_select)
            cursor = connection.execute(text, parameters or {})
            if cursor.description is None:
                raise StoreError("only one SELECT statement can be run here")
            return _to_arrow([column[0] for column in cursor.description], cursor.fetchall())
        except (sqlite3.Error, sqlite3.Warning) as error:
            if "not authorized" in str(error) or "one statement" in str(error):
                raise StoreError(f"only one SELECT statement can be run here: {redact(str(error))}") from error
            _raise(error, self._where)
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = self._open("rwc" if self._may_create else "rw")
        try:
            connection.execute("pragma synchronous = full")
            # Bulk loads touch several indexes at random; with the default of 2 MB their pages are written many times.
            connection.execute("pragma cache_size = -65536")
            connection.execute("pragma temp_store = memory")
        except sqlite3.Error as error:
            connection.close()
            _raise(error, self._where)
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
            _raise(error, self._where, missing=not self.path.exists())

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Switching to WAL does not wait for the busy time-out when several processes create the file at once.
        for attempt in range(WAL_TRIES):
            try:
                if connection.execute("pragma journal_mode").fetchone()[0] == "wal":
                    return
                connection.execute("pragma journal_mode = wal").fetchone()
            except sqlite3.Error as error:
                if not _is_busy(error) or attempt == WAL_TRIES - 1:
                    _raise(error, self._where)
                time.sleep(0.01)


def open_sqlite(
    target: str | Mapping[str, Any], *, schema: SchemaMode, max_connections: int, busy_timeout_seconds: float
) -> SqliteStore:
    path = target if isinstance(target, str | Path) else target["path"]
    return SqliteStore(path, schema=schema, max_connections=max_connections, busy_timeout_seconds=busy_timeout_seconds)


@lru_cache(maxsize=256)
def _insert_statement(table: str, names: tuple[str, ...]) -> str:
    return f"insert into {table} ({', '.join(names)}) values ({', '.join('?' * len(names))})"


def _allow_select(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _SELECT_ACTIONS else sqlite3.SQLITE_DENY


def _with_booleans(rows: list[tuple[Any, ...]], flags: list[int]) -> list[tuple[Any, ...]]:
    """SQLite keeps booleans as 0 and 1."""
    changed = []
    for row in rows:
        values = list(row)
        for index in flags:
            if values[index] is not None:
                values[index] = bool(values[index])
        changed.append(tuple(values))
    return changed


def _to_arrow(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [_typed(column, arrow_types().get(name)) for name, column in zip(names, columns, strict=True)]
    return pa.table(arrays, names=list(names))


def _typed(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """An array of the type the column's name has in the schema, else (a user's own alias) of what the values are."""
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # SQLite lets values of several types into one column
        return pa.array([None if value is None else str(value) for value in values], type=pa.string())
    if kind is None or array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if not pa.types.is_integer(array.type) or (kind == pa.bool_() and set(values) - {0, 1, None}):
        return array
    return array.cast(kind) if kind == pa.bool_() or pa.types.is_integer(kind) else array


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _raise(error: Exception, where: str, *, missing: bool = False) -> NoReturn:
    text = redact(str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if _is_busy(error):
        raise StoreBusyError(
            f"{where} stayed locked by another writer: {text}; try again, or raise busy_timeout_seconds"
        ) from error
    if code == sqlite3.SQLITE_NOTADB:
        raise not_a_database(Path(where.removeprefix("SQLite database ")), "sqlite") from error
    if isinstance(error, sqlite3.IntegrityError) and "UNIQUE constraint failed" in text:
        raise DuplicateRowError(f"{where}: {text}", text.partition(": ")[2]) from error
    if text.startswith("no such table"):
        raise UndefinedTableError(f"{where}: {text}") from error
    if missing:
        raise StoreError(f"{where} does not exist or cannot be created: {text}") from error
    raise StoreError(f"{where}: {text}") from error
