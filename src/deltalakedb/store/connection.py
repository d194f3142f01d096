"""The seam between the store and its engines: what a connection and a store can do, and what they share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Literal, Protocol

import pyarrow as pa

from deltalakedb.exceptions import StoreBusyError, StoreError
from deltalakedb.store.queries import Dialect, Statement, named, named_queries, spell

LIVE = 2**63 - 1
"""`removed_version` while a file is live, `until_ms` while a name is current."""

UNKNOWN_COUNT = -1
"""What a deferred change says it touched."""

EngineName = Literal["sqlite", "duckdb", "postgres"]
SchemaMode = Literal["create_if_missing", "error", "manual"]
Row = dict[str, Any]
Ask = tuple[str, Mapping[str, Any]]
"""A named query, or generated SQL, and its parameters."""


class UndefinedTableError(StoreError):
    """The database has no such table: it was never migrated."""


class LostRaceError(StoreBusyError):
    """The engine gave another transaction the right of way, and rolled this one back: it can be repeated at once."""


class ConnectionLostError(StoreError):
    """The database went away in the middle of a transaction: whether it was committed is not known."""


class DuplicateRowError(StoreError):
    """A unique key is taken; `constraint` names the index, or its table where the engine says no more."""

    def __init__(self, message: str, constraint: str = "") -> None:
        self.constraint = constraint
        super().__init__(message)


class Connection(Protocol):
    """One open transaction. Queries are named ones of sql/queries; parameters are named."""

    def all(self, query: str, **parameters: Any) -> list[Row]: ...

    def one(self, query: str, **parameters: Any) -> Row | None: ...

    def gather(self, asks: Sequence[Ask]) -> list[list[Row]]:
        """Several queries, one after the other, in one round trip where the engine can."""
        ...

    def defer(self) -> None:
        """From here on changes need not wait for their answers: errors come at the latest when the block ends."""
        ...

    def run(self, query: str, **parameters: Any) -> int:
        """Run a change; how many rows it touched."""
        ...

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def arrow(self, query: str, **parameters: Any) -> pa.Table: ...

    def sql(self, text: str, **parameters: Any) -> list[Row]:
        """Generated SQL, with `:name` parameters and bare table names."""
        ...

    def sql_arrow(self, text: str, **parameters: Any) -> pa.Table: ...

    def sql_large(self, text: str, **parameters: Any) -> pa.Table:
        """Many rows, by the engine's fastest way, perhaps outside of this transaction: for SQL that pins a version."""
        ...

    def live_files(self, columns: Sequence[str], *, table_id: int, version: int) -> pa.Table:
        """Columns of all active files of a large table whose head, in this transaction, is `version`."""
        ...

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
        """Columns of a version's files whose ids lie in a range; `at_head` when the version is the newest here."""
        ...

    def script(self, statements: Sequence[str]) -> None:
        """Run statements of a migration, already in the engine's spelling."""
        ...

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Bulk insert; the columns of `rows` are columns of `table`."""
        ...

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Insert some rows, given as columns of plain values: what `insert` would spend on Arrow is saved."""
        ...

    def close_files(self, table_id: int, closes: pa.Table) -> pa.Table:
        """End the live rows of keys (key_hash, removed_version); key_hash, file_id, size, num_records of the ended."""
        ...

    def has_table(self, name: str) -> bool: ...

    def lock_schema(self) -> None:
        """Keep every other process from migrating until this transaction ends."""
        ...

    def hold_clock(self) -> None:
        """Before a time is read at which this transaction commits: `settle` waits until it has ended."""
        ...

    def now_ms(self) -> int:
        """The database's clock."""
        ...

    @property
    def dialect(self) -> Dialect: ...


class Store(Protocol):
    """A database that holds logs."""

    @property
    def name(self) -> EngineName: ...

    @property
    def dialect(self) -> Dialect: ...

    def read(self, *, single: bool = False) -> AbstractContextManager[Connection]:
        """One consistent snapshot. `single` promises one query at most, and saves the round trips of a transaction."""
        ...

    def write(self, *, durable: bool = True, holds_clock: bool = False) -> AbstractContextManager[Connection]:
        """One transaction: committed when the block is left normally, rolled back when by an exception.

        Without `durable` it may be lost, whole, in a crash of the machine, where the engine is faster that way. With
        `holds_clock`, for who commits at a time it reads: `settle` waits until the block has ended.
        """
        ...

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """A user's own query: one SELECT, on a connection that cannot write."""
        ...

    def settle(self) -> None:
        """Wait until every transaction that may have read the clock before now has ended."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> "Store": ...

    def __exit__(self, *exc_info: object) -> None: ...


@lru_cache(maxsize=512)
def spelled(text: str, dialect: Dialect) -> Statement:
    return spell(text, dialect)


def asked(query: str, dialect: Dialect) -> Statement:
    """A named query, or SQL text, in an engine's spelling."""
    return named(query, dialect) if query in named_queries() else spelled(query, dialect)


class Session(ABC):
    """What the engines' connections share: finding and spelling queries, and shaping rows."""

    dialect: Dialect

    @abstractmethod
    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows."""

    @abstractmethod
    def fetch_arrow(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table: ...

    @abstractmethod
    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        """Run a change; how many rows it touched."""

    @abstractmethod
    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def all(self, query: str, **parameters: Any) -> list[Row]:
        return self._rows(named(query, self.dialect), parameters)

    def one(self, query: str, **parameters: Any) -> Row | None:
        rows = self._rows(named(query, self.dialect), parameters)
        return rows[0] if rows else None

    def gather(self, asks: Sequence[Ask]) -> list[list[Row]]:
        return [self._rows(asked(query, self.dialect), parameters) for query, parameters in asks]

    def run(self, query: str, **parameters: Any) -> int:
        return self.execute(checked(named(query, self.dialect), parameters), parameters)

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.execute_many(checked(named(query, self.dialect), rows[0]), rows)

    def arrow(self, query: str, **parameters: Any) -> pa.Table:
        return self.fetch_arrow(checked(named(query, self.dialect), parameters), parameters)

    def sql(self, text: str, **parameters: Any) -> list[Row]:
        return self._rows(spelled(text, self.dialect), parameters)

    def sql_arrow(self, text: str, **parameters: Any) -> pa.Table:
        return self.fetch_arrow(checked(spelled(text, self.dialect), parameters), parameters)

    def sql_large(self, text: str, **parameters: Any) -> pa.Table:
        return self.sql_arrow(text, **parameters)

    def live_files(self, columns: Sequence[str], *, table_id: int, version: int) -> pa.Table:
        # The version is pinned because the engine may read the rows outside of this transaction.
        text = select_columns(columns, "select_files_removed_after")
        return self.sql_large(text, table_id=table_id, version=version)

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
        del at_head  # the engine may read the rows outside of this transaction
        ids = {"table_id": table_id, "version": version}
        text = select_columns(columns, "select_files_between")
        return self.sql_large(text, **ids, first_file_id=first_file_id, last_file_id=last_file_id)

    def script(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self.execute(statement, {})

    def _rows(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        names, rows = self.fetch(checked(statement, parameters), parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]


def select_columns(columns: Sequence[str], query: str) -> str:
    """Some columns of a named query."""
    return f"select {', '.join(columns)} from ({named_queries()[query]}) f"


def checked(statement: Statement, parameters: Mapping[str, Any]) -> str:
    """The text, when exactly its parameters are given: engines disagree about too many and too few."""
    if statement.parameters != parameters.keys():
        wanted, given = sorted(statement.parameters), sorted(parameters)
        raise TypeError(f"the query takes {wanted}, not {given}")
    return statement.text
