"""The planning index of one table: keeps dl_file_bounds and dl_bounds_columns up to date with the live files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text, to_sql_text
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.statistics.bounds import Bound, FileBounds
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.log.statistics.file_bounds import bounds_of_file
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.insert_pipeline import Inserter
from deltalakedb.store.rows import RowBuffer, fill_columns, row_schema

NEW_EPOCH_ABOVE = 10_000
"""If more files than this are closed at once, and more than remain, the remaining ones move to a new epoch."""

NEVER = LIVE
"""`first_file_id` of a column that new files get no bounds for: it is not used for pruning."""

_COLUMNS = ("table_id", "epoch", "file_id", "column_id", *Bound._fields)


@dataclass(slots=True)
class _IndexedColumn:
    """A row of dl_bounds_columns."""

    column_id: int
    column_path: str
    kind: str
    is_partition: bool
    first_file_id: int
    width_classes: set[int] = field(default_factory=set)
    is_new: bool = False
    is_changed: bool = False


class BoundsIndex:
    """The bounds of every live file, in the caller's transaction; `save` writes the columns' rows."""

    def __init__(self, conn: Connection, table_id: int, epoch: int, indexed: Sequence[Row]) -> None:
        """`indexed`: the rows of dl_bounds_columns."""
        self._conn = conn
        self._table_id = table_id
        self.epoch = epoch
        self.indexed = indexed
        """The rows of dl_bounds_columns, as `save` left them."""
        self._columns: list[BoundsColumn] = []
        self._keys: list[tuple[str, str]] = []
        self._indexed = {
            (row["column_path"], row["kind"]): _IndexedColumn(
                row["column_id"],
                row["column_path"],
                row["kind"],
                bool(row["is_partition"]),
                row["first_file_id"],
                set(_classes(row["width_classes"])),
            )
            for row in indexed
        }

    def use_metadata(self, metadata: Metadata, next_file_id: int) -> None:
        """Sets the schema of the next files. A new column has complete bounds from the next file on."""
        self._columns, keys = _columns_of(
            metadata.schema_string, tuple(metadata.partition_columns), tuple(sorted(metadata.configuration.items()))
        )
        self.use_keys(keys, [column.is_partition for column in self._columns], next_file_id)

    def use_keys(self, keys: list[tuple[str, str]], are_partitions: Sequence[bool], next_file_id: int) -> None:
        """Sets the columns of the next files by their keys: path and kind."""
        self._keys = keys
        for key, indexed in self._indexed.items():
            if key not in keys and indexed.first_file_id != NEVER:
                indexed.first_file_id, indexed.is_changed = NEVER, True
        for key, is_partition in zip(keys, are_partitions, strict=True):
            existing = self._indexed.get(key)
            if existing is None:
                number = len(self._indexed)  # rows are never deleted, so the count is the next free id
                self._indexed[key] = _IndexedColumn(number, *key, is_partition, next_file_id, is_new=True)
            elif existing.first_file_id == NEVER or existing.is_partition != is_partition:
                existing.is_partition, existing.is_changed = is_partition, True
                existing.first_file_id = next_file_id

    def compute(self, files: pa.RecordBatch) -> FileBounds:
        """Computes bounds for a batch of files from the columns `stats` and `partition_values`, as stored in SQL."""
        return compute_bounds_of_batch(self._columns, files)

    def insert(self, file_ids: Sequence[int], bounds: FileBounds, *, into: Inserter | None = None) -> None:
        """Inserts the bounds of files that are now live."""
        rows = self._rows(pa.array(file_ids, pa.int64()), bounds)
        if rows.num_rows:
            (into or self._conn).insert("dl_file_bounds", rows)

    def insert_few(self, files: Iterable[tuple[int, str | None, str]]) -> bool:
        """Inserts the bounds of a few files (id, stats, partition values); returns False, with nothing done, if
        `compute` and `insert` are needed."""
        buffer = RowBuffer("dl_file_bounds")
        for file_id, stats, partition_values in files:
            bounds = bounds_of_file(self._columns, from_sql_text(stats) if stats else None, partition_values)
            if bounds is None:
                return False
            for key, bound in zip(self._keys, bounds, strict=True):
                indexed = self._indexed[key]
                if bound.width_class not in indexed.width_classes:
                    indexed.width_classes.add(bound.width_class)
                    indexed.is_changed = True
                buffer.append_cells(_COLUMNS, (self._table_id, self.epoch, file_id, indexed.column_id, *bound))
        buffer.flush_to(self._conn)
        return True

    def _rows(self, file_ids: pa.Array, bounds: FileBounds) -> pa.Table:
        """Rows ordered by column, then by file: the order that suits indexes and zone maps best."""
        tables = []
        for key, batch in zip(self._keys, bounds.columns, strict=True):
            indexed = self._indexed[key]
            classes = set(pc.unique(batch.column("width_class")).to_pylist())
            if not classes <= indexed.width_classes:
                indexed.width_classes |= classes
                indexed.is_changed = True
            tables.append(
                fill_columns(
                    batch,
                    "dl_file_bounds",
                    table_id=self._table_id,
                    epoch=self.epoch,
                    file_id=file_ids,
                    column_id=indexed.column_id,
                )
            )
        return pa.concat_tables(tables) if tables else row_schema("dl_file_bounds").empty_table()

    def remove(self, first_version: int, last_version: int, *, num_closed: int, num_left: int) -> None:
        """Deletes the bounds of files closed by these versions; after a large removal moves the rest to a new epoch."""
        if num_closed > NEW_EPOCH_ABOVE and num_closed > num_left:
            self.epoch += 1
            self._conn.run("copy_live_bounds", table_id=self._table_id, epoch=self.epoch)
            self._conn.run("delete_bounds_before_epoch", table_id=self._table_id, epoch=self.epoch)
            return
        self._conn.run(
            "delete_bounds_of_closed_files",
            table_id=self._table_id,
            epoch=self.epoch,
            first_version=first_version,
            last_version=last_version,
        )

    def clear(self) -> None:
        """Deletes all bounds: no file is live any more."""
        self.epoch += 1
        self._conn.run("delete_bounds_before_epoch", table_id=self._table_id, epoch=self.epoch)

    def save(self) -> None:
        """Writes the changed rows of dl_bounds_columns."""
        if any(indexed.is_new or indexed.is_changed for indexed in self._indexed.values()):
            self._save()

    def _save(self) -> None:
        rows: list[Row] = []
        for indexed in self._indexed.values():
            values = {
                "table_id": self._table_id,
                "column_id": indexed.column_id,
                "is_partition": indexed.is_partition,
                "width_classes": json.dumps(sorted(indexed.width_classes)),
                "first_file_id": indexed.first_file_id,
            }
            names = {"column_path": indexed.column_path, "kind": indexed.kind}
            rows.append(values | names)
            if indexed.is_new:
                self._conn.run("insert_bounds_column", **values, **names)
            elif indexed.is_changed:
                self._conn.run("update_bounds_column", **values)
            indexed.is_new = indexed.is_changed = False
        self.indexed = rows


@lru_cache(maxsize=1024)
def _columns_of(
    schema_string: str, partition_columns: tuple[str, ...], configuration: tuple[tuple[str, str | None], ...]
) -> tuple[list[BoundsColumn], list[tuple[str, str]]]:
    """The columns that have bounds, and the key of each in dl_bounds_columns."""
    columns = bounds_columns(parse_schema(schema_string), partition_columns, dict(configuration))
    return columns, [(to_sql_text(column.column_path), column.kind) for column in columns]


@lru_cache(maxsize=4096)
def _classes(text: str) -> frozenset[int]:
    return frozenset(json.loads(text))
