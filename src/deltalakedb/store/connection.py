"""Interface between the store and its engines: connections, stores, and the code that the engines share."""

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
"""The row count that a deferred change returns."""

EngineName = Literal["sqlite", "duckdb", "postgres"]
SchemaMode = Literal["create_if_missing", "error", "manual"]
Row = dict[str, Any]
Ask = tuple[str, Mapping[str, Any]]
"""A named query, or generated SQL, and its parameters."""


class UndefinedTableError(StoreError):
    """The database has no such table: it was never migrated."""


class LostRaceError(StoreBusyError):
    """The engine let another transaction go first and rolled this one back: it can be repeated at once."""


class ConnectionLostError(StoreError):
    """The connection was lost during a transaction: whether it was committed is not known."""


class DuplicateRowError(StoreError):
    """A unique key exists already; `constraint` names the index, or its table if the engine does not name the index."""

    def __init__(self, message: str, constraint: str = "") -> None:
        self.constraint = constraint
        super().__init__(message)


class Connection(Protocol):
    """One open transaction. Queries are those named in sql/queries; parameters are named."""

    def all(self, query: str, **parameters: Any) -> list[Row]: ...

    def one(self, query: str, **parameters: Any) -> Row | None: ...

    def gather(self, asks: Sequence[Ask]) -> list[list[Row]]:
        """Runs several queries in order, in one round trip if the engine can."""
        ...

    def defer(self) -> None:
        """Lets later changes not wait for their results; errors are raised when the block ends, at the latest."""
        ...

    def run(self, query: str, **parameters: Any) -> int:
        """Runs a change; returns how many rows it touched."""
        ...

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def arrow(self, query: str, **parameters: Any) -> pa.Table: ...

    def sql(self, text: str, **parameters: Any) -> list[Row]:
        """Runs generated SQL with `:name` parameters and bare table names."""
        ...

    def sql_arrow(self, text: str, **parameters: Any) -> pa.Table: ...

    def sql_large(self, text: str, **parameters: Any) -> pa.Table:
        """Reads many rows by the engine's fastest path, perhaps outside of this transaction; the SQL pins a version."""
        ...

    def live_files(self, columns: Sequence[str], *, table_id: int, version: int) -> pa.Table:
        """Reads columns of all live files of a large table whose head, in this transaction, is `version`."""
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
        """Reads columns of a version's files with ids in a range; `at_head` if the version is the newest one here."""
        ...

    def script(self, statements: Sequence[str]) -> None:
        """Runs statements of a migration, already in the engine's spelling."""
        ...

    def insert(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Inserts in bulk; the columns of `rows` are columns of `table`."""
        ...

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Inserts a few rows, given as columns of plain values, without the cost of Arrow in `insert`."""
        ...

    def close_files(self, table_id: int, closes: pa.Table) -> pa.Table:
        """Closes the live rows of keys (key_hash, removed_version); returns key_hash, file_id, size and num_records."""
        ...

    def has_table(self, name: str) -> bool: ...

    def lock_schema(self) -> None:
        """Blocks migrations by other processes until this transaction ends."""
        ...

    def hold_clock(self) -> None:
        """Called before reading the time at which this transaction commits: `settle` waits until it has ended."""
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

    @property
    def is_for_one_process(self) -> bool: ...

    def read(self, *, single: bool = False) -> AbstractContextManager[Connection]:
        """Opens one consistent snapshot. `single`: at most one query follows, which saves the transaction's round
        trips."""
        ...

    def write(self, *, durable: bool = True, holds_clock: bool = False) -> AbstractContextManager[Connection]:
        """Opens one transaction: committed when the block ends normally, rolled back on an exception.

        Without `durable` a crash of the machine may lose the whole transaction, if the engine is faster that way.
        `holds_clock` is for transactions that commit at a time which they read: `settle` waits until they have ended.
        """
        ...

    def select(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Runs a user's query: one SELECT, on a connection that cannot write."""
        ...

    def settle(self) -> None:
        """Waits until every transaction that may have read the clock before now has ended."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> "Store": ...

    def __exit__(self, *exc_info: object) -> None: ...


@lru_cache(maxsize=512)
def spelled(text: str, dialect: Dialect) -> Statement:
    return spell(text, dialect)


class Session(ABC):
    """Base of the engines' connections: looks up and spells queries, and builds rows."""

    dialect: Dialect

    @abstractmethod
    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns column names and rows."""

    @abstractmethod
    def fetch_arrow(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table: ...

    @abstractmethod
    def execute(self, statement: str, parameters: Mapping[str, Any]) -> int:
        """Runs a change; returns how many rows it touched."""

    @abstractmethod
    def execute_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def all(self, query: str, **parameters: Any) -> list[Row]:
        return self._rows(named(query, self.dialect), parameters)

    def one(self, query: str, **parameters: Any) -> Row | None:
        rows = self._rows(named(query, self.dialect), parameters)
        return rows[0] if rows else None

    def gather(self, asks: Sequence[Ask]) -> list[list[Row]]:
        queries = named_queries()
        return [self.all(ask, **values) if ask in queries else self.sql(ask, **values) for ask, values in asks]

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
        del at_head  # unused: the version is pinned, because the engine may read the rows outside of this transaction
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
    """Returns SQL that selects some columns of a named query."""
    return f"select {', '.join(columns)} from ({named_queries()[query]}) f"


def checked(statement: Statement, parameters: Mapping[str, Any]) -> str:
    """Returns the text; raises TypeError for missing or extra parameters, about which engines disagree."""
    if statement.parameters != parameters.keys():
        expected, names = sorted(statement.parameters), sorted(parameters)
        raise TypeError(f"the query takes {expected}, not {names}")
    return statement.text
