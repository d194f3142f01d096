"""Rows that move to other files: read with their row ids, which row tracking stores in columns of the new file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.target import Target


def moving_schema(target: Target) -> StructType | None:
    """Return the columns of files with moved rows; None if they are the table's own."""
    row_ids = RowIds.of(target)
    return None if row_ids is None else row_ids.extend(target.schema)


def read_moving(target: Target, files: Sequence[AddFile]) -> pa.RecordBatchReader:
    """Return the rows of files, without deleted ones, in the columns of `moving_schema`, including row ids if any."""
    from deltalakedb.data import read_files
    from deltalakedb.data.reader import FILE, ROW

    row_ids, metadata = RowIds.of(target), target.metadata
    schema = target.schema if row_ids is None else row_ids.extend(target.schema)
    reader = read_files(
        adds_to_batch(files),
        storage=target.storage,
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        positions=row_ids is not None,
    )
    if row_ids is None:
        return reader
    names = list(schema.names)

    def with_ids() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if batch.num_rows:
                add = files[batch.column(FILE)[0].as_py()]
                yield row_ids.materialize(batch.select(names), batch.column(ROW), add)

    return pa.RecordBatchReader.from_batches(schema.to_arrow(), with_ids())


_ID: Final = "delta.rowTracking.materializedRowIdColumnName"
_VERSION: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True, slots=True)
class RowIds:
    """The names of the two columns for moved rows, whose id and version cannot come from the file's add action."""

    id_column: str
    version_column: str

    @classmethod
    def of(cls, target: Target) -> RowIds | None:
        """Return the columns of a table; None if it has no stable row ids."""
        configuration = target.metadata.configuration
        id_column, version_column = configuration.get(_ID), configuration.get(_VERSION)
        if not is_enabled(configuration, "delta.enableRowTracking") or not id_column or not version_column:
            return None
        return cls(id_column, version_column)

    def extend(self, schema: StructType) -> StructType:
        """Return the schema of files with moved rows."""
        fields = [StructField(name, PrimitiveType("long")) for name in (self.id_column, self.version_column)]
        return StructType((*schema.fields, *fields))

    def materialize(self, rows: pa.RecordBatch, numbers: pa.Array, add: AddFile) -> pa.RecordBatch:
        """Return rows of one file with their ids and versions filled in; `numbers` are their row numbers in it."""
        ids, versions = rows.column(self.id_column), rows.column(self.version_column)
        if add.base_row_id is not None:
            ids = pc.coalesce(ids, pc.add(numbers, pa.scalar(add.base_row_id, pa.int64())))
        if add.default_row_commit_version is not None:
            versions = pc.coalesce(versions, pa.scalar(add.default_row_commit_version, pa.int64()))
        return self._with(rows, [ids, versions])

    def changed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return changed rows: with the same ids, and the version of the commit being made."""
        return self._with(rows, [rows.column(self.id_column), pa.nulls(rows.num_rows, pa.int64())])

    def _with(self, rows: pa.RecordBatch, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        arrays |= dict(zip((self.id_column, self.version_column), columns, strict=True))
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)
