"""DuckDB: a session and a store on a file that `duckdb_file.py` shares between threads and processes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pyarrow as pa

from deltalakedb.exceptions import StoreBusyError, StoreClosedError, StoreError, redact
from deltalakedb.store.connection import (
    LIVE,
    Connection,
    DuplicateRowError,
    EngineName,
    LostRaceError,
    SchemaMode,
    Session,
    UndefinedTableError,
)
from deltalakedb.store.dialects.duckdb_file import DuckdbFile, is_locked
from deltalakedb.store.dialects.duckdb_instance import instance
from deltalakedb.store.dialects.file_kinds import kind_of, not_a_database
from deltalakedb.store.queries import Dialect, spell

DIALECT = Dialect(name="duckdb", parameter="$%s", now_ms="epoch_ms(now())")

MANY_ROWS = 20_000
"""From this many rows on, a commit writes straight into the file; fewer go into the WAL first."""


class DuckdbSession(Session):
    """One transaction on a DuckDB cursor."""

    dialect = DIALECT

    def __init__(self, cursor: duckdb.DuckDBPyConnection, where: str) -> None:
        self._cursor = cursor
        self._where = where
        self.num_bulk_rows = 0
        """The number of rows inserted as Arrow."""

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        try:
            self._cursor.execute(statement, dict(parameters))
            rows = self._cursor.fetchall()
        except duckdb.Error as error:
            _raise(error, self._where)
        return [column[0] for column in self._cursor.description or ()], rows

    def fetch_arrow(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table:
        try:
            return self._cursor.execute(statement, dict(parameters)).to_arrow_table()
        except duckdb.Error as error:
            _raise(error, self._where)

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        try:
            rows = self._cursor.execute(statement, dict(parameters)).fetchall()
        except duckdb.Error as error:
            _raise(error, self._where)
        # A change returns one row: how many rows it touched.
        return int(rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(statement, row)

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        columns = ", ".join(rows.schema.names)
        self.num_bulk_rows += rows.num_rows
        with self._registered("rows_to_insert", rows):
            self.execute(f"insert into {table} ({columns}) select {columns} from rows_to_insert", {})

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        # One statement for all rows: in DuckDB a statement costs more than its rows.
        rows = list(zip(*columns.values(), strict=True))
        placeholders = f"({', '.join('?' * len(columns))})"
        statement = f"insert into {table} ({', '.join(columns)}) values {', '.join([placeholders] * len(rows))}"
        try:
            self._cursor.execute(statement, [value for row in rows for value in row])
        except duckdb.Error as error:
            _raise(error, self._where)

    def close_files(self, table_id: int, closes: pa.Table) -> pa.Table:
        with self._registered("files_to_close", closes):
            return self.fetch_arrow(
                "update dl_add_files set removed_version = c.removed_version from files_to_close c "
                "where dl_add_files.table_id = $table_id and dl_add_files.removed_version = $live "
                "and dl_add_files.key_hash = c.key_hash "
                "returning dl_add_files.key_hash, dl_add_files.file_id, dl_add_files.size, dl_add_files.num_records",
                {"table_id": table_id, "live": LIVE},
            )

    def has_table(self, name: str) -> bool:
        _, rows = self.fetch(
            "select 1 from duckdb_tables() where database_name = current_database() and table_name = $name",
            {"name": name},
        )
        return bool(rows)

    def defer(self) -> None:
        """Does nothing: an embedded database has no round trips."""

    def lock_schema(self) -> None:
        """Does nothing: the exclusive lock file already locks the whole database."""

    def hold_clock(self) -> None:
        """Does nothing: the exclusive lock file holds the clock."""

    def now_ms(self) -> int:
        # An embedded database uses the clock of its process.
        return time.time_ns() // 1_000_000

    @contextmanager
    def _registered(self, name: str, rows: pa.Table | pa.RecordBatch) -> Iterator[None]:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._cursor.register(name, table)
        try:
            yield
        finally:
            self._cursor.unregister(name)


class DuckdbStore:
    """A DuckDB file."""

    name: EngineName = "duckdb"
    dialect = DIALECT
    is_for_one_process = True

    def __init__(self, path: str | Path, *, schema: SchemaMode, busy_timeout_seconds: float) -> None:
        self.path = Path(path).absolute()
        self._where = f"DuckDB database {self.path}"
        self._may_create = schema == "create_if_missing"
        self._busy_timeout_seconds = busy_timeout_seconds
        self._closed = False
        _check_file(self.path)
        if not self._may_create and not self.path.exists():
            raise StoreError(f"{self._where} does not exist")
        self._file = DuckdbFile.of(self.path)

    def __repr__(self) -> str:
        return f"DuckdbStore({str(self.path)!r})"

    def __enter__(self) -> "DuckdbStore":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.leave()

    @contextmanager
    def read(self, *, single: bool = False) -> Iterator[Connection]:
        file = self._existing()
        with _translated(self._where), file.shared(self._busy_timeout_seconds) as cursor:
            session = DuckdbSession(cursor, self._where)
            if not single or file.is_writable:
                session.execute("begin transaction read only", {})
            yield session

    @contextmanager
    def write(self, *, durable: bool = True, holds_clock: bool = False) -> Iterator[Connection]:
        del durable, holds_clock  # every commit is durable, and a writer has the file to itself
        file = self._usable()
        with _translated(self._where), file.exclusive(self._busy_timeout_seconds) as handle:
            session = DuckdbSession(handle, self._where)
            session.execute("begin transaction", {})
            yield session
            if not file.is_ours:
                return  # the block was opened before a fork, and belongs to the parent
            if session.num_bulk_rows < MANY_ROWS:
                session.execute("commit", {})
            else:
                with instance.eager_checkpoints():
                    session.execute("commit", {})

    def settle(self) -> None:
        # A transaction that has read the clock has the file to itself until it ends.
        with self._usable().alone(self._busy_timeout_seconds):
            pass

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        statement_text = spell(text, DIALECT).text if parameters else text
        try:
            kinds = [statement.type for statement in duckdb.extract_statements(statement_text)]
        except duckdb.Error as error:
            _raise(error, self._where)
        if kinds != [duckdb.StatementType.SELECT]:
            raise StoreError("only one SELECT statement can be run here")
        # The handle is read-only, without access to files or the network, and its configuration is locked.
        with _translated(self._where), self._existing().for_users(self._busy_timeout_seconds) as handle:
            return DuckdbSession(handle, self._where).fetch_arrow(statement_text, parameters or {})

    def _existing(self) -> DuckdbFile:
        file = self._usable()
        if self._may_create and not self.path.exists():
            # A database that was never written to is empty, not an error.
            raise UndefinedTableError(f"{self._where} does not exist yet")
        return file

    def _usable(self) -> DuckdbFile:
        if self._closed:
            raise StoreClosedError(f"{self._where} is closed")
        self._file = self._file.in_this_process()
        return self._file


def open_duckdb(
    target: str | Mapping[str, Any], *, schema: SchemaMode, max_connections: int, busy_timeout_seconds: float
) -> DuckdbStore:
    del max_connections  # one instance serves all readers of a process
    path = target if isinstance(target, str | Path) else target["path"]
    return DuckdbStore(path, schema=schema, busy_timeout_seconds=busy_timeout_seconds)


def _check_file(path: Path) -> None:
    if "?" in path.name:
        raise StoreError(f"DuckDB cannot keep a database in {path}: it takes what follows the ? for options")
    # A file used before has a lock file; the kind of any other file is checked before a lock file is put beside it.
    if path.is_file() and not Path(f"{path}.lock").exists() and kind_of(path) != "duckdb":
        raise not_a_database(path, "duckdb")


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        _raise(error, where)


def _raise(error: Exception, where: str) -> NoReturn:
    text = redact(str(error))
    if is_locked(error):
        raise StoreBusyError(f"{where} stayed locked by another process: {text}") from error
    if isinstance(error, duckdb.ConstraintException):
        raise DuplicateRowError(f"{where}: {text}") from error
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        raise UndefinedTableError(f"{where}: {text}") from error
    if isinstance(error, duckdb.TransactionException) and "onflict" in text:
        raise LostRaceError(f"{where}: {text}") from error
    raise StoreError(f"{where}: {text}") from error
