"""Column buffers: collect rows for one bulk insert, with the columns of schema.sql."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from deltalakedb.store.commit_sizes import FEW_ROWS
from deltalakedb.store.connection import Connection
from deltalakedb.store.queries import arrow_types, table_columns

KEYS_TO_CLOSE = pa.schema([("key_hash", pa.binary()), ("removed_version", pa.int64())])


@cache
def row_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table's rows."""
    return pa.schema([(name, arrow_types()[name]) for name in table_columns()[table]])


class RowBuffer:
    """Rows of one table, stored as columns, so that they become Arrow without a copy per row."""

    __slots__ = ("_columns", "_lists", "_names", "_size", "table")

    def __init__(self, table: str) -> None:
        self.table = table
        self._columns: dict[str, list[Any]] = {}
        self._names: tuple[str, ...] = ()  # of the last row's cells
        self._lists: list[list[Any]] = []  # the columns in the order of these names
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, **values: Any) -> None:
        self.append_cells(tuple(values), values.values())

    def append_cells(self, names: tuple[str, ...], cells: Iterable[Any]) -> None:
        """Appends a row, its cells in the order of `names`, which must name all columns."""
        if not self._size:  # created late, because most buffers of most commits stay empty
            self._columns = {name: [] for name in table_columns()[self.table]}
        if names != self._names:
            self._names, self._lists = names, [self._columns[name] for name in names]
        any(map(list.append, self._lists, cells))  # the fastest loop
        self._size += 1

    def column(self, name: str) -> list[Any]:
        return self._columns[name]

    def flush_to(self, conn: Connection) -> None:
        """Writes the rows, as values if they are few or else in bulk, and empties the buffer."""
        if not self._size:
            return
        if self._size > FEW_ROWS:
            conn.insert(self.table, self.take())
            return
        conn.insert_few(self.table, self._columns)
        self._clear()

    def take(self) -> pa.Table:
        """Returns the rows as Arrow, and empties the buffer."""
        schema = row_schema(self.table)
        rows = pa.table(self._columns, schema=schema) if self._size else schema.empty_table()
        self._clear()
        return rows

    def _clear(self) -> None:
        self._columns = {}
        self._names = ()
        self._lists = []
        self._size = 0


def fill_columns(batch: pa.RecordBatch, table: str, **values: object) -> pa.Table:
    """Makes rows of `table` from `batch`; missing columns come from `values`, each an array or one value for all."""
    schema = row_schema(table)
    arrays = []
    for field in schema:
        value = values.get(field.name)
        if isinstance(value, pa.Array):
            arrays.append(value)
        elif field.name in values:
            arrays.append(pa.repeat(pa.scalar(value, type=field.type), batch.num_rows))
        else:
            arrays.append(batch.column(field.name))
    return pa.Table.from_arrays(arrays, schema=schema)


def keys_to_close(versions: Mapping[bytes, int]) -> pa.Table:
    """Builds the argument of `Connection.close_files`: key hash -> the version that closes the file."""
    return pa.table([list(versions.keys()), list(versions.values())], schema=KEYS_TO_CLOSE)
