"""Statistics files and partition statistics files of snapshots: parsing and updates."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from deltalakedb.iceberg.metadata.shapes import (
    int_list,
    long_field,
    objects_field,
    require_object,
    string_field,
    string_map,
)
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update


def parse_statistics(item: object, what: str = "statistics file") -> dict[str, Any]:
    """A statistics file whose fields have been checked."""
    source = parse_partition_statistics(item, what)
    long_field(source, "file-footer-size-in-bytes", what)
    for blob in objects_field(source, "blob-metadata", what):
        string_field(blob, "type", what)
        long_field(blob, "snapshot-id", what)
        long_field(blob, "sequence-number", what)
        int_list(blob, "fields", what)
        if "properties" in blob:
            string_map(blob, "properties", what)
    return source


def parse_partition_statistics(item: object, what: str = "partition statistics file") -> dict[str, Any]:
    """A partition statistics file whose fields have been checked."""
    source = require_object(item, what)
    long_field(source, "snapshot-id", what)
    string_field(source, "statistics-path", what)
    long_field(source, "file-size-in-bytes", what)
    return dict(source)


def set_statistics(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Set the statistics file of a snapshot."""
    _set(draft, "statistics", parse_statistics(update.get("statistics")))


def set_partition_statistics(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Set the partition statistics file of a snapshot."""
    _set(draft, "partition-statistics", parse_partition_statistics(update.get("partition-statistics")))


def _set(draft: TableDraft, name: str, file: dict[str, Any]) -> None:
    others = [other for other in draft.fields[name] if other["snapshot-id"] != file["snapshot-id"]]
    draft.set(name, [*others, file])


def remove_statistics(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove the statistics file of a snapshot, if there is one."""
    _remove(draft, "statistics", {long_field(update, "snapshot-id", "remove-statistics")})


def remove_partition_statistics(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove the partition statistics file of a snapshot, if there is one."""
    _remove(draft, "partition-statistics", {long_field(update, "snapshot-id", "remove-partition-statistics")})


def remove_statistics_of(draft: TableDraft, snapshot_ids: Set[int]) -> None:
    """Remove the statistics of both kinds of some snapshots."""
    _remove(draft, "statistics", snapshot_ids)
    _remove(draft, "partition-statistics", snapshot_ids)


def _remove(draft: TableDraft, name: str, snapshot_ids: Set[int]) -> None:
    kept = [file for file in draft.fields[name] if file["snapshot-id"] not in snapshot_ids]
    if len(kept) != len(draft.fields[name]):
        draft.set(name, kept)


UPDATES: Mapping[str, Update] = {
    "remove-partition-statistics": remove_partition_statistics,
    "remove-statistics": remove_statistics,
    "set-partition-statistics": set_partition_statistics,
    "set-statistics": set_statistics,
}
