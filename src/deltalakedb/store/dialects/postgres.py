"""Postgres: psycopg 3, a bounded pool, COPY in both directions; works with PgBouncer in transaction mode."""

import select as socket_select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from deltalakedb.exceptions import StoreError, redact
from deltalakedb.store.appends import Append
from deltalakedb.store.connection import (
    Connection,
    DuplicateRowError,
    EngineName,
    SchemaMode,
)
from deltalakedb.store.dialects.pool import Pool
from deltalakedb.store.dialects.postgres_session import (
    COMMIT_LOCK,
    DIALECT,
    SCHEMA,
    PgConnection,
    PostgresSession,
    as_query,
    raise_error,
    to_arrow,
)
from deltalakedb.store.queries import spell

_NO_FUNCTION_STATES = frozenset({"42883", "42501"})  # the schema is older than this code, or we may not call it
_APPEND = f"select {SCHEMA}.dl_append({', '.join(f'${n}' for n in range(1, 11))})".encode()

# Postgres overestimates the cost of plans with many probes: compiling them would cost more than running them.
_BEGIN_READ = "begin isolation level repeatable read read only; set local jit = off"

_DEFAULTS = {
    "connect_timeout": 10,
    "fallback_application_name": "deltalakedb",
    "client_encoding": "UTF8",
    # A server that vanished silently is noticed within a minute, not after the two hours of the kernel's default.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}


class PostgresStore:
    """A Postgres database; all our tables are in its schema `deltalakedb`."""

    name: EngineName = "postgres"
    dialect = DIALECT
    is_for_one_process = False

    def __init__(self, target: str | Mapping[str, Any], *, max_connections: int, busy_timeout_seconds: float) -> None:
        self._parameters = _connection_parameters(target)
        self._where = f"Postgres database {_described(self._parameters)}"
        self._lock_timeout_ms = str(max(1, int(busy_timeout_seconds * 1000)))
        self._begin_write = f"begin; set local lock_timeout = {self._lock_timeout_ms}"
        self._has_functions: bool | None = None  # unknown before the first append: `sql.schema=manual` runs no query
        self._pool = Pool(
            self._connect,
            psycopg.Connection.close,
            size=max_connections,
            timeout_seconds=busy_timeout_seconds,
            what=self._where,
        )

    def __repr__(self) -> str:
        return f"PostgresStore({_described(self._parameters)!r})"

    def __enter__(self) -> "PostgresStore":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def read(self, *, single: bool = False) -> Iterator[Connection]:
        with self._session("" if single else _BEGIN_READ) as session:
            yield session

    @contextmanager
    def write(self, *, durable: bool = True, holds_clock: bool = False) -> Iterator[Connection]:
        begin = self._begin_write if durable else f"{self._begin_write}; set local synchronous_commit = off"
        if holds_clock:
            begin += f"; select pg_advisory_xact_lock_shared({COMMIT_LOCK})"
        with self._session(begin) as session:
            yield session

    @contextmanager
    def _session(self, begin: str) -> Iterator[PostgresSession]:
        connection = self._take(begin)
        try:
            session = PostgresSession(connection, self._where, self._parameters, opens=bool(self._has_functions))
            yield session
            if not self._pool.owns(connection):
                return  # the block was opened before a fork, and belongs to the parent
            if begin:
                session.execute("commit", {})
            session.settle_deferred()
        except BaseException:
            if self._pool.owns(connection):
                with suppress(StoreError):  # the first error is the one to raise
                    session.settle_deferred()
            raise
        finally:
            self._give(connection)

    def append(self, append: Append) -> int | None:
        if self._has_functions is False:
            return None
        try:
            with self._session("") as session:
                at_ms = session.call(_APPEND, [self._lock_timeout_ms.encode(), *append])
        except DuplicateRowError:  # the ordinary path decides whether a file is added again or is a mistake
            return None
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", "") not in _NO_FUNCTION_STATES:
                raise
            self._has_functions = False
            return None
        self._has_functions = True
        return None if at_ms is None else int(at_ms)

    def settle(self) -> None:
        with self._session("begin") as session:
            session.execute("select pg_advisory_xact_lock(%(key)s)", {"key": COMMIT_LOCK})

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        statement = spell(text, replace(DIALECT, schema="")).text if parameters else text.replace("%", "%%")
        connection = self._take("begin isolation level repeatable read read only")
        try:
            connection.execute(f"set local search_path = {SCHEMA}, public")
            with connection.cursor(binary=True) as cursor:
                # A cursor can be declared only for a SELECT, and the extended protocol accepts only one statement.
                cursor.execute(as_query(f"declare users_select no scroll cursor for {statement}"), parameters or {})
                cursor.execute("fetch all from users_select")
                return to_arrow(cursor)
        except psycopg.Error as error:
            if error.sqlstate in ("42601", "25006", "0A000"):
                raise StoreError(f"only one SELECT statement can be run here: {redact(str(error))}") from error
            raise_error(error, self._where)
        finally:
            self._release_locks(connection)
            self._give(connection)

    def _release_locks(self, connection: PgConnection) -> None:
        """Releases session-level advisory locks that a user's query took: they would outlive the transaction."""
        try:
            connection.execute("rollback")
            connection.execute("select pg_advisory_unlock_all()")
        except psycopg.Error:
            connection.close()

    def _take(self, begin: str) -> PgConnection:
        """Returns a connection on which `begin` has run; replaces connections that the server has closed."""
        while True:
            connection, used = self._pool.take()
            try:
                if used and not _is_alive(connection):
                    raise psycopg.OperationalError("the server closed the connection")
                if begin:
                    connection.execute(as_query(begin))
                return connection
            except psycopg.Error as error:
                self._pool.give(connection, broken=True)
                if not used:
                    raise_error(error, self._where)

    def _give(self, connection: PgConnection) -> None:
        if not self._pool.owns(connection):
            return
        if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                connection.execute("rollback")
            except psycopg.Error:
                connection.close()
        self._pool.give(connection, broken=connection.closed)

    def _connect(self) -> PgConnection:
        try:
            return psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            cause = _without_secrets(error)
        raise StoreError(
            f"{self._where} cannot be reached: {' '.join(str(cause).split())}; "
            "check that it runs, and host, port, user and database"
        ) from cause


def open_postgres(
    target: str | Mapping[str, Any], *, schema: SchemaMode, max_connections: int, busy_timeout_seconds: float
) -> PostgresStore:
    del schema  # the database is never created, only the schema in it
    return PostgresStore(target, max_connections=max_connections, busy_timeout_seconds=busy_timeout_seconds)


def _connection_parameters(target: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = conninfo_to_dict(target) if isinstance(target, str) else conninfo_to_dict("", **target)
    except psycopg.Error as error:
        cause = _without_secrets(error)
    else:
        return {**_DEFAULTS, **{key: value for key, value in parameters.items() if value is not None}}
    raise StoreError(f"the Postgres address cannot be understood: {cause}") from cause


def _without_secrets(error: psycopg.Error) -> psycopg.Error:
    """The driver's error, or one of the same type without secrets that the address put into it."""
    text = redact(str(error))
    return error if text == str(error) else type(error)(text)


def _described(parameters: Mapping[str, Any]) -> str:
    """Describes the database without credentials."""
    parts = {
        key: parameters[key] for key in ("service", "host", "hostaddr", "port", "dbname", "user") if key in parameters
    }
    return redact(" ".join(f"{key}={value}" for key, value in parts.items()) or "of the environment")


def _is_alive(connection: PgConnection) -> bool:
    """Checks without a round trip: an idle connection receives nothing, so a readable socket means it was closed."""
    if connection.closed:
        return False
    poll = socket_select.poll()
    poll.register(connection.fileno(), socket_select.POLLIN)
    return not poll.poll(0)
