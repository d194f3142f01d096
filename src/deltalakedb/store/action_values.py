"""Converts rows of the action tables to actions."""

import json
from collections.abc import Mapping
from typing import Any

from deltalakedb.log.protocol.actions import (
    AddCDCFile,
    AddFile,
    AppTransaction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import deletion_vector_from_json, format_from_json
from deltalakedb.log.protocol.text import from_sql_text

Values = Mapping[str, Any]


def to_add(row: Values) -> AddFile:
    return AddFile(
        from_sql_text(row["path"]),
        json.loads(row["partition_values"]),
        row["size"],
        row["modification_time"],
        row["data_change"],
        _text(row["stats"]),
        _json(row["tags"]),
        _deletion_vector(row["deletion_vector"]),
        row["base_row_id"],
        row["default_row_commit_version"],
        _text(row["clustering_provider"]),
        row["extra"],
    )


def to_remove(row: Values) -> RemoveFile:
    return RemoveFile(
        from_sql_text(row["path"]),
        row["data_change"],
        row["deletion_timestamp"],
        row["extended_file_metadata"],
        _json(row["partition_values"]),
        row["size"],
        _text(row["stats"]),
        _json(row["tags"]),
        _deletion_vector(row["deletion_vector"]),
        row["base_row_id"],
        row["default_row_commit_version"],
        row["extra"],
    )


def to_cdc(row: Values) -> AddCDCFile:
    return AddCDCFile(
        from_sql_text(row["path"]),
        json.loads(row["partition_values"]),
        row["size"],
        row["data_change"],
        _json(row["tags"]),
        row["extra"],
    )


def to_metadata(row: Values) -> Metadata:
    return Metadata(
        from_sql_text(row["metadata_id"]),
        format_from_json(row["format"]),
        from_sql_text(row["schema_json"]),
        tuple(json.loads(row["partition_columns"])),
        json.loads(row["configuration"]),
        _text(row["name"]),
        _text(row["description"]),
        row["created_time"],
        row["extra"],
    )


def to_protocol(row: Values) -> Protocol:
    return Protocol(
        row["min_reader_version"],
        row["min_writer_version"],
        _names(row["reader_features"]),
        _names(row["writer_features"]),
        row["extra"],
    )


def to_app_transaction(row: Values) -> AppTransaction:
    return AppTransaction(from_sql_text(row["app_id"]), row["app_version"], row["last_updated"], row["extra"])


def to_domain_metadata(row: Values) -> DomainMetadata:
    return DomainMetadata(
        from_sql_text(row["domain"]), from_sql_text(row["configuration"]), row["removed"], row["extra"]
    )


def to_other(row: Values) -> CommitInfo | UnknownAction:
    """A second commitInfo of a commit, or an action of an unknown kind."""
    kind = from_sql_text(row["kind"])
    return CommitInfo(row["action"]) if kind == "commitInfo" else UnknownAction(kind, row["action"])


def _text(value: str | None) -> str | None:
    return None if value is None else from_sql_text(value)


def _json(value: str | None) -> Any:
    return None if value is None else json.loads(value)


def _names(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(json.loads(value))


def _deletion_vector(value: str | None) -> DeletionVector | None:
    return None if value is None else deletion_vector_from_json(value)
