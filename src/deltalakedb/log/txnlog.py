"""Owns the interface of a transaction log reader, whatever keeps the log, and the Arrow shape of its files.

String columns carry the form of `text.to_sql_text`: Arrow, like SQL, cannot hold lone surrogates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol as Interface
from typing import runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.commit import Commit

FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_values", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
        pa.field("data_change", pa.bool_()),
        pa.field("stats", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("deletion_vector", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("clustering_provider", pa.string()),
        pa.field("extra", pa.string()),
    ]
)

TOMBSTONES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("data_change", pa.bool_()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("deletion_vector", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("extra", pa.string()),
    ]
)


def deleted_after(tombstones: pa.RecordBatch, instant_ms: int) -> pa.RecordBatch:
    """The tombstones younger than an instant; one that does not say when it was made is as old as can be."""
    times = tombstones.column("deletion_timestamp").fill_null(0)
    return tombstones.filter(pc.greater(times, instant_ms))


@runtime_checkable
class LogSnapshot(Interface):
    """A table's state at one version."""

    @property
    def version(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def protocol(self) -> Protocol: ...

    @property
    def metadata(self) -> Metadata: ...

    def app_transactions(self) -> Mapping[str, AppTransaction]: ...

    def domain_metadata(self) -> Mapping[str, DomainMetadata]: ...

    def files(self) -> pa.RecordBatchReader:
        """The live files, in batches of FILES_SCHEMA."""
        ...

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        """The removed files still remembered, or those removed after an instant, in batches of TOMBSTONES_SCHEMA."""
        ...


@runtime_checkable
class TxnLogReader(Interface):
    """Reads a log, kept in files or in SQL."""

    def latest_version(self) -> int: ...

    def earliest_version(self) -> int:
        """The oldest version whose snapshot can be given."""
        ...

    def has_commit(self, version: int) -> bool:
        """Whether a version's own actions are there; one that a checkpoint stands for may have only its state."""
        ...

    def commits(self, start: int, end: int | None = None) -> Iterator[Commit]:
        """The commits from `start` through `end` (the latest when None), in order, both included."""
        ...

    def snapshot(self, version: int | None = None) -> LogSnapshot: ...
