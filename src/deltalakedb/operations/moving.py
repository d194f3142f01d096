"""Reads rows that only move to other files, with their row ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.row_ids import RowIds
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    import pyarrow as pa


def moving_schema(target: Target) -> StructType | None:
    """Return the columns of files with moved rows; None if they are the table's own."""
    row_ids = RowIds.of(target)
    return None if row_ids is None else row_ids.extend(target.schema)


def read_moving(target: Target, files: Sequence[AddFile]) -> pa.RecordBatchReader:
    """Return the rows of files, without deleted ones, in the columns of `moving_schema`, including row ids if any."""
    import pyarrow as pa

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
