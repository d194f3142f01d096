"""A session on Postgres: statements in pipelines, rows to Arrow, inserts by value, by array or by COPY."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, NoReturn

import orjson
import psycopg
import pyarrow as pa
from psycopg import generators
from psycopg.pq import ExecStatus

from deltalakedb.exceptions import StoreBusyError, StoreError, redact
from deltalakedb.store.connection import (
    LIVE,
    Ask,
    ConnectionLostError,
    DuplicateRowError,
    LostRaceError,
    Row,
    Session,
    UndefinedTableError,
    checked,
    spelled,
)
from deltalakedb.store.dialects.postgres_copy import copy_in, copy_out
from deltalakedb.store.queries import Dialect, Statement, named, named_queries, table_columns

SCHEMA = "deltalakedb"
DIALECT = Dialect(
    name="postgres",
    parameter="%%(%s)s",
    for_update="for update",
    in_list=("= any(array(", "))"),
    now_ms="floor(extract(epoch from clock_timestamp()) * 1000)::bigint",
    schema=SCHEMA,
    types=(("text", 'text collate "C"'), ("blob", "bytea")),
    doubles_percent=True,
)
CHUNK_ROWS = 20_000
"""How many rows are Python values at a time while they are converted to Arrow."""

FEW_ROWS = 2
"""Up to this many rows are sent as one list of values; more as arrays, whose statement text is always the same."""

LONG_TEXT = 1_000
"""Longer texts are never sent in arrays: the driver escapes their quotes one by one (measured: 2 ms for 40 kB)."""

COMMIT_LOCK = 0x636F6D6D6974  # "commit"; shared by all transactions between reading the clock and their end
MIGRATION_LOCK = 0x64656C7461  # "delta"; one key for all catalogs of a database

_BUSY_STATES = frozenset({"55P03", "57014"})
_RETRYABLE_STATES = frozenset({"40P01", "40001"})
_LOST_STATES = frozenset({"57P01", "57P02", "57P03", "08000", "08003", "08006"})
_UNDEFINED_STATES = frozenset({"42P01", "3F000"})
_ARROW_BY_OID = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int32(),
    23: pa.int32(),
    25: pa.string(),
    700: pa.float64(),
    701: pa.float64(),
    1043: pa.string(),
}
_CLOSED = pa.schema(
    [("key_hash", pa.binary()), ("file_id", pa.int64()), ("size", pa.int64()), ("num_records", pa.int64())]
)
_FEW_VERSIONS = 16
"""Up to this many versions of one flush close their files with a statement each; more come from an import."""
_CLOSE_AT_VERSION = (
    f"update {SCHEMA}.dl_add_files set removed_version = %(version)s "
    "where table_id = %(table_id)s and key_hash = any(%(keys)s::bytea[]) and removed_version = %(live)s "
    "returning key_hash, file_id, size, num_records"
)
_CLOSE_AT_VERSIONS = (
    f"update {SCHEMA}.dl_add_files f set removed_version = c.removed_version "
    "from unnest(%(keys)s::bytea[], %(versions)s::bigint[]) as c (key_hash, removed_version) "
    "where f.table_id = %(table_id)s and f.key_hash = c.key_hash and f.removed_version = %(live)s "
    "returning f.key_hash, f.file_id, f.size, f.num_records"
)


_OPEN = f"select {SCHEMA}.dl_open($1, $2)".encode()
_ARRAY_TYPES = {"blob": "bytea", "double": "float8"}

PgConnection = psycopg.Connection[tuple[Any, ...]]


class PostgresSession(Session):
    """One transaction on a Postgres connection."""

    dialect = DIALECT

    def __init__(
        self, connection: PgConnection, where: str, address: Mapping[str, Any], *, opens: bool = False
    ) -> None:
        """`opens`: the database has the function that opens a table (`dl_open`)."""
        self._connection = connection
        self._where = where
        self._address = address
        self._opens = opens
        self._pipeline: ExitStack | None = None

    def all(self, query: str, **parameters: Any) -> list[Row]:
        if query != "open_table" or not self._opens:
            return super().all(query, **parameters)
        row_json = self.call(_OPEN, [parameters["namespace_key"].encode(), parameters["name_key"].encode()])
        # The function finds Delta tables only.
        return super().all(query, **parameters) if row_json is None else [orjson.loads(row_json)]

    def call(self, statement: bytes, parameters: Sequence[bytes | None]) -> bytes | None:
        """Returns one value, by the driver's low-level calls: its cursors cost more than a short statement."""
        try:
            connection = self._connection.pgconn
            connection.send_query_params(statement, parameters)
            (result,) = self._connection.wait(generators.execute(connection))
            if result.status != ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result, encoding="utf-8")
            value: bytes | None = result.get_value(0, 0)
            return value
        except psycopg.Error as error:
            self._fail(error)

    def gather(self, asks: Sequence[Ask]) -> list[list[Row]]:
        try:
            with self._connection.pipeline():
                cursors = [
                    self._connection.execute(as_query(checked(_spelled(query), parameters)), parameters)
                    for query, parameters in asks
                ]
            return [_rows(cursor) for cursor in cursors]
        except psycopg.Error as error:
            self._fail(error)

    def defer(self) -> None:
        if self._pipeline is None:
            self._pipeline = ExitStack()
            self._pipeline.enter_context(self._connection.pipeline())

    def settle_deferred(self) -> None:
        """Waits for the results of all deferred changes."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            try:
                pipeline.close()
            except psycopg.Error as error:
                self._fail(error)

    def _fail(self, error: psycopg.Error) -> NoReturn:
        if isinstance(error, psycopg.errors.PipelineAborted) and error.__context__ is not None:
            cause = error.__context__  # the error that aborted the pipeline
            error = cause if isinstance(cause, psycopg.Error) else error
        if error.sqlstate in _LOST_STATES or self._connection.closed:
            raise ConnectionLostError(f"{self._where}: the connection was lost: {redact(str(error))}") from error
        raise_error(error, self._where)

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        try:
            cursor = self._connection.execute(as_query(statement), parameters)
            rows = cursor.fetchall()
        except psycopg.Error as error:
            self._fail(error)
        return _names(cursor), rows

    def fetch_arrow(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table:
        try:
            with self._connection.cursor(binary=True) as cursor:
                cursor.execute(as_query(statement), parameters)
                return to_arrow(cursor)
        except psycopg.Error as error:
            self._fail(error)

    def sql_large(self, text: str, **parameters: Any) -> pa.Table:
        statement = checked(spelled(text, self.dialect), parameters)
        literal = psycopg.ClientCursor(self._connection).mogrify(as_query(statement), parameters)
        table = copy_out(self._address, literal)
        return self.fetch_arrow(statement, parameters) if table is None else table

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        try:
            return self._connection.execute(as_query(statement), parameters).rowcount
        except psycopg.Error as error:
            self._fail(error)

    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(as_query(statement), rows)
        except psycopg.Error as error:
            self._fail(error)

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        names = tuple(columns)
        rows = len(columns[names[0]])
        try:
            if rows <= FEW_ROWS or _has_long_text(columns):
                values = [value for row in zip(*columns.values(), strict=True) for value in row]
                self._connection.execute(as_query(_insert_values(table, names, rows)), values)
            else:
                self._connection.execute(as_query(_insert_arrays(table, names)), [list(c) for c in columns.values()])
        except psycopg.Error as error:
            self._fail(error)

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        self.settle_deferred()  # COPY cannot run inside a pipeline
        try:
            copy_in(self._connection, f"{SCHEMA}.{table}", rows)
        except psycopg.Error as error:
            self._fail(error)

    def close_files(self, table_id: int, closes: pa.Table) -> pa.Table:
        keys, versions = closes.column("key_hash").to_pylist(), closes.column("removed_version").to_pylist()
        by_version: dict[int, list[bytes]] = {}
        for key, version in zip(keys, versions, strict=True):
            by_version.setdefault(version, []).append(key)
        ids = {"table_id": table_id, "live": LIVE}
        if len(by_version) <= _FEW_VERSIONS:
            rows = [
                row
                for version, closed in by_version.items()
                for row in self.fetch(_CLOSE_AT_VERSION, {**ids, "version": version, "keys": closed})[1]
            ]
        else:
            rows = self._close_at_versions({**ids, "keys": keys, "versions": versions})
        columns = list(zip(*rows, strict=True)) or [()] * len(_CLOSED)
        return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, _CLOSED, strict=True)], schema=_CLOSED)

    def _close_at_versions(self, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        # For a table that was never analysed Postgres expects one live file, and would compare all keys with all files.
        self.execute("set local enable_nestloop = off", {})
        _, rows = self.fetch(_CLOSE_AT_VERSIONS, given)
        self.execute("set local enable_nestloop = on", {})
        return rows

    def has_table(self, name: str) -> bool:
        _, rows = self.fetch("select to_regclass(%(name)s) is not null", {"name": f"{SCHEMA}.{name}"})
        return bool(rows[0][0])

    def lock_schema(self) -> None:
        self.execute("select pg_advisory_xact_lock(%(key)s)", {"key": MIGRATION_LOCK})
        _, rows = self.fetch("select 1 from pg_namespace where nspname = %(name)s", {"name": SCHEMA})
        if not rows:  # `create schema if not exists` needs the CREATE privilege even if the schema exists
            self.execute(f"create schema {SCHEMA}", {})

    def hold_clock(self) -> None:
        self.execute("select pg_advisory_xact_lock_shared(%(key)s)", {"key": COMMIT_LOCK})

    def now_ms(self) -> int:
        _, rows = self.fetch("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint", {})
        return int(rows[0][0])


def _has_long_text(columns: Mapping[str, Sequence[Any]]) -> bool:
    """Whether the first row has a text that would take longer to escape in an array than the rows take as values."""
    return any(isinstance(column[0], str) and len(column[0]) > LONG_TEXT for column in columns.values())


@lru_cache(maxsize=256)
def _insert_values(table: str, names: tuple[str, ...], rows: int) -> str:
    marks = f"({', '.join(['%s'] * len(names))})"
    return f"insert into {SCHEMA}.{table} ({', '.join(names)}) values {', '.join([marks] * rows)}"


@lru_cache(maxsize=64)
def _insert_arrays(table: str, names: tuple[str, ...]) -> str:
    kinds = table_columns()[table]
    arrays = ", ".join(f"%s::{_ARRAY_TYPES.get(kinds[name], kinds[name])}[]" for name in names)
    return f"insert into {SCHEMA}.{table} ({', '.join(names)}) select * from unnest({arrays})"


def _spelled(query: str) -> Statement:
    """A named query, or SQL text, as Postgres spells it."""
    return named(query, DIALECT) if query in named_queries() else spelled(query, DIALECT)


def _names(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[str]:
    """The names of the columns; `cursor.description` would create an object for each column."""
    result = cursor.pgresult
    return [] if result is None else [(result.fname(n) or b"").decode() for n in range(result.nfields)]


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[Row]:
    names = _names(cursor)
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()] if names else []


def to_arrow(cursor: psycopg.Cursor[tuple[Any, ...]]) -> pa.Table:
    """Converts all remaining rows of a cursor; types are those of Postgres, or else of the values."""
    description = cursor.description or []
    kinds = [_ARROW_BY_OID.get(column.type_code) for column in description]
    names = [column.name for column in description]
    chunks = [_to_arrow_chunk(names, kinds, [])]
    while rows := cursor.fetchmany(CHUNK_ROWS):
        chunks.append(_to_arrow_chunk(names, kinds, rows))
    return pa.concat_tables(chunks, promote_options="permissive") if len(chunks) > 1 else chunks[0]


def _to_arrow_chunk(names: list[str], kinds: list[pa.DataType | None], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = []
    for kind, values in zip(kinds, columns, strict=True):
        try:
            arrays.append(pa.array(values, type=kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays.append(pa.array([None if value is None else str(value) for value in values], type=pa.string()))
    return pa.table(arrays, names=names)


def as_query(statement: str) -> Any:
    """Casts a str to Any: psycopg accepts only literals, so that no value is formatted into SQL. Our SQL comes from
    files and generators."""
    return statement


def raise_error(error: psycopg.Error, where: str) -> NoReturn:
    text = redact(str(error))
    if error.sqlstate in _RETRYABLE_STATES:
        raise LostRaceError(f"{where}: {text}") from error
    if error.sqlstate in _BUSY_STATES:
        raise StoreBusyError(f"{where}: {text}") from error
    if error.sqlstate == "23505":
        raise DuplicateRowError(f"{where}: {text}", error.diag.constraint_name or "") from error
    if error.sqlstate in _UNDEFINED_STATES:
        raise UndefinedTableError(f"{where}: {text}") from error
    raise StoreError(f"{where}: {text}") from error
