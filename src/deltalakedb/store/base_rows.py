"""Converts batches of added and removed files to rows for a bulk insert."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.actions import DeletionVector
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, key_hashes, to_sql_text
from deltalakedb.log.statistics.stats import count_or_none, load_stats
from deltalakedb.store.connection import LIVE
from deltalakedb.store.rows import fill_columns


class RecordCounter:
    """Counts the rows of files from their statistics, and the statistics that cannot be read."""

    def __init__(self) -> None:
        self.num_unreadable = 0

    def live(self, stats: str | None, deleted: int) -> int | None:
        """The rows of a file without those that its deletion vector deletes; None if the statistics have no count."""
        if stats is None:
            return None
        value = load_stats(stats)
        if value is None:
            self.num_unreadable += 1
            return None
        physical = count_or_none(value.get("numRecords"))
        return None if physical is None else physical - deleted

    def physical(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows of each file of a batch of FILES_SCHEMA, including deleted ones."""
        texts = batch.column("stats").to_pylist()
        return pa.array([None if text is None else self.live(from_sql_text(text), 0) for text in texts], pa.int64())


def add_rows(
    batch: pa.RecordBatch,
    table_id: int,
    version: int,
    *,
    ordinals: Sequence[int],
    first_file_id: int,
    physical_records: pa.Array,
    hashes: Sequence[bytes] | None = None,
) -> pa.Table:
    """Rows of dl_add_files for a batch of FILES_SCHEMA, all live from `version` on."""
    size = batch.num_rows
    vectors = _deletion_vectors(batch)
    dv_ids = [to_sql_text(vector.unique_id) if vector else "" for vector in vectors]
    if hashes is None:
        hashes = key_hashes(*(_from_sql_texts(texts) for texts in (batch.column("path").to_pylist(), dv_ids)))
    deleted = pa.array([vector.cardinality if vector else 0 for vector in vectors], pa.int64())
    return fill_columns(
        batch,
        "dl_add_files",
        table_id=table_id,
        version=version,
        ordinal=pa.array(ordinals, pa.int64()),
        file_id=pa.array(range(first_file_id, first_file_id + size), pa.int64()),
        removed_version=LIVE,
        dv_id=pa.array(dv_ids, pa.string()),
        key_hash=pa.array(hashes, pa.binary()),
        num_records=pc.subtract(physical_records, deleted),
    )


def tombstone_rows(batch: pa.RecordBatch, table_id: int, version: int, *, first_ordinal: int) -> pa.Table:
    """Rows of dl_remove_files for a batch of TOMBSTONES_SCHEMA."""
    dv_ids = [to_sql_text(vector.unique_id) if vector else "" for vector in _deletion_vectors(batch)]
    return fill_columns(
        batch,
        "dl_remove_files",
        table_id=table_id,
        version=version,
        ordinal=pa.array(range(first_ordinal, first_ordinal + batch.num_rows), pa.int64()),
        dv_id=pa.array(dv_ids, pa.string()),
    )


def _deletion_vectors(batch: pa.RecordBatch) -> list[DeletionVector | None]:
    column = batch.column("deletion_vector")
    if column.null_count == batch.num_rows:
        return [None] * batch.num_rows
    return [None if text is None else deletion_vector_from_json(text) for text in column.to_pylist()]


def _from_sql_texts(texts: list[str]) -> list[str]:
    return [from_sql_text(text) if "\\" in text else text for text in texts]
