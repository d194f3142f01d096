"""The loader's inputs and counters: a base state, values its caller has read, drafts of the head and of versions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltalakedb.log.protocol.actions import AppTransaction, CommitInfo, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.codec import to_json, to_sql_text
from deltalakedb.store.connection import Row


@dataclass(frozen=True, slots=True)
class BaseState:
    """A table's state at one version, taken from a checkpoint: the start of the history in SQL."""

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
    """Values that a loader needs, already read by the caller under the head's lock."""

    total_added: int
    total_closed: int
    bounds_columns: Sequence[Row]
    live_keys: frozenset[bytes] | None = None
    """Which of the keys in the commits are live; None if not looked up."""


@dataclass(slots=True)
class HeadDraft:
    """The head while its totals are being computed; has the fields of `Head`."""

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
    """A version before its files are closed in SQL."""

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
        """The row of `dl_table_versions`; the totals count from the table's first version."""
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
    """A field of commitInfo for readers with SQL: text as it is, anything else as JSON."""
    value = info.get(name)
    if value is None:
        return None
    return to_sql_text(value) if isinstance(value, str) else to_json(value)
