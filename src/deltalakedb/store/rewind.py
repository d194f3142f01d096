"""Rewind: removes a table's newest commits from SQL, inside the caller's transaction.

The one exception to "append only": another writer's file holds a version that SQL gave to one of our commits, and files
are never overwritten. The caller commits the removed commits again and writes the audit row.
"""

from __future__ import annotations

import pyarrow as pa

from deltalakedb.exceptions import StoreError
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.store import registry
from deltalakedb.store.bounds_index import BoundsIndex
from deltalakedb.store.connection import Connection
from deltalakedb.store.registry import Head, TableRow

RESOLUTIONS = "resolutions"
"""The table property that counts how often commits got other versions: transactions that read before must repeat."""

_ROWS_OF_COMMITS = (
    "rewind_remove_files",
    "rewind_cdc_files",
    "rewind_metadata",
    "rewind_protocols",
    "rewind_txn_actions",
    "rewind_domains",
    "rewind_other_actions",
    "rewind_versions",
    "rewind_mirror_status",
    "rewind_delta_lists",
    "rewind_delta_manifests",
    "reopen_delta_manifests",
)


def rewind(conn: Connection, table: TableRow, head: Head, version: int) -> Head:
    """Returns the table to `version`; removes every later commit. The caller has locked its head."""
    if version < head.base_version:
        raise StoreError(
            f"{table.full_name}: SQL keeps its commits from version {head.base_version + 1} on, so it cannot go back "
            f"to version {version}"
        )
    ids = {"table_id": table.table_id, "version": version}
    version_row, row = conn.one("select_version", **ids), conn.one("select_metadata", **ids)
    protocol = conn.one("select_protocol", **ids)
    if version_row is None or row is None or protocol is None:
        raise StoreError(f"{table.full_name}: version {version} is not in the database")
    conn.run("rewind_bounds", **ids, epoch=head.bounds_epoch)
    conn.run("rewind_add_files", **ids)
    reopened = conn.arrow("select_files_to_reopen", **ids)
    conn.run("reopen_files", **ids)
    for query in _ROWS_OF_COMMITS:
        conn.run(query, **ids)
    columns = conn.all("select_bounds_columns", table_id=table.table_id)
    bounds = BoundsIndex(conn, table.table_id, head.bounds_epoch, columns)
    bounds.use_metadata(metadata_from_row(row), head.next_file_id)
    _insert_bounds(bounds, reopened)
    bounds.save()
    return _rewind_head(conn, head, version, version_row["committed_at_ms"], row["version"], protocol["version"])


def _insert_bounds(bounds: BoundsIndex, files: pa.Table) -> None:
    """Restores the bounds of reopened files, which were deleted when the files were closed."""
    for batch in files.to_batches():
        computed = bounds.compute(batch.select(["stats", "partition_values"]))
        bounds.insert(batch.column("file_id").to_pylist(), computed)


def _rewind_head(
    conn: Connection, head: Head, version: int, last_commit_ms: int, metadata_version: int, protocol_version: int
) -> Head:
    totals = conn.one("count_live_files", table_id=head.table_id) or {}
    conn.run(
        "rewind_head",
        table_id=head.table_id,
        current_version=version,
        metadata_version=metadata_version,
        protocol_version=protocol_version,
        last_commit_ms=last_commit_ms,
        **{name: int(value or 0) for name, value in totals.items()},
    )
    rewound = registry.read_head(conn, head.table_id)
    assert rewound is not None, "the head is locked"
    return rewound
