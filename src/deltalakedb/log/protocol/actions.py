"""Owns the actions of the Delta protocol as frozen values; field names are the protocol's in snake_case.

`extra` holds the JSON that the fields cannot represent: the exact text of unknown fields, known fields that are an
explicit null, and known fields whose source spelling differs from ours. It is "" if there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

FileKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DeletionVector:
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None
    extra: str = ""

    @property
    def unique_id(self) -> str:
        tail = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{tail}"


@dataclass(frozen=True, slots=True)
class AddFile:
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: str = ""

    @property
    def dv_id(self) -> str:
        return "" if self.deletion_vector is None else self.deletion_vector.unique_id

    @property
    def key(self) -> FileKey:
        return (self.path, self.dv_id)


@dataclass(frozen=True, slots=True)
class RemoveFile:
    path: str
    data_change: bool
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: str = ""

    @property
    def dv_id(self) -> str:
        return "" if self.deletion_vector is None else self.deletion_vector.unique_id

    @property
    def key(self) -> FileKey:
        return (self.path, self.dv_id)

    @property
    def ends_vectors(self) -> bool:
        """Whether this removes a file of deletion vectors, as Spark does for vacuum when it drops the feature."""
        return not self.data_change and self.path.endswith(".bin") and "deletion_vector_" in self.path

    @classmethod
    def of(cls, add: AddFile, *, at_ms: int, data_change: bool = True) -> RemoveFile:
        """Returns the remove action of a live file, with the same file key."""
        return cls(
            path=add.path,
            data_change=data_change,
            deletion_timestamp=at_ms,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            stats=add.stats,
            tags=add.tags,
            deletion_vector=add.deletion_vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )


@dataclass(frozen=True, slots=True)
class AddCDCFile:
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    data_change: bool
    tags: Mapping[str, str | None] | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    provider: str = "parquet"
    options: Mapping[str, str | None] = field(default_factory=dict)
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Metadata:
    id: str
    format: Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None]
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Protocol:
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """The `txn` action."""

    app_id: str
    version: int
    last_updated: int | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    domain: str
    configuration: str
    removed: bool
    extra: str = ""


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Free JSON about a commit; `text` is the exact source text of the value."""

    text: str

    @property
    def value(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed

    @property
    def operation(self) -> str | None:
        return _string(self.value.get("operation"))

    @property
    def timestamp(self) -> int | None:
        return _integer(self.value.get("timestamp"))

    @property
    def in_commit_timestamp(self) -> int | None:
        return _integer(self.value.get("inCommitTimestamp"))

    @property
    def txn_id(self) -> str | None:
        return _string(self.value.get("txnId"))


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """Only in V2 checkpoints; `text` is the exact source text of the value."""

    text: str

    @property
    def version(self) -> int | None:
        return _integer(json.loads(self.text).get("version"))


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Only in V2 checkpoints."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """An action of an unknown kind; `text` is the exact source text of its value."""

    kind: str
    text: str


Action: TypeAlias = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | AppTransaction
    | DomainMetadata
    | CommitInfo
    | CheckpointMetadata
    | Sidecar
    | UnknownAction
)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
