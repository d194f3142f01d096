"""What a loader takes in and counts up: a state to start from, what its caller has read, a head and versions to be."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltalakedb.log.actions import AppTransaction, CommitInfo, DomainMetadata, Metadata, Protocol
from deltalakedb.store.connection import Row


@dataclass(frozen=True, slots=True)
class BaseState:
    """A table's state at one version, as a checkpoint gives it: the start of the history kept in SQL."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    app_transactions: Iterable[AppTransaction]
    domain_metadata: Iterable[DomainMetadata]
    files: Iterable[pa.RecordBatch]
    tombstones: Iterable[pa.RecordBatch]
    commit_info: CommitInfo | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a loader would have to read first, read already by the caller under the head's lock."""

    total_added: int
    total_closed: int
    bounds_columns: Sequence[Row]
    live_keys: frozenset[bytes] | None = None
    """Which of the keys the commits name are live; None: not looked up."""


@dataclass(slots=True)
class HeadDraft:
    """The head while it is being counted; the fields of `Head`."""

    table_id: int
    current_version: int = -1
    metadata_version: int = -1
    protocol_version: int = -1
    mirrored_version: int = -1
    base_version: int = 0
    last_commit_ms: int = -1
    num_files: int = 0
    num_records: int = 0
    files_without_records: int = 0
    size_bytes: int = 0
    next_file_id: int = 0
    bounds_epoch: int = 0

    def count(self, sign: int, size: int, records: int | None) -> None:
        self.num_files += sign
        self.size_bytes += sign * size
        if records is None:
            self.files_without_records += sign
        else:
            self.num_records += sign * records


@dataclass(slots=True)
class VersionDraft:
    """What is known of a version before its files are closed in SQL."""

    version: int
    timestamp_ms: int
    size_bytes: int | None = None
    fenced: bool | None = None
    is_base: bool = False
    commit_info: CommitInfo | None = None
    commit_info_ordinal: int | None = None
    num_actions: int = 0
    num_added: int = 0
    num_removed: int = 0
