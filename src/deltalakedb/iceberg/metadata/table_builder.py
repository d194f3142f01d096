"""Applies the updates of a request to a table's metadata, by the rules of Java's `TableMetadata.Builder`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalakedb.iceberg.metadata import (
    encryption_keys,
    schema_updates,
    snapshot_refs,
    snapshots,
    sort_orders,
    spec_updates,
    statistics,
    table_properties,
)
from deltalakedb.iceberg.metadata.metadata_log import with_previous_file
from deltalakedb.iceberg.metadata.normal_form import by_format_version, normal_form
from deltalakedb.iceberg.metadata.partition_specs import INITIAL_SPEC_ID
from deltalakedb.iceberg.metadata.rendering import render_metadata
from deltalakedb.iceberg.metadata.schemas import INITIAL_SCHEMA_ID
from deltalakedb.iceberg.metadata.shapes import (
    check,
    check_json,
    choose,
    int_field,
    require_list,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.snapshot_refs import finish_snapshot_log
from deltalakedb.iceberg.metadata.sort_orders import UNSORTED_ID
from deltalakedb.iceberg.metadata.table_checks import check_table
from deltalakedb.iceberg.metadata.table_draft import NO_SNAPSHOT, TableDraft, Update

__all__ = ["apply_updates", "render_metadata", "with_previous_file"]

DEFAULT_FORMAT_VERSION = 2
SUPPORTED_FORMAT_VERSION = 3


def apply_updates(
    base: Mapping[str, Any] | None,
    updates: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
    table_uuid: str | None = None,
) -> dict[str, Any]:
    """The metadata after the updates; without a base they create the table, which `table_uuid` names until one does.

    If the updates change nothing, the result equals the base. Parts that did not change are shared with the base.
    """
    for update in require_list(updates, "updates"):
        check_json(require_object(update, "update"), "update")
    known = [choose(update, "action", _UPDATES, "table update") for update in updates]
    draft = TableDraft(_empty_table(updates, table_uuid) if base is None else normal_form(base), now_ms)
    for apply, update in zip(known, updates, strict=True):
        apply(draft, update)
    if base is not None and not draft.changed:
        return dict(base)
    return _finish(draft)


def _empty_table(updates: Sequence[Mapping[str, Any]], table_uuid: str | None) -> dict[str, Any]:
    version = DEFAULT_FORMAT_VERSION
    for update in updates:
        if str(update.get("action")).lower() == "upgrade-format-version":
            version = _format_version(update)
            break
    fields: dict[str, Any] = {
        "format-version": version,
        "table-uuid": table_uuid,
        "location": None,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "current-schema-id": INITIAL_SCHEMA_ID,
        "schemas": [],
        "default-spec-id": INITIAL_SPEC_ID,
        "partition-specs": [],
        "last-partition-id": 0,
        "default-sort-order-id": UNSORTED_ID,
        "sort-orders": [],
        "current-snapshot-id": NO_SNAPSHOT,
        "refs": {},
    }
    return normal_form(fields)


def _finish(draft: TableDraft) -> dict[str, Any]:
    fields = draft.fields
    fields["last-updated-ms"] = draft.now_ms
    fields["snapshots"] = list(draft.snapshots.values())
    fields["refs"] = draft.refs
    fields["snapshot-log"] = finish_snapshot_log(draft)
    location = fields["location"]
    check(bool(location), "Table location is required: it must not be null or empty")
    fields["location"] = strip_trailing_slash(location)
    check_table(fields)
    return by_format_version(fields)


def strip_trailing_slash(location: str) -> str:
    """The location without slashes at its end, except those of `scheme://`."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def _assign_uuid(draft: TableDraft, update: Mapping[str, Any]) -> None:
    uuid = string_field(update, "uuid", "assign-uuid")
    if uuid != draft.fields.get("table-uuid"):
        draft.set("table-uuid", uuid)


def _format_version(update: Mapping[str, Any]) -> int:
    version = int_field(update, "format-version", "upgrade-format-version")
    supported = 1 <= version <= SUPPORTED_FORMAT_VERSION
    check(
        supported,
        f"Cannot upgrade table to unsupported format version: v{version} (supported: v{SUPPORTED_FORMAT_VERSION})",
    )
    return version


def _upgrade_format_version(draft: TableDraft, update: Mapping[str, Any]) -> None:
    version = _format_version(update)
    check(version >= draft.format_version, f"Cannot downgrade v{draft.format_version} table to v{version}")
    if version != draft.format_version:
        draft.set("format-version", version)
        by_format_version(draft.fields)


def _enable_row_lineage(draft: TableDraft, _: Mapping[str, Any]) -> None:
    """An update of old clients: v3 always has row lineage."""
    has_lineage = draft.format_version >= snapshots.FIRST_VERSION_OF_ROW_LINEAGE
    check(has_lineage, f"Cannot use row lineage with format version v{draft.format_version}: it needs v3")


def _set_location(draft: TableDraft, update: Mapping[str, Any]) -> None:
    location = string_field(update, "location", "set-location")
    if location != draft.fields["location"]:
        draft.set("location", location)


_UPDATES: Mapping[str, Update] = {
    "assign-uuid": _assign_uuid,
    "enable-row-lineage": _enable_row_lineage,
    "set-location": _set_location,
    "upgrade-format-version": _upgrade_format_version,
    **encryption_keys.UPDATES,
    **schema_updates.UPDATES,
    **snapshot_refs.UPDATES,
    **snapshots.UPDATES,
    **sort_orders.UPDATES,
    **spec_updates.UPDATES,
    **statistics.UPDATES,
    **table_properties.UPDATES,
}
