"""Rows of a Delta log's SQL tables, with the columns of schema.sql: made from actions, buffered for one insert."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, key_hashes, to_json, to_sql_text
from deltalakedb.log.protocol.rows import row_form
from deltalakedb.log.statistics.stats import count_or_none, load_stats
from deltalakedb.store.commit_sizes import FEW_ROWS
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.queries import arrow_types, table_columns

KEYS_TO_CLOSE = pa.schema([("key_hash", pa.binary()), ("removed_version", pa.int64())])


@cache
def row_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table's rows."""
    return pa.schema([(name, arrow_types()[name]) for name in table_columns()[table]])


class RowBuffer:
    """Rows of one table, stored as columns, so that they become Arrow without a copy per row."""

    __slots__ = ("_lists", "_names", "_size", "columns", "table")

    def __init__(self, table: str) -> None:
        self.table = table
        self.columns: dict[str, list[Any]] = {}
        """The values of all rows by column; without keys while there are no rows."""
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
            self.columns = {name: [] for name in table_columns()[self.table]}
        if names != self._names:
            self._names, self._lists = names, [self.columns[name] for name in names]
        any(map(list.append, self._lists, cells))  # the fastest loop
        self._size += 1

    def flush_to(self, conn: Connection) -> None:
        """Writes the rows, as values if they are few or else in bulk, and empties the buffer."""
        if not self._size:
            return
        if self._size > FEW_ROWS:
            conn.insert(self.table, self.take())
            return
        conn.insert_few(self.table, self.columns)
        self._clear()

    def take(self) -> pa.Table:
        """Returns the rows as Arrow, and empties the buffer."""
        schema = row_schema(self.table)
        rows = pa.table(self.columns, schema=schema) if self._size else schema.empty_table()
        self._clear()
        return rows

    def _clear(self) -> None:
        self.columns = {}
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


TABLES: dict[type, str] = {
    AddFile: "dl_add_files",
    RemoveFile: "dl_remove_files",
    AddCDCFile: "dl_cdc_files",
    Metadata: "dl_metadata_updates",
    Protocol: "dl_protocol_updates",
    AppTransaction: "dl_txn_actions",
    DomainMetadata: "dl_domain_metadata",
}
"""The table of each kind of action; dl_other_actions has the rest."""

_KEY = ("table_id", "version", "ordinal")
_FORMS = {kind: row_form(kind) for kind in TABLES}
_ADD = _FORMS[AddFile]
_ADD_COLUMNS = (*_KEY, "file_id", "removed_version", "dv_id", "key_hash", "num_records", *_ADD.columns)


class ActionRows:
    """One buffer per action table, for the rows of one Delta table."""

    def __init__(self, table_id: int) -> None:
        self._table_id = table_id
        self._by_kind = {kind: RowBuffer(table) for kind, table in TABLES.items()}
        self._others = RowBuffer("dl_other_actions")
        self.adds = self._by_kind[AddFile]
        self.buffers = (*self._by_kind.values(), self._others)

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    def put_add(
        self, add: AddFile, version: int, ordinal: int, *, file_id: int, key_hash: bytes, num_records: int | None
    ) -> None:
        dv_id = to_sql_text(add.dv_id)
        cells = (self._table_id, version, ordinal, file_id, LIVE, dv_id, key_hash, num_records, *_ADD.to_cells(add))
        self.adds.append_cells(_ADD_COLUMNS, cells)

    def put(self, action: Action, version: int, ordinal: int, *, fenced: bool = False) -> None:
        """Buffers any action but an add, which needs a file id. `fenced`: the mirror adds the fence to a protocol."""
        key = (self._table_id, version, ordinal)
        match action:
            case CommitInfo():
                self._others.append_cells((*_KEY, "kind", "action"), (*key, "commitInfo", action.text))
            case UnknownAction():
                self._others.append_cells((*_KEY, "kind", "action"), (*key, to_sql_text(action.kind), action.text))
            case RemoveFile():
                self._put(action, key, dv_id=to_sql_text(action.dv_id))
            case Protocol():
                self._put(action, key, fenced=fenced)
            case AddCDCFile() | Metadata() | AppTransaction() | DomainMetadata():
                self._put(action, key)
            case _:
                raise MalformedLogError(f"{type(action).__name__} belongs in a checkpoint, not in a commit")

    def _put(self, action: Action, key: tuple[int, int, int], **others: object) -> None:
        form = _FORMS[type(action)]
        cells = (*key, *others.values(), *form.to_cells(action))
        self._by_kind[type(action)].append_cells((*_KEY, *others, *form.columns), cells)


