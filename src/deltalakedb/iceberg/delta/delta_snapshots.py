"""Makes an Iceberg snapshot of each version of a Delta table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deltalakedb.store.iceberg_delta import SnapshotRow
from deltalakedb.store.registry import Head

CLIENT_ID: Final = "icebergSnapshotId"
"""The field of commitInfo with the snapshot id that an Iceberg client chose for its commit."""

FOLDER: Final = "_iceberg"
"""The folder of the files that are written for Iceberg clients; VACUUM spares it because of the underscore."""

_COMPACTIONS: Final = frozenset({"OPTIMIZE", "REORG"})


def snapshot_id(table_uuid: str, row: SnapshotRow) -> int:
    """The id of a version's snapshot: that of the Iceberg client who committed it, or one made of the version."""
    given = row.commit_info.get(CLIENT_ID)
    return given if isinstance(given, int) else id_of_version(table_uuid, row.version)


def id_of_version(table_uuid: str, version: int) -> int:
    digest = hashlib.sha256(f"{table_uuid}:{version}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1


def sequence_number(version: int) -> int:
    """The sequence number of a version: they begin at 1, versions at 0."""
    return version + 1


def manifest_list_path(location: str, version: int, id_: int) -> str:
    """Where the manifest list of a version is, or will be once a client needs it."""
    return f"{location}/{FOLDER}/snap-{version}-{id_}.avro"


def snapshots_of(
    rows: Sequence[SnapshotRow],
    *,
    table_uuid: str,
    location: str,
    schema_ids: Mapping[int, int],
    head: Head,
    row_id_marks: Mapping[int, int] | None,
) -> list[dict[str, Any]]:
    """The snapshots of versions, oldest first; `row_id_marks` only if rows have ids."""
    snapshots: list[dict[str, Any]] = []
    parent: int | None = None
    next_row_id = 0
    for row in rows:
        id_ = snapshot_id(table_uuid, row)
        snapshot = {
            "snapshot-id": id_,
            "sequence-number": sequence_number(row.version),
            "timestamp-ms": row.committed_at_ms,
            "summary": _summary(row, head if row.version == head.current_version else None),
            "manifest-list": manifest_list_path(location, row.version, id_),
            "schema-id": schema_ids[row.version],
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        if row_id_marks is not None:
            after = max(row_id_marks.get(row.version, -1) + 1, next_row_id)
            snapshot |= {"first-row-id": next_row_id, "added-rows": after - next_row_id}
            next_row_id = after
        snapshots.append(snapshot)
        parent = id_
    return snapshots


def _summary(row: SnapshotRow, head: Head | None) -> dict[str, str]:
    counts = {
        "added-data-files": row.num_added or None,
        "deleted-data-files": row.num_removed or None,
        "total-data-files": row.num_files,
        "total-records": head.num_records if head is not None and not head.files_without_records else None,
        "total-files-size": head.size_bytes if head is not None else None,
    }
    return {
        "operation": _operation(row),
        **{name: str(value) for name, value in counts.items() if value is not None},
        "delta.version": str(row.version),
        **({"delta.operation": row.operation} if row.operation else {}),
    }


def _operation(row: SnapshotRow) -> str:
    """What a version did, in Iceberg's four words; one that changed no rows replaced files, or none."""
    if (row.operation or "").upper() in _COMPACTIONS or not (row.num_added or row.num_removed):
        return "replace"
    if not row.num_removed:
        return "append"
    return "overwrite" if row.num_added else "delete"
