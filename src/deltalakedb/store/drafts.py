"""What a loader takes in and counts up: a state to start from, what its caller has read, a head and versions to be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltalakedb.log.actions import AppTransaction, CommitInfo, DomainMetadata, Metadata, Protocol
from deltalakedb.log.codec import to_json
from deltalakedb.log.text import to_sql_text
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
    vacuumed_version: int = 0
    vacuum_count: int = 0

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

    def to_row(self, table_id: int, *, total_added: int, total_closed: int) -> Row:
        """The row of `dl_table_versions`; the totals are those of the table's whole life."""
        info = self.commit_info
        value = info.value if info else {}
        return {
            "table_id": table_id,
            "version": self.version,
            "txn_id": _field(value, "txnId"),
            "committed_at_ms": self.timestamp_ms,
            "operation": _field(value, "operation"),
            "operation_params": _field(value, "operationParameters"),
            "operation_metrics": _field(value, "operationMetrics"),
            "commit_info": info.text if info else None,
            "commit_info_ordinal": self.commit_info_ordinal,
            "is_base": self.is_base,
            "num_actions": self.num_actions,
            "num_added_files": self.num_added,
            "num_removed_files": self.num_removed,
            "total_added": total_added,
            "total_closed": total_closed,
            "rendered_bytes": self.size_bytes,
        }


def _field(info: Mapping[str, object], name: str) -> str | None:
    """A field of commitInfo for people who look with SQL: text as it is, anything else as JSON."""
    value = info.get(name)
    if value is None:
        return None
    return to_sql_text(value) if isinstance(value, str) else to_json(value)
