"""Plans a scan of an Iceberg snapshot inside the database: the data files that may match, the deletes on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from deltalakedb.log.predicates.atoms import Column, Dnf
from deltalakedb.store.candidates import Candidates, PlanStep
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.dialects.pruner import FileSource
from deltalakedb.store.iceberg_files import EPOCH
from deltalakedb.store.queries import named_queries

ICEBERG_FILES: Final = FileSource(
    "plan_iceberg_files", "plan_iceberg_files_without_bounds", "plan_iceberg_{engine}_fetch", "plan_iceberg_all"
)
KEYS_PER_QUERY: Final = 500
"""Older builds of SQLite accept 999 parameters."""

_COLUMNS: Final = (
    "f.file_id", "f.file_path", "f.spec_id", "f.file_partition", "f.num_records", "f.size", "f.sequence_number",
    "f.row_offset", "f.file", "s.sequence_number as manifest_sequence_number", "s.first_row_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileRange:
    """Which files of the snapshot with a key: those with ids in a range, and perhaps only those that it added.

    `added_in` is then the snapshot's id.
    """

    list_key: int
    added_in: int = -1
    first_id: int = 0
    last_id: int = LIVE - 1

    @property
    def is_incremental(self) -> bool:
        return self.added_in != -1


def key_of(column: Column) -> tuple[str, str]:
    """The path and kind of a column in dl_bounds_columns; paths of Iceberg's columns are keys already."""
    return column.physical_path[0], "text" if column.kind == "text" else "number"


class SnapshotPlan:
    """The data files of a part of a snapshot that may satisfy a predicate."""

    def __init__(self, conn: Connection, table_id: int, predicate: Dnf, files: FileRange) -> None:
        scope = {
            "table_id": table_id,
            "epoch": EPOCH,
            "list_key": files.list_key,
            "first_id": files.first_id,
            "last_id": files.last_id,
            "added_in": files.added_in,
        }
        self._conn = conn
        self._table_id, self._predicate, self._files = table_id, predicate, files
        self._is_empty = not predicate
        self._candidates = Candidates(conn, predicate or ((),), scope, ICEBERG_FILES, key_of)
        self._statement = self._candidates.statement("{columns}")

    def has_bounds(self, column: Column) -> bool:
        return self._candidates.has_bounds(column)

    def files(self, *, max_files: int, with_stats: bool) -> list[Row]:
        """The files in the order of their ids."""
        columns = ", ".join((*_COLUMNS, "f.file_stats") if with_stats else _COLUMNS)
        return [] if self._is_empty else self._fetch(columns, max_files).to_pylist()

    def file_ids(self) -> pa.Table:
        """The ids of all files and their numbers of records, in the order of ids."""
        return self._fetch("f.file_id, f.num_records", LIVE - 1)

    def explained(self, num_files: int, *, counted: bool = False) -> list[PlanStep]:
        """How each condition was used; `counted`: with how many files of this snapshot it keeps by itself."""
        steps = self._candidates.explained(num_files, counted=False)
        if not counted:
            return steps
        atoms = {str(atom): atom for conjunct in self._predicate for atom in conjunct}
        kept = {
            text: SnapshotPlan(self._conn, self._table_id, ((atom,),), self._files).file_ids().num_rows
            for text, atom in atoms.items()
            if any(step.condition == text for step in steps)
        }
        return [
            replace(step, kept=kept[step.condition], pruned=num_files - kept[step.condition])
            if step.condition in kept
            else step
            for step in steps
        ]

    def _fetch(self, columns: str, max_files: int) -> pa.Table:
        # Wrapped: the columns of the order must be unambiguous beside those of the candidates.
        text = self._statement.text.replace("{columns}", columns) + " order by f.file_id limit :max_files"
        return self._conn.sql_arrow(text, **self._statement.parameters, max_files=max_files)


def deletes_by_keys(conn: Connection, table_id: int, list_key: int, keys: Sequence[str]) -> list[Row]:
    """The delete files of a snapshot with one of the delete keys."""
    rows: list[Row] = []
    for start in range(0, len(keys), KEYS_PER_QUERY):
        page = {f"k{place}": key for place, key in enumerate(keys[start : start + KEYS_PER_QUERY])}
        text = named_queries()["plan_iceberg_deletes"].replace("{keys}", ", ".join(f":{name}" for name in page))
        parameters: dict[str, Any] = {"table_id": table_id, "list_key": list_key, **page}
        rows += conn.sql(text, **parameters)
    return rows
