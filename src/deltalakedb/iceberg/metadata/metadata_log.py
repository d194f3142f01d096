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
    log = list(metadata.get("metadata-log") or [])
    properties = metadata.get("properties") or {}
    kept = max(1, int_property(properties, _MAX, _MAX_DEFAULT)) - 1
    newest = {"timestamp-ms": previous_updated_ms, "metadata-file": previous_location}
    check(
        metadata["last-updated-ms"] - previous_updated_ms >= -ONE_MINUTE_MS,
        f"Invalid update timestamp {metadata['last-updated-ms']}: before the latest metadata log entry timestamp"
        f" {previous_updated_ms}",
    )
    dropped, log = log[: len(log) - kept], [*log[len(log) - kept :], newest] if kept < len(log) else [*log, newest]
    gone = [entry["metadata-file"] for entry in dropped] if kept < len(log) else []
    still_named = {entry["metadata-file"] for entry in log}
    deleted = [file for file in gone if file not in still_named] if bool_property(properties, _DELETE) else []
    return {**metadata, "metadata-log": log}, deleted
