"""A source table in plain Python that tells its changes as Postgres does, and a lake that they are applied to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import deltalakedb as dl
from deltalakedb.cdc.apply.buckets import BUCKET, COUNT_PROPERTY, buckets_for, with_bucket
from deltalakedb.cdc.apply.current_rows import Applied, apply_to_tables
from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.control import Server, begin_batch, create_capture, note_progress, progress_of, save_tables
from deltalakedb.cdc.layers import changes_schema, current_schema
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.data import write_files
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.schema.types import DataType, PrimitiveType, parse_schema
from deltalakedb.storage.location import open_storage

Row = dict[str, Any]
START = 1000


def captured(
    columns: Mapping[str, str | DataType], key: Sequence[str], *, identity: str = "d", source: str = "public.things"
) -> CapturedTable:
    """A table that streams; a type may be given by the name of a primitive one."""
    made = (
        SourceColumn(name, 0, -1, PrimitiveType(type_) if isinstance(type_, str) else type_, number)
        for number, (name, type_) in enumerate(columns.items(), 1)
    )
    name = source.partition(".")[2]
    return CapturedTable(
        source, 1, tuple(made), tuple(key), f"lake.{name}", f"lake.{name}_changes", "streaming", START, identity
    )


@dataclass
class SourceTable:
    """The rows, and the changes that were made to them. Texts that begin with `large` are kept out of line: an update
    that leaves them alone does not send them."""

    table: CapturedTable
    rows: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    lsn: int = START
    ordinal: int = 0

    def commit(self) -> None:
        """What follows is another transaction."""
        self.lsn += 8
        self.ordinal = 0

    def insert(self, row: Row) -> None:
        self.rows.append(row)
        self._tell("insert", None, row)

    def update(self, place: int, values: Row) -> None:
        before, after = self.rows[place], {**self.rows[place], **values}
        self.rows[place] = after
        left_out = [n for n in before if _is_large(before[n]) and n not in values]
        sent = {name: None if name in left_out else value for name, value in after.items()}
        moved = any(before[name] != after[name] for name in self.table.key)
        shown = self._shown(before) if moved or self.table.identity == "f" else None
        self._tell("update", shown, sent, left_out or None)

    def delete(self, place: int) -> None:
        self._tell("delete", self._shown(self.rows.pop(place)), None)

    def truncate(self) -> None:
        self.rows.clear()
        self._tell("truncate", None, None)

    def _shown(self, row: Row) -> Row:
        names = row if self.table.identity == "f" else self.table.key
        return {name: row[name] if name in names else None for name in row}

    def _tell(self, op: str, before: Row | None, after: Row | None, left_out: list[str] | None = None) -> None:
        self.ordinal += 1
        self.changes.append(
            {
                "_op": op, "_lsn": self.lsn, "_xid": self.lsn, "_ordinal": self.ordinal, "_committed_at": None,
                "_unchanged": left_out, "before": before, "after": after,
            }
        )  # fmt: skip

    def take_changes(self) -> list[Row]:
        taken, self.changes = self.changes, []
        self.commit()
        return taken


def _is_large(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("large")


class Lake:
    """The two layers of captured tables."""

    def __init__(self, catalog: dl.Catalog, tables: Iterable[CapturedTable], **settings: Any) -> None:
        self.catalog = catalog
        self.settings = CaptureSettings("host=nowhere", "things", namespace="lake", **settings)
        self.capture = create_capture(catalog, self.settings, Server("7", 1, "shop"), START)
        tables = tuple(tables)
        with catalog.begin(message="tables") as tx:
            for table in tables:
                self._create(tx, table)
            self.capture = save_tables(tx, self.capture, tables)

    def _create(self, tx: dl.CatalogTransaction, table: CapturedTable) -> None:
        properties: dict[str, Any] = {
            "delta.enableDeletionVectors": str(self.settings.deletion_vectors).lower(),
            "delta.enableChangeDataFeed": str(self.settings.change_data_feed).lower(),
        }
        if self.settings.column_mapping:
            properties["delta.columnMapping.mode"] = "name"
        tx.create_table(table.changes, changes_schema(table), properties=properties)
        buckets = buckets_for(table, self.settings.buckets)
        if buckets:
            properties[COUNT_PROPERTY] = str(buckets)
        schema = current_schema(table)
        tx.create_table(
            table.current,
            with_bucket(schema) if buckets else schema,
            [BUCKET] if buckets else [],
            properties=properties,
        )

    def apply(self, changes: Mapping[str, Sequence[Row]], files: int = 1) -> dict[str, Applied]:
        """One batch, each table's changes in so many files, in no order."""
        tables = self.capture.tables
        end = max((row["_lsn"] for rows in changes.values() for row in rows), default=self.capture.lsn) + 1
        with begin_batch(self.catalog, self.capture, "batch") as tx:
            written = [
                (tables[source], self.write_changes(tables[source], rows, files)) for source, rows in changes.items()
            ]
            for table, adds in written:
                tx.commit_actions(table.changes, [progress_of(self.capture, end), *adds])
            applied = apply_to_tables(tx, self.capture, written, end)
            self.capture = note_progress(tx, self.capture, end)
        return applied

    def apply_files(self, table: CapturedTable, adds: Sequence[AddFile]) -> Applied:
        """One batch of one table, whose files are there."""
        end = self.capture.lsn + 100
        with begin_batch(self.catalog, self.capture, "batch") as tx:
            tx.commit_actions(table.changes, [progress_of(self.capture, end), *adds])
            applied = apply_to_tables(tx, self.capture, [(table, adds)], end).get(table.source, Applied())
            self.capture = note_progress(tx, self.capture, end)
        return applied

    def write_changes(self, table: CapturedTable, rows: Sequence[Row], files: int = 1) -> list[AddFile]:
        """Files of the table of changes that no version has yet."""
        schema = changes_schema(table).to_arrow()
        parts = [rows[number::files] for number in range(files)]
        made = (pa.Table.from_pylist(list(reversed(one)) if files > 1 else list(one), schema=schema) for one in parts)
        return [add for data in made for add in self.write_table(table, data)]

    def write_table(self, table: CapturedTable, data: pa.Table) -> list[AddFile]:
        changes = self.catalog.table(table.changes)
        metadata = changes._backing.newest().metadata
        return write_files(
            data,
            storage=open_storage(changes.table_uri, None),
            schema=parse_schema(metadata.schema_string),
            configuration=metadata.configuration,
        )

    def rows(self, table: CapturedTable) -> Counter[tuple[Any, ...]]:
        names = [column.name for column in table.columns]
        return counted(self.catalog.table(table.current).to_pyarrow_table().to_pylist(), names)


def counted(rows: Iterable[Row], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset; NaN is equal to itself."""
    return Counter(tuple(_plain(row[name]) for name in names) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def replayed(lake: Lake, table: CapturedTable) -> Counter[tuple[Any, ...]]:
    """The rows that the change data feed of the table of current rows leads to."""
    names = [column.name for column in table.columns]
    total: Counter[tuple[Any, ...]] = Counter()
    for row in pa.table(lake.catalog.table(table.current).load_cdf(starting_version=0)).to_pylist():
        sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        total[tuple(_plain(row[name]) for name in names)] += sign
    return Counter({row: count for row, count in total.items() if count})
