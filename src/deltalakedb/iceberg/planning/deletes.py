"""Finds the delete files that apply to data files, by the rules of Iceberg's specification (Scan Planning)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from deltalakedb.iceberg.planning.column_stats import ColumnStats
from deltalakedb.iceberg.planning.manifests import (
    ANY_DATA_FILE,
    partition_key,
    path_key,
    stats_from_json,
)
from deltalakedb.iceberg.planning.schema import Field, TableSchema
from deltalakedb.iceberg.planning.types import from_bytes
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.iceberg_plan import deletes_by_keys

_PATH_COLUMN: Final = 2_147_483_546


def sequence_number(row: Row) -> int:
    """The data sequence number of a file."""
    own = int(row["sequence_number"])
    return own if own >= 0 else int(row["manifest_sequence_number"])


class DeleteFile:
    """A delete file of a snapshot; `file` is its JSON."""

    __slots__ = ("_stats", "_stats_json", "content", "file", "sequence_number")

    def __init__(self, row: Row) -> None:
        self.content: str = row["file_content"]
        self.sequence_number = sequence_number(row)
        self.file: Mapping[str, Any] = orjson.loads(row["file"])
        self._stats_json: str | None = row["file_stats"]
        self._stats: ColumnStats | None = None

    @property
    def is_vector(self) -> bool:
        return self.content == "position-deletes" and "content-offset" in self.file

    @property
    def stats(self) -> ColumnStats:
        if self._stats is None:
            self._stats = stats_from_json(self._stats_json)
        return self._stats


class Deletes:
    """The delete files that may apply to some data files of a snapshot."""

    def __init__(self, by_key: Mapping[str, Sequence[DeleteFile]], schema: TableSchema) -> None:
        self._by_key = by_key
        self._fields = schema.by_id

    @classmethod
    def of(cls, conn: Connection, table_id: int, list_key: int, rows: Iterable[Row], schema: TableSchema) -> Deletes:
        """Reads the deletes of the data files in `rows`."""
        keys = dict.fromkeys(key for row in rows for key in _keys_of(row))
        by_key: dict[str, list[DeleteFile]] = {}
        for row in deletes_by_keys(conn, table_id, list_key, list(keys)):
            by_key.setdefault(row["delete_key"], []).append(DeleteFile(row))
        return cls(by_key, schema)

    def on(self, row: Row) -> list[DeleteFile]:
        """The deletes that apply to a data file: a vector instead of position deletes, and equality deletes."""
        if not self._by_key:
            return []
        own_number = sequence_number(row)
        path, partition, everywhere = _keys_of(row)
        named, local = self._by_key.get(path, ()), self._by_key.get(partition, ())
        vectors = [item for item in named if item.is_vector and item.sequence_number >= own_number]
        if vectors:
            positions = [max(vectors, key=lambda item: item.sequence_number)]
        else:
            positions = [
                item
                for item in (*named, *local)
                if item.content == "position-deletes"
                and not item.is_vector
                and item.sequence_number >= own_number
                and _names(item, row["file_path"])
            ]
        stats: ColumnStats | None = None
        equality = []
        for item in (*local, *self._by_key.get(everywhere, ())):
            if item.content == "equality-deletes" and item.sequence_number > own_number:
                stats = stats or stats_from_json(row["file_stats"])
                if self._share_values(item, stats):
                    equality.append(item)
        return positions + equality

    def _share_values(self, item: DeleteFile, data: ColumnStats) -> bool:
        """Whether a row of the data file can be equal to one of the delete file, by the bounds of each column."""
        for field_id in item.file.get("equality-ids", ()):
            column = self._fields.get(field_id)
            if column is not None and column.type is not None and _disjoint(column, data, item.stats):
                return False
        return True


def _keys_of(row: Row) -> tuple[str, str, str]:
    return path_key(row["file_path"]), partition_key(row["spec_id"], row["file_partition"]), ANY_DATA_FILE


def _names(item: DeleteFile, path: str) -> bool:
    """Whether a file of position deletes can name a data file, by the bounds of its paths."""
    low, high = item.stats.lower_bounds.get(_PATH_COLUMN), item.stats.upper_bounds.get(_PATH_COLUMN)
    raw = path.encode()
    return (low is None or low <= raw) and (high is None or raw <= high)


def _disjoint(column: Field, data: ColumnStats, deletes: ColumnStats) -> bool:
    """Whether no value of a column is in both files; null is equal to null, and NaN to NaN."""
    if _may_be(data.null_counts, column) and _may_be(deletes.null_counts, column):
        return False
    assert column.type is not None
    if column.type.family == "float" and (_may_be(data.nan_counts, column) and _may_be(deletes.nan_counts, column)):
        return False
    if column.type.name == "uuid":  # some writers order them as signed numbers
        return False
    ends = [
        None if raw is None else from_bytes(column.type, raw)
        for item in (data, deletes)
        for raw in (item.lower_bounds.get(column.field_id), item.upper_bounds.get(column.field_id))
    ]
    if any(end is None or end != end for end in ends):
        return False
    low, high, delete_low, delete_high = ends
    return bool(high < delete_low or delete_high < low)  # type: ignore[operator]  # values of one type


def _may_be(counts: Mapping[int, int], column: Field) -> bool:
    return counts.get(column.field_id) != 0
