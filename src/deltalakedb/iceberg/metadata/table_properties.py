"""Table properties: the updates that set and remove them, reading numbers, and what a new table must not have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.schemas import Schema
from deltalakedb.iceberg.metadata.shapes import brief, check, refuse, string_list, string_map
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update

FORMAT_VERSION = "format-version"
RESERVED = frozenset({
    "current-schema", "current-snapshot-id", "current-snapshot-summary", "current-snapshot-timestamp-ms",
    "default-partition-spec", "default-sort-order", FORMAT_VERSION, "snapshot-count", "uuid",
})  # fmt: skip
"""Properties that only describe the table: they are not stored."""
NEW_TABLE_PROPERTIES: Mapping[str, str] = {"write.parquet.compression-codec": "zstd"}
"""Set on new tables, as by Java, unless the request sets them."""

_COMMIT = (
    "commit.retry.num-retries", "commit.retry.min-wait-ms", "commit.retry.max-wait-ms", "commit.retry.total-timeout-ms",
)  # fmt: skip
_ENCRYPTION = ("encryption.data-key-length", "encryption.key-id")
_FIRST_VERSION_OF_ENCRYPTION = 3
_METRICS_OF_COLUMN = "write.metadata.metrics.column."
_NUMBER = re.compile(r"[+-]?\d+")


def int_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property that is a 32-bit integer."""
    text = properties.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or len(text) > 11 or not -(2**31) <= int(text) < 2**31:
        refuse(f"Table property {name} must have integer value, not {brief(text)}")
    return int(text)


def bool_property(properties: Mapping[str, str], name: str) -> bool:
    """A property that is false unless it is `true`."""
    return properties.get(name, "").lower() == "true"


def check_new_properties(properties: Mapping[str, str], schema: Schema, format_version: int) -> None:
    """Refuse properties that a table cannot be created with."""
    for name in properties:
        column = name.removeprefix(_METRICS_OF_COLUMN)
        known = column == name or schema.find(column) is not None
        check(known, f"Invalid metrics config, could not find column {column} from table prop {name} in schema")
    for name in _COMMIT:
        not_negative = int_property(properties, name, 0) >= 0
        check(not_negative, f"Table property {name} must have non negative integer value")
    encryption = [name for name in _ENCRYPTION if name in properties]
    allowed = not encryption or format_version >= _FIRST_VERSION_OF_ENCRYPTION
    check(allowed, f"Invalid properties for v{format_version}: {', '.join(encryption)}")


def updated_properties(update: Mapping[str, Any]) -> dict[str, str]:
    """What `set-properties` sets; old clients call the field `updated`."""
    name = "updates" if "updates" in update or "updated" not in update else "updated"
    return string_map(update, name, "set-properties")


def removed_properties(update: Mapping[str, Any]) -> list[str]:
    """What `remove-properties` removes; old clients call the field `removed`."""
    name = "removals" if "removals" in update or "removed" not in update else "removed"
    return string_list(update, name, "remove-properties")


def set_properties(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Set properties."""
    updates = updated_properties(update)
    if updates:
        draft.set("properties", {**draft.fields["properties"], **updates})


def remove_properties(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove properties; unknown names are ignored."""
    removed = set(removed_properties(update))
    if removed:
        kept = {name: value for name, value in draft.fields["properties"].items() if name not in removed}
        draft.set("properties", kept)


UPDATES: Mapping[str, Update] = {"remove-properties": remove_properties, "set-properties": set_properties}
