"""One transaction on a SQLite connection: queries, bulk inserts, and translation of SQLite's errors."""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from deltalakedb.exceptions import StoreBusyError, StoreError, redact
from deltalakedb.store.connection import (
    LIVE,
    DuplicateRowError,
    Session,
    UndefinedTableError,
    select_columns,
    spelled,
)
from deltalakedb.store.dialects.file_kinds import not_a_database
from deltalakedb.store.dialects.sqlite_columns import fetch_columns, fetch_pages
from deltalakedb.store.queries import Dialect, arrow_types

DIALECT = Dialect(
    name="sqlite", parameter=":%s", now_ms="cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as bigint)"
)
BULK_ROWS = 10_000
BULK_CACHE_KIB = 65_536
"""The cache for index pages during a bulk insert; with SQLite's default of 2 MB pages would be written repeatedly."""
PAGE_FILE_IDS = 4096
"""A page of the list of all files: small enough that its memory is reused."""

MANY_ROWS = 1000
"""From this many rows on, it pays to execute the query again and fetch columns instead of rows."""

_CLOSED = pa.schema(
    [("key_hash", pa.binary()), ("file_id", pa.int64()), ("size", pa.int64()), ("num_records", pa.int64())]
)
_CREATE_CLOSING = """
create temp table if not exists closing (key_hash blob primary key, removed_version bigint) without rowid"""
# `cross join` fixes the join order: from the few keys to their rows, never over all rows of the table.
_CLOSE_FILES = """
update dl_add_files set removed_version =
    (select c.removed_version from temp.closing c where c.key_hash = dl_add_files.key_hash)
where rowid in (
    select f.rowid from temp.closing c cross join dl_add_files f
    where f.table_id = :table_id and f.key_hash = c.key_hash and f.removed_version = :live)
returning key_hash, file_id, size, num_records"""


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
            raise_store_error(error, self._where)
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
            raise_store_error(error, self._where)
        return to_arrow(names, rows)

    def live_files(self, columns: Sequence[str], *, table_id: int, version: int) -> pa.Table:
        id_range = self.one("select_live_file_ids", table_id=table_id)
        if id_range is not None and id_range["first_file_id"] is not None:
            ids = range(id_range["first_file_id"], id_range["last_file_id"] + 1)
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
        # If most ids are gone, pages of a fixed width would mostly be empty.
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
            raise_store_error(error, self._where)

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        try:
            return self._connection.execute(statement, parameters).rowcount
        except sqlite3.Error as error:
            raise_store_error(error, self._where)

    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise_store_error(error, self._where)

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        try:
            if rows.num_rows >= BULK_ROWS:
                self._connection.execute(f"pragma cache_size = -{BULK_CACHE_KIB}")
            for batch in batches:
                self._insert_batch(table, batch)
        except sqlite3.Error as error:
            raise_store_error(error, self._where)

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        try:
            self._connection.executemany(_insert_statement(table, tuple(columns)), zip(*columns.values(), strict=True))
        except sqlite3.Error as error:
            raise_store_error(error, self._where)

    def _insert_batch(self, table: str, batch: pa.RecordBatch) -> None:
        # Columns that are null in every row are not bound: with the larger cache, bounds take a quarter less time.
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
            rows = self._connection.execute(_CLOSE_FILES, {"table_id": table_id, "live": LIVE}).fetchall()
        except sqlite3.Error as error:
            raise_store_error(error, self._where)
        columns = list(zip(*rows, strict=True)) or [()] * len(_CLOSED)
        return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, _CLOSED, strict=True)], schema=_CLOSED)

    def has_table(self, name: str) -> bool:
        _, rows = self.fetch("select 1 from sqlite_master where type = 'table' and name = :name", {"name": name})
        return bool(rows)

    def defer(self) -> None:
        """Does nothing: an embedded database has no round trips."""

    def lock_schema(self) -> None:
        """Does nothing: `begin immediate` already locks the whole database."""

    def hold_clock(self) -> None:
        """Does nothing: the write lock holds the clock."""

    def now_ms(self) -> int:
        # An embedded database uses the clock of its process.
        return time.time_ns() // 1_000_000


@lru_cache(maxsize=256)
def _insert_statement(table: str, names: tuple[str, ...]) -> str:
    return f"insert into {table} ({', '.join(names)}) values ({', '.join('?' * len(names))})"


def _with_booleans(rows: list[tuple[Any, ...]], flags: list[int]) -> list[tuple[Any, ...]]:
    """Converts the 0 and 1 that SQLite stores for booleans."""
    changed = []
    for row in rows:
        values = list(row)
        for index in flags:
            if values[index] is not None:
                values[index] = bool(values[index])
        changed.append(tuple(values))
    return changed


def to_arrow(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Converts rows to a table, with the types that columns of these names have in the schema."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [_typed(column, arrow_types().get(name)) for name, column in zip(names, columns, strict=True)]
    return pa.table(arrays, names=list(names))


def _typed(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """An array of the type that the name has in the schema, or else (a user's alias) of the values' type."""
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


def is_busy(error: Exception) -> bool:
    """Whether another connection holds the lock that this one needs."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def raise_store_error(error: Exception, where: str, *, missing: bool = False) -> NoReturn:
    """Raises SQLite's error as one of ours."""
    text = redact(str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_busy(error):
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
