"""Keeps the row ids of rows that move to another file: with row tracking they are stored in columns of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.target import Target

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