@dataclass(slots=True)
class RecordCounter:
    """Counts the rows of files from their statistics, and the statistics that cannot be read."""

    num_unreadable: int = 0

    def live(self, stats: str | None, deleted: int) -> int | None:
        """The rows of a file without those that its deletion vector deletes; None if the statistics have no count."""
        if stats is None:
            return None
        value = load_stats(stats)
        if value is None:
            self.num_unreadable += 1
            return None
        physical = count_or_none(value.get("numRecords"))
        return None if physical is None else physical - deleted

    def physical(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows of each file of a batch of FILES_SCHEMA, including deleted ones."""
        texts = batch.column("stats").to_pylist()
        return pa.array([None if text is None else self.live(from_sql_text(text), 0) for text in texts], pa.int64())


def add_rows(
    batch: pa.RecordBatch,
    table_id: int,
    version: int,
    *,
    ordinals: Sequence[int],
    first_file_id: int,
    physical_records: pa.Array,
    hashes: Sequence[bytes] | None = None,
) -> pa.Table:
    """Rows of dl_add_files for a batch of FILES_SCHEMA, all live from `version` on."""
    size = batch.num_rows
    vectors = _deletion_vectors(batch)
    dv_ids = [to_sql_text(vector.unique_id) if vector else "" for vector in vectors]
    if hashes is None:
        hashes = key_hashes(*(_from_sql_texts(texts) for texts in (batch.column("path").to_pylist(), dv_ids)))
    deleted = pa.array([vector.cardinality if vector else 0 for vector in vectors], pa.int64())
    return fill_columns(
        batch,
        "dl_add_files",
        table_id=table_id,
        version=version,
        ordinal=pa.array(ordinals, pa.int64()),
        file_id=pa.array(range(first_file_id, first_file_id + size), pa.int64()),
        removed_version=LIVE,
        dv_id=pa.array(dv_ids, pa.string()),
        key_hash=pa.array(hashes, pa.binary()),
        num_records=pc.subtract(physical_records, deleted),
    )


def tombstone_rows(batch: pa.RecordBatch, table_id: int, version: int, *, first_ordinal: int) -> pa.Table:
    """Rows of dl_remove_files for a batch of TOMBSTONES_SCHEMA."""
    dv_ids = [to_sql_text(vector.unique_id) if vector else "" for vector in _deletion_vectors(batch)]
    return fill_columns(
        batch,
        "dl_remove_files",
        table_id=table_id,
        version=version,
        ordinal=pa.array(range(first_ordinal, first_ordinal + batch.num_rows), pa.int64()),
        dv_id=pa.array(dv_ids, pa.string()),
    )


def _deletion_vectors(batch: pa.RecordBatch) -> list[DeletionVector | None]:
    column = batch.column("deletion_vector")
    if column.null_count == batch.num_rows:
        return [None] * batch.num_rows
    return [None if text is None else deletion_vector_from_json(text) for text in column.to_pylist()]


def _from_sql_texts(texts: list[str]) -> list[str]:
    return [from_sql_text(text) if "\\" in text else text for text in texts]


@dataclass(slots=True)
class HeadDraft:
    """The head while its totals are being computed; has the fields of `Head`."""

    table_id: int
    current_version: int = -1
    metadata_version: int = -1
    protocol_version: int = -1
    mirrored_version: int = -1
    base_version: int = 0
    last_commit_ms: int = -1
    num_files: int = 0
    num_records: int = 0
    files_without_records: int = 0
    size_bytes: int = 0
    next_file_id: int = 0
    bounds_epoch: int = 0
    vacuumed_version: int = 0
    vacuum_count: int = 0

    def count(self, sign: int, size: int, records: int | None) -> None:
        self.num_files += sign
        self.size_bytes += sign * size
        if records is None:
            self.files_without_records += sign
        else:
            self.num_records += sign * records


@dataclass(slots=True)
class VersionDraft:
    """A version before its files are closed in SQL."""

    version: int
    timestamp_ms: int
    size_bytes: int | None = None
    fenced: bool | None = None
    is_base: bool = False
    commit_info: CommitInfo | None = None
    commit_info_ordinal: int | None = None
    num_actions: int = 0
    num_added: int = 0
    num_removed: int = 0

    def to_row(self, table_id: int, *, total_added: int, total_closed: int) -> Row:
        """The row of `dl_table_versions`; the totals count from the table's first version."""
        info = self.commit_info
        value = info.value if info else {}
        return {
            "table_id": table_id,
            "version": self.version,
            "txn_id": _field(value, "txnId"),
            "committed_at_ms": self.timestamp_ms,
            "operation": _field(value, "operation"),
            "operation_params": _field(value, "operationParameters"),
            "operation_metrics": _field(value, "operationMetrics"),
            "commit_info": info.text if info else None,
            "commit_info_ordinal": self.commit_info_ordinal,
            "is_base": self.is_base,
            "num_actions": self.num_actions,
            "num_added_files": self.num_added,
            "num_removed_files": self.num_removed,
            "total_added": total_added,
            "total_closed": total_closed,
            "rendered_bytes": self.size_bytes,
        }


def _field(info: Mapping[str, object], name: str) -> str | None:
    """A field of commitInfo for readers with SQL: text as it is, anything else as JSON."""
    value = info.get(name)
    if value is None:
        return None
    return to_sql_text(value) if isinstance(value, str) else to_json(value)
