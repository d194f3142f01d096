"""Snapshots: parsing, and the updates that add and remove them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.exceptions import CommitFailedError
from deltalakedb.iceberg.metadata.shapes import (
    check,
    int_field,
    long_field,
    long_list,
    optional_long,
    optional_string,
    refuse,
    require_object,
    string_field,
    string_list,
    string_map,
)
from deltalakedb.iceberg.metadata.snapshot_refs import remove_dangling_refs
from deltalakedb.iceberg.metadata.statistics import remove_statistics_of
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update

FIRST_VERSION_OF_ROW_LINEAGE = 3
_NOT_WITH_MANIFESTS = ("first-row-id", "added-rows", "key-id")
"""Fields that a snapshot cannot have if it lists its manifests itself, as v1 did at first."""
_UNKNOWN_OPERATION = "overwrite"
"""In a summary that says no operation, as in Java: readers refuse one without."""
_OPTIONAL = ("parent-snapshot-id", "schema-id", "first-row-id", "added-rows", "key-id")


def parse_snapshot(item: object, what: str = "snapshot") -> dict[str, Any]:
    """A snapshot whose fields have been checked; optional fields that are null are left out."""
    source = require_object(item, what)
    long_field(source, "snapshot-id", what)
    long_field(source, "timestamp-ms", what)
    if "sequence-number" in source:
        long_field(source, "sequence-number", what)
    if "summary" in source:
        string_map(source, "summary", what)
    if "manifest-list" in source:
        string_field(source, "manifest-list", what)
    else:
        string_list(source, "manifests", what)
    optional_long(source, "parent-snapshot-id", what)
    optional_string(source, "key-id", what)
    if source.get("schema-id") is not None:
        int_field(source, "schema-id", what)
    first_row_id, added_rows = optional_long(source, "first-row-id", what), optional_long(source, "added-rows", what)
    check(first_row_id is None or first_row_id >= 0, f"Invalid first-row-id (cannot be negative): {first_row_id}")
    check(added_rows is None or added_rows >= 0, f"Invalid added-rows (cannot be negative): {added_rows}")
    check(first_row_id is None or added_rows is not None, "Invalid added-rows: required when first-row-id is set")
    snapshot = {key: value for key, value in source.items() if value is not None or key not in _OPTIONAL}
    summary = snapshot.pop("summary", None)
    if summary:
        snapshot["summary"] = {"operation": _UNKNOWN_OPERATION, **summary}
    if "manifest-list" not in snapshot:
        return {key: value for key, value in snapshot.items() if key not in _NOT_WITH_MANIFESTS}
    return snapshot


def sequence_number(snapshot: Mapping[str, Any]) -> int:
    """The snapshot's sequence number, which is 0 in v1."""
    return int(snapshot.get("sequence-number", 0))


def add_snapshot(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Add a snapshot; one that was made for an older state of the table is a conflict, which the client may retry."""
    snapshot = parse_snapshot(update.get("snapshot"))
    for name, noun in (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order")):
        check(bool(draft.fields[name]), f"Attempting to add a snapshot before a {noun} is added")
    snapshot_id, number = snapshot["snapshot-id"], sequence_number(snapshot)
    check(snapshot_id not in draft.snapshots, f"Snapshot already exists for id: {snapshot_id}")
    last = draft.fields.get("last-sequence-number", 0)
    stale = number <= last if "parent-snapshot-id" in snapshot else number < last
    if stale and draft.format_version > 1:
        _conflict(f"Cannot add snapshot with sequence number {number} older than last sequence number {last}")
    draft.fields["last-sequence-number"] = number
    if draft.format_version >= FIRST_VERSION_OF_ROW_LINEAGE:
        _assign_rows(draft, snapshot)
    draft.snapshots[snapshot_id] = snapshot
    draft.added_snapshots.add(snapshot_id)
    draft.changed = True


def _assign_rows(draft: TableDraft, snapshot: Mapping[str, Any]) -> None:
    first_row_id, next_row_id = snapshot.get("first-row-id"), draft.fields["next-row-id"]
    if first_row_id is None:
        refuse("Cannot add a snapshot: first-row-id is null")
    if first_row_id < next_row_id:
        _conflict(f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first_row_id} < {next_row_id}")
    draft.fields["next-row-id"] = next_row_id + snapshot["added-rows"]


def _conflict(message: str) -> None:
    raise CommitFailedError(f"Validation failed, please retry: {message}")


def remove_snapshots(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove snapshots, their statistics and the refs to them; unknown ids are ignored."""
    removed = set(long_list(update, "snapshot-ids", "remove-snapshots")) & draft.snapshots.keys()
    if removed:
        draft.snapshots = {key: value for key, value in draft.snapshots.items() if key not in removed}
        draft.changed = draft.removed_snapshots = True
        remove_statistics_of(draft, removed)
    remove_dangling_refs(draft)


UPDATES: Mapping[str, Update] = {"add-snapshot": add_snapshot, "remove-snapshots": remove_snapshots}
