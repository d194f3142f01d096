"""Writes the change data feed: the rows a statement deleted, updated or inserted, in files of their own."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import pyarrow as pa

from deltalakedb.log.protocol.actions import AddCDCFile
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data import ParquetOptions

ChangeType = Literal["insert", "delete", "update_preimage", "update_postimage"]
CHANGE_TYPE: Final = "_change_type"
_FOLDER: Final = "_change_data"
_COLUMN: Final = pa.field(CHANGE_TYPE, pa.string(), nullable=False)


def feeds_changes(target: Target) -> bool:
    """Return whether statements on this table must write change data."""
    return is_enabled(target.metadata.configuration, "delta.enableChangeDataFeed")


class ChangeWriter:
    """Writes the change data of one statement, from several threads. Leaving its block without `finish` deletes it."""

    def __init__(self, target: Target, schema: StructType | None = None, options: ParquetOptions | None = None) -> None:
        from deltalakedb.data import ParquetOptions
        from deltalakedb.data.writer import FileWriter

        self._target = target
        table = schema or target.schema
        self._writer = FileWriter(
            pa.schema([*table.to_arrow(), _COLUMN]),
            storage=target.storage,
            schema=StructType((*table.fields, StructField(CHANGE_TYPE, PrimitiveType("string"), nullable=False))),
            partition_columns=target.metadata.partition_columns,
            configuration=target.metadata.configuration,
            options=options or ParquetOptions(),
            folder=_FOLDER,
        )
        self._names = [*table.names, CHANGE_TYPE]
        self._busy = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def write(self, rows: pa.RecordBatch, change: ChangeType | None = None) -> None:
        """Write rows with one type of change, or rows that have it in `_change_type`."""
        if not rows.num_rows:
            return
        if change is not None:
            rows = rows.append_column(_COLUMN, pa.repeat(pa.scalar(change, pa.string()), rows.num_rows))
        with self._busy:
            self._writer.write(rows.select([name for name in self._names if name in rows.schema.names]))

    def finish(self) -> list[AddCDCFile]:
        adds = self._writer.finish()
        self._target.written.remember(self._target.storage, adds)
        return [AddCDCFile(add.path, add.partition_values, add.size, data_change=False) for add in adds]
