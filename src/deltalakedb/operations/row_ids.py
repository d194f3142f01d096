"""Owns row ids of rows that move to another file: with row tracking a row keeps its id, in columns of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.actions import AddFile
from deltalakedb.log.features import is_enabled
from deltalakedb.log.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.target import Target

_ID: Final = "delta.rowTracking.materializedRowIdColumnName"
_VERSION: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True, slots=True)
class RowIds:
    """The names of the two columns that hold what a file's add action would say wrongly of moved rows."""

    id_column: str
    version_column: str

    @classmethod
    def of(cls, target: Target) -> RowIds | None:
        """None for a table that promises no stable row ids."""
        configuration = target.metadata.configuration
        id_column, version_column = configuration.get(_ID), configuration.get(_VERSION)
        if not is_enabled(configuration, "delta.enableRowTracking") or not id_column or not version_column:
            return None
        return cls(id_column, version_column)

    def extend(self, schema: StructType) -> StructType:
        """The schema of files that hold moved rows."""
        fields = [StructField(name, PrimitiveType("long")) for name in (self.id_column, self.version_column)]
        return StructType((*schema.fields, *fields))

    def materialize(self, rows: pa.RecordBatch, numbers: pa.Array, add: AddFile) -> pa.RecordBatch:
        """Rows of one file, whose numbers in it are given, with their ids and versions written out."""
        ids, versions = rows.column(self.id_column), rows.column(self.version_column)
        if add.base_row_id is not None:
            ids = pc.coalesce(ids, pc.add(numbers, pa.scalar(add.base_row_id, pa.int64())))
        if add.default_row_commit_version is not None:
            versions = pc.coalesce(versions, pa.scalar(add.default_row_commit_version, pa.int64()))
        return self._with(rows, [ids, versions])

    def changed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with new values: the same ids, of the version that is being made."""
        return self._with(rows, [rows.column(self.id_column), pa.nulls(rows.num_rows, pa.int64())])

    def _with(self, rows: pa.RecordBatch, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        arrays |= dict(zip((self.id_column, self.version_column), columns, strict=True))
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)
