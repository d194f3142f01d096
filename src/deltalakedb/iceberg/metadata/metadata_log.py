"""The log of a table's earlier metadata files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.shapes import check
from deltalakedb.iceberg.metadata.table_checks import ONE_MINUTE_MS
from deltalakedb.iceberg.metadata.table_properties import bool_property, int_property

_MAX = "write.metadata.previous-versions-max"
_MAX_DEFAULT = 100
_DELETE = "write.metadata.delete-after-commit.enabled"


def with_previous_file(
    metadata: Mapping[str, Any], *, previous_location: str, previous_updated_ms: int
) -> tuple[dict[str, Any], list[str]]:
    """The metadata with the file that it replaces in its log, and the files to delete once it is committed.

    These are the files that fell out of the log, if the table's properties ask for their deletion.
    """
    updated_ms, properties = metadata["last-updated-ms"], metadata.get("properties") or {}
    check(
        updated_ms - previous_updated_ms >= -ONE_MINUTE_MS,
        f"Invalid update timestamp {updated_ms}: before the latest metadata log entry timestamp {previous_updated_ms}",
    )
    newest = {"timestamp-ms": previous_updated_ms, "metadata-file": previous_location}
    log = [*(metadata.get("metadata-log") or []), newest]
    dropped = max(0, len(log) - max(1, int_property(properties, _MAX, _MAX_DEFAULT)))
    kept_files = {entry["metadata-file"] for entry in log[dropped:]}
    gone = [entry["metadata-file"] for entry in log[:dropped] if entry["metadata-file"] not in kept_files]
    return {**metadata, "metadata-log": log[dropped:]}, gone if bool_property(properties, _DELETE) else []
