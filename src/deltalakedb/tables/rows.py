"""RowsOfTable: the rows of a DeltaTable, read through its plan."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from deltalakedb.reading import FilterDnf, RowFilter, is_expression, read_rows
from deltalakedb.tables.files import FilesOfTable

if TYPE_CHECKING:
    import pyarrow as pa


class RowsOfTable(FilesOfTable):
    """What the table's files hold."""

    def to_pyarrow_table(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
    ) -> pa.Table:
        """The rows, or those for which `filters` (filter lists, SQL, or an expression of pyarrow) is true.

        `partitions` only chooses files, and is deprecated as in `deltalake`. A file system cannot be given: files are
        opened with the storage options of the table.
        """
        if filesystem is not None:
            raise ValueError("`filesystem` is not supported: give storage_options when the table is opened")
        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=2)
        return self._read(partitions, columns, filters).read_all()

    def to_pandas(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
        types_mapper: Any = None,
    ) -> Any:
        """The rows as a pandas DataFrame; the arguments are those of `to_pyarrow_table`."""
        table = self.to_pyarrow_table(partitions, columns, filesystem, filters)
        return table.to_pandas(types_mapper=types_mapper)

    def _read(
        self, partitions: FilterDnf | None, columns: list[str] | None, filters: RowFilter | None
    ) -> pa.RecordBatchReader:
        chosen = filters if partitions is None else partitions
        predicate = None if chosen is None or is_expression(chosen) else self._parsed(chosen)
        self._note_read(predicate)
        files = self._snapshot.files_table() if predicate is None else self._planned(predicate, None, False).files
        return read_rows(
            files,
            self._snapshot.metadata,
            self._backing.location,
            self._backing.storage_options(),
            columns=columns,
            filters=filters,
        )
