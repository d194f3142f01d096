"""Makes Delta's add actions of the files that Iceberg clients append, once they are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from deltalakedb.data.arrow_types import file_type
from deltalakedb.data.footers import FooterStats
from deltalakedb.data.partitioning import value_texts
from deltalakedb.exceptions import BadIcebergRequestError, SchemaMismatchError, StorageError
from deltalakedb.iceberg.delta.append_footers import column_problems
from deltalakedb.iceberg.delta.append_rules import RowRules
from deltalakedb.iceberg.delta.field_ids import Path
from deltalakedb.iceberg.delta.table_folder import TableFolder, encode
from deltalakedb.iceberg.planning.manifests import Entry, PartitionValue
from deltalakedb.log.protocol.actions import AddFile, Metadata, Protocol
from deltalakedb.log.schema.partitions import PartitionField, partition_fields, wrong_partition_value
from deltalakedb.log.schema.types import StructField, parse_schema

_THREADS: Final = 8


class AppendedFiles:
    """Checks new files of a table against its definition, and describes them as Delta does."""

    def __init__(self, folder: TableFolder, protocol: Protocol, metadata: Metadata, ids: Mapping[Path, int]) -> None:
        self._folder = folder
        self._table = folder.table
        self._schema = parse_schema(metadata.schema_string)
        self._ids = ids
        self._partitions = partition_fields(metadata.schema_string, metadata.partition_columns)
        self._rules = RowRules(folder.table, protocol, metadata)
        self._stats = FooterStats(self._schema, metadata.partition_columns, metadata.configuration)

    def adds(self, entries: Sequence[Entry]) -> list[AddFile]:
        """Return an add action for each new file; BadIcebergRequestError if one does not fit the table."""
        if len(entries) < 2:
            return [self._add(entry) for entry in entries]
        with ThreadPoolExecutor(min(_THREADS, len(entries)), thread_name_prefix="deltalakedb-footer") as pool:
            return list(pool.map(self._add, entries))

    def _add(self, entry: Entry) -> AddFile:
        relative = self._folder.data_path(entry.file_path)
        values = self._partition_values(entry, relative)
        listed, file = self._folder.open_parquet(relative)
        with file:
            try:
                optional = (item.column for item in self._partitions)
                for problem in column_problems(file.schema_arrow, self._schema, self._ids, optional):
                    raise BadIcebergRequestError(
                        f"{self._table}: the file {relative} does not fit the table: {problem}"
                    )
                self._rules.check(file, relative, values)
                stats = self._stats.of(file.metadata)
            except StorageError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise self._folder.unreadable(relative, error) from error
        return AddFile(
            path=encode(relative),
            partition_values=values,
            size=listed.size,
            modification_time=listed.modified_ms,
            data_change=True,
            stats=stats,
        )

    def _partition_values(self, entry: Entry, path: str) -> dict[str, str | None]:
        return {
            item.name: self._partition_text(item, value, path)
            for item, value in zip(self._partitions, entry.partition, strict=True)
        }

    def _partition_text(self, item: PartitionField, value: PartitionValue, path: str) -> str | None:
        """A typed partition value of a manifest as the text that Delta has for it."""
        where = f"{self._table}: the file {path} has the partition value {value!r} of the column {item.column}"
        if value is ...:
            raise BadIcebergRequestError(f"{self._table}: the file {path} has a partition value that cannot be read")
        if value == "" or value == b"":
            raise BadIcebergRequestError(f"{where}: an empty text cannot be a partition value of a Delta table")
        try:
            arrow = file_type(item.type)
            array = _array(value, arrow)
            (text,) = value_texts(array, StructField(item.column, item.type, item.nullable))
        except (SchemaMismatchError, pa.ArrowException, OverflowError, ValueError) as error:
            raise BadIcebergRequestError(f"{where}: {error}") from error
        problem = wrong_partition_value(text, item)
        if problem:
            raise BadIcebergRequestError(f"{where}: {problem}")
        return text


def _array(value: Any, arrow: pa.DataType) -> pa.Array:
    """One value; Iceberg has days and microseconds as numbers, and booleans as 0 and 1."""
    if pa.types.is_date32(arrow):
        return pa.array([value], pa.int32()).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return pa.array([value], pa.int64()).cast(arrow)
    if pa.types.is_boolean(arrow):
        return pa.array([None if value is None else bool(value)])
    if isinstance(value, Decimal):
        return pa.array([value]).cast(arrow)
    return pa.array([value], arrow)
