"""The form in which a table's metadata is worked on: all lists present, no copies of what other fields say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.partition_specs import FIRST_FIELD_ID, INITIAL_SPEC_ID, highest_field_id
from deltalakedb.iceberg.metadata.schemas import INITIAL_SCHEMA_ID
from deltalakedb.iceberg.metadata.snapshots import FIRST_VERSION_OF_ROW_LINEAGE
from deltalakedb.iceberg.metadata.sort_orders import UNSORTED, UNSORTED_ID
from deltalakedb.iceberg.metadata.table_draft import MAIN, NO_SNAPSHOT

_LISTS = ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")


def normal_form(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same metadata with the optional fields filled in, and without the fields of v1 that repeat others."""
    fields = _without_v1_copies(metadata) if metadata["format-version"] == 1 else dict(metadata)
    for name in _LISTS:
        if fields.get(name) is None:
            fields[name] = []
    if fields.get("properties") is None:
        fields["properties"] = {}
    return by_format_version(_with_main(fields))


def _with_main(fields: dict[str, Any]) -> dict[str, Any]:
    current = fields.get("current-snapshot-id")
    if fields.get("refs") is None:
        has_current = current is not None and current != NO_SNAPSHOT
        fields["refs"] = {MAIN: {"snapshot-id": current, "type": "branch"}} if has_current else {}
    fields["current-snapshot-id"] = NO_SNAPSHOT if current is None else current
    return fields


def by_format_version(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as the format version has them: sequence numbers from v2, row ids and null for no snapshot from v3."""
    version = fields["format-version"]
    if version > 1:
        fields.setdefault("last-sequence-number", 0)
    else:
        fields.pop("last-sequence-number", None)
    if version >= FIRST_VERSION_OF_ROW_LINEAGE:
        fields.setdefault("next-row-id", 0)
        if fields["current-snapshot-id"] == NO_SNAPSHOT:
            fields["current-snapshot-id"] = None
    else:
        fields.pop("next-row-id", None)
    if not fields.get("encryption-keys"):
        fields.pop("encryption-keys", None)
    return fields


def _without_v1_copies(metadata: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(metadata)
    schema, spec = fields.pop("schema", None), fields.pop("partition-spec", None)
    if fields.get("schemas") is None:
        schema_id = schema.get("schema-id") or INITIAL_SCHEMA_ID
        fields["schemas"] = [{**schema, "schema-id": schema_id}]
        fields["current-schema-id"] = schema_id
    if fields.get("partition-specs") is None:
        numbered = [
            {**field, "field-id": field.get("field-id", FIRST_FIELD_ID + place)} for place, field in enumerate(spec)
        ]
        fields["partition-specs"] = [{"spec-id": INITIAL_SPEC_ID, "fields": numbered}]
        fields["default-spec-id"] = INITIAL_SPEC_ID
    if fields.get("last-partition-id") is None:
        last_ids = [highest_field_id(spec) for spec in fields["partition-specs"]]
        fields["last-partition-id"] = max(last_ids, default=FIRST_FIELD_ID - 1)
    if fields.get("sort-orders") is None:
        fields["sort-orders"] = [dict(UNSORTED)]
        fields["default-sort-order-id"] = UNSORTED_ID
    return fields


def wire_form(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as files and answers hold it: Java's order of fields, and in v1 the copies for old readers."""
    fields = dict(metadata)
    if fields["format-version"] == 1:
        fields["schema"] = _find(fields, "schemas", "schema-id", "current-schema-id")
        fields["partition-spec"] = _find(fields, "partition-specs", "spec-id", "default-spec-id")["fields"]
    known = {name: fields.pop(name) for name in _ORDER if name in fields}
    return {**known, **{name: fields[name] for name in sorted(fields)}}


def _find(fields: Mapping[str, Any], name: str, id_name: str, chosen: str) -> Any:
    return next(item for item in fields[name] if item[id_name] == fields[chosen])


_ORDER = (
    "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "schema",
    "current-schema-id", "schemas", "partition-spec", "default-spec-id", "partition-specs", "last-partition-id",
    "default-sort-order-id", "sort-orders", "properties", "current-snapshot-id", "next-row-id", "encryption-keys",
    "refs", "snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log",
)  # fmt: skip
