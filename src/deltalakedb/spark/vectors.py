"""Deletion vectors for Spark: deleted rows as keys that a scan's rows are joined with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.log.protocol.codec import deletion_vector_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from deltalakedb.storage.interface import Storage

ROW_BITS: Final = 40
"""A file has fewer than 2^40 rows, a scan fewer than 2^23 files: both fit into one number, the fastest join key."""
_BROADCAST_ROWS: Final = 5_000_000
_KEY: Final = "__dldb_deleted"


def row_key(file_number: Column, row_index: Column) -> Column:
    """The position of a row in a scan, as one number."""
    return F.shiftleft(file_number.cast("bigint"), ROW_BITS) + row_index


def without_deleted(
    rows: DataFrame, place: Column, vectors: Iterable[tuple[int, str]], storage: Storage, spark: SparkSession
) -> DataFrame:
    """The rows whose `place` is in no vector; vectors are pairs of a file number and the log's JSON."""
    reader = DeletionVectors(storage)
    keys = [
        reader.rows(deletion_vector_from_json(text)).astype(np.int64) + (number << ROW_BITS) for number, text in vectors
    ]
    if not keys:
        return rows
    deleted = pa.table({_KEY: np.concatenate(keys)})
    frame = spark.createDataFrame(deleted)
    # With more rows a hash table in every executor costs more than moving rows: Spark chooses.
    side = F.broadcast(frame) if deleted.num_rows <= _BROADCAST_ROWS else frame
    return rows.join(side, place == F.col(_KEY), "left_anti")
