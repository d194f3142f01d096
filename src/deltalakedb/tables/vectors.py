"""Selection vectors, the result of `deletion_vectors`: for each file that has one, which rows still exist."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.log.protocol import paths
from deltalakedb.log.protocol.codec import deletion_vector_from_json
from deltalakedb.log.protocol.text import from_sql_text
from deltalakedb.log.statistics.stats import parse_stats
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.opening import open_logged

VECTORS_SCHEMA = pa.schema(
    [
        pa.field("filepath", pa.large_string(), nullable=False),
        pa.field("selection_vector", pa.list_(pa.field("item", pa.bool_(), nullable=False)), nullable=False),
    ]
)


def selection_vectors(files: pa.Table, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Yield one batch for each file (of FILES_SCHEMA) that has a deletion vector; true means that the row exists."""
    vectors = DeletionVectors(storage)
    with_vectors = files.filter(pc.is_valid(files.column("deletion_vector")))
    for row in with_vectors.select(["path", "size", "stats", "deletion_vector"]).to_pylist():
        path = from_sql_text(row["path"])
        keep = np.ones(_num_rows(storage, path, row["size"], row["stats"]), np.bool_)
        keep[vectors.rows(deletion_vector_from_json(row["deletion_vector"])).astype(np.int64)] = False
        uri = paths.resolve(storage.location, path)
        arrays = [pa.array([uri], pa.large_string()), pa.array([keep.tolist()], VECTORS_SCHEMA.field(1).type)]
        yield pa.RecordBatch.from_arrays(arrays, schema=VECTORS_SCHEMA)


def _num_rows(storage: Storage, path: str, size: int | None, stats: str | None) -> int:
    parsed = None if stats is None else parse_stats(from_sql_text(stats))
    if parsed is not None and parsed.num_records is not None:
        return parsed.num_records
    with open_logged(storage, path, size) as file:
        rows: int = pq.ParquetFile(file).metadata.num_rows
    return rows
