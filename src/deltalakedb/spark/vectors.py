"""Deletion vectors for Spark: the rows that are gone, as keys that a scan's rows are joined with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.data.deletion_vectors import DeletionVectors
from deltalakedb.log.codec import deletion_vector_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from deltalakedb.data import DataStorage

ROW_BITS: Final = 40
"""A file has fewer rows than 2^40, a scan fewer files than 2^23: both fit into one number, the fastest key to join."""
_BROADCAST_ROWS: Final = 5_000_000
_KEY: Final = "__dldb_deleted"


def row_key(file_number: Column, row_index: Column) -> Column:
    """A row's place in a scan, as one number."""
    return F.shiftleft(file_number.cast("bigint"), ROW_BITS) + row_index


def without_deleted(
    rows: DataFrame, place: Column, vectors: Iterable[tuple[int, str]], storage: DataStorage, spark: SparkSession
) -> DataFrame:
    """The rows whose `place` is in no vector; vectors come with the numbers of their files, as the log has them."""
    reader = DeletionVectors(storage)
    keys = [
        reader.rows(deletion_vector_from_json(text)).astype(np.int64) + (number << ROW_BITS) for number, text in vectors
    ]
    if not keys:
        return rows
    deleted = pa.table({_KEY: np.concatenate(keys)})
    frame = spark.createDataFrame(deleted)
    # Beyond that many a hash table in every executor costs more than moving rows: Spark chooses.
    side = F.broadcast(frame) if deleted.num_rows <= _BROADCAST_ROWS else frame
    return rows.join(side, place == F.col(_KEY), "left_anti")
