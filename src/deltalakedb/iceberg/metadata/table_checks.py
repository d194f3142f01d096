"""Checks of a table's metadata as a whole, made after all updates of a request and when a file is registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalakedb.iceberg.metadata.partition_specs import check_sources
from deltalakedb.iceberg.metadata.schemas import parse_schema
from deltalakedb.iceberg.metadata.shapes import check, refuse
from deltalakedb.iceberg.metadata.snapshots import sequence_number
from deltalakedb.iceberg.metadata.sort_orders import check_sort_order
from deltalakedb.iceberg.metadata.table_draft import MAIN, NO_SNAPSHOT

ONE_MINUTE_MS = 60_000
"""Clocks of different machines may differ by this much."""


def check_table(fields: Mapping[str, Any]) -> None:
    """Refuse metadata whose parts do not fit together."""
    version = fields["format-version"]
    check(version == 1 or fields.get("table-uuid") is not None, f"UUID is required in format v{version}")
    check_current(fields)
    check_snapshots(fields)
    check_times(fields)


def check_current(fields: Mapping[str, Any]) -> None:
    """Refuse a default spec or sort order that does not fit the current schema."""
    schema = parse_schema(_chosen(fields, "schemas", "schema-id", "current-schema-id"))
    check_sources(_chosen(fields, "partition-specs", "spec-id", "default-spec-id"), schema)
    check_sort_order(_chosen(fields, "sort-orders", "order-id", "default-sort-order-id"), schema)


def _chosen(fields: Mapping[str, Any], name: str, id_name: str, chosen: str) -> Mapping[str, Any]:
    for item in fields[name]:
        if item[id_name] == fields[chosen]:
            return dict(item)
    return refuse(f"Invalid table metadata: '{name}' has no item with the {chosen} {fields[chosen]}")


def check_snapshots(fields: Mapping[str, Any]) -> None:
    """Refuse refs to snapshots that do not exist, a current snapshot that main does not name, and wrong numbers."""
    last = fields.get("last-sequence-number", 0)
    check(fields["format-version"] > 1 or last == 0, f"Sequence number must be 0 in v1: {last}")
    for snapshot in fields["snapshots"]:
        number = sequence_number(snapshot)
        check(
            number <= last,
            f"Invalid snapshot with sequence number {number} greater than last sequence number {last}",
        )
    snapshot_ids = {snapshot["snapshot-id"] for snapshot in fields["snapshots"]}
    for name, ref in fields["refs"].items():
        known = ref["snapshot-id"] in snapshot_ids
        check(known, f"Snapshot for reference {name} does not exist in the existing snapshots list")
    current, main = fields["current-snapshot-id"], fields["refs"].get(MAIN)
    if current is None or current == NO_SNAPSHOT:
        check(main is None, "Current snapshot is not set, but main branch exists")
        return
    matches = main is None or main["snapshot-id"] == current
    check(matches, f"Current snapshot ID does not match main branch: {current}")
    check(current < 0 or current in snapshot_ids, "Invalid table metadata: Cannot find current version")


def check_times(fields: Mapping[str, Any]) -> None:
    """Refuse logs that are not in the order of time, and an update that is older than their last entries."""
    updated_ms = fields["last-updated-ms"]
    last = _check_sorted(fields["snapshot-log"], "snapshot log")
    check(
        last is None or updated_ms - last >= -ONE_MINUTE_MS,
        f"Invalid update timestamp {updated_ms}: before last snapshot log entry at {last}",
    )
    last = _check_sorted(fields["metadata-log"], "previous metadata log")
    check(
        last is None or updated_ms - last >= -ONE_MINUTE_MS,
        f"Invalid update timestamp {updated_ms}: before the latest metadata log entry timestamp {last}",
    )


def _check_sorted(log: Sequence[Mapping[str, Any]], noun: str) -> int | None:
    last: int | None = None
    for entry in log:
        if last is not None and entry["timestamp-ms"] - last < -ONE_MINUTE_MS:
            refuse(f"Expected sorted {noun} entries: {entry['timestamp-ms']} comes after {last}")
        last = entry["timestamp-ms"]
    return last
