"""Owns the writing of a change data feed: the rows a statement deleted, updated or inserted, as files of their own."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import pyarrow as pa

from deltalakedb.log.actions import AddCDCFile
from deltalakedb.log.features import is_enabled
from deltalakedb.log.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data import ParquetOptions

ChangeType = Literal["insert", "delete", "update_preimage", "update_postimage"]
CHANGE_TYPE: Final = "_change_type"
_FOLDER: Final = "_change_data"
_COLUMN: Final = pa.field(CHANGE_TYPE, pa.string())


def feeds_changes(target: Target) -> bool:
    """Whether statements on this table must tell which rows they changed."""
    return is_enabled(target.metadata.configuration, "delta.enableChangeDataFeed")


class ChangeWriter:
    """Change data of one statement; several threads may bring rows. Leaving its block without `finish` removes it."""

    def __init__(self, target: Target, schema: StructType | None = None, options: ParquetOptions | None = None) -> None:
        from deltalakedb.data import ParquetOptions
        from deltalakedb.data.writer import FileWriter

        self._target = target
        table = schema or target.schema
        self._writer = FileWriter(
            pa.schema([*table.to_arrow(), _COLUMN]),
            storage=target.storage,
            schema=StructType((*table.fields, StructField(CHANGE_TYPE, PrimitiveType("string")))),
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
        """Rows of the table that were changed in one way, or rows that tell it themselves in `_change_type`."""
        if not rows.num_rows:
            return
        if change is not None:
            rows = rows.append_column(_COLUMN, pa.repeat(pa.scalar(change, pa.string()), rows.num_rows))
        with self._busy:
            self._writer.write(rows.select(self._names))

    def finish(self) -> list[AddCDCFile]:
        adds = self._writer.finish()
        self._target.written.remember(self._target.storage, adds)
        return [AddCDCFile(add.path, add.partition_values, add.size, data_change=False) for add in adds]
