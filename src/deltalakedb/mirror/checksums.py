"""Checksums of the mirror, `N.crc`: the table's totals at exactly that version, counted back from the head."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from deltalakedb.exceptions import StoreError
from deltalakedb.files.checksum import Checksum
from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.completion import has_in_commit_timestamps
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.rows import metadata_from_row, protocol_from_row
from deltalakedb.mirror.table_mirror import MAX_CHECKSUMS, InForce, TableMirror
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE, Connection
from deltalakedb.store.registry import Head


@dataclass(frozen=True, slots=True)
class Totals:
    """Number and size of a version's live files."""

    num_files: int
    size_bytes: int


def prepare_checksums(conn: Connection, mirror: TableMirror) -> None:
    """Compute the checksums of the versions that this process put since the last call, to be written later."""
    put = dict(mirror.take_written()[-MAX_CHECKSUMS:])
    table_id = mirror.table.table_id
    head = registry.read_head(conn, table_id) if put else None
    if head is None or head.vacuumed_version == LIVE:  # purged: its folder is gone, or another table's
        return
    mirror.checked_at = time.monotonic()
    counted = totals_at(conn, head, [version for version, totals in put.items() if totals is None])
    checksums: list[tuple[int, Checksum]] = []
    for version in sorted(put, reverse=True):
        in_force = _in_force(conn, mirror, head, version)
        commit_totals = put[version]
        totals = counted[version] if commit_totals is None else Totals(*commit_totals)
        timestamp = None
        if has_in_commit_timestamps(in_force.metadata):
            timestamp = _in_commit_timestamp(conn, table_id, version)
            if timestamp is None:
                continue  # the protocol requires the timestamp in the checksum
        checksum = Checksum(totals.size_bytes, totals.num_files, in_force.metadata, in_force.protocol, timestamp)
        checksums.append((version, checksum))
    mirror.checksums.extend(reversed(checksums))


def put_checksums(mirror: TableMirror) -> None:
    """Write the computed checksums."""
    while mirror.checksums:
        mirror.files.put_checksum(*mirror.checksums.popleft())
        reached("mirror.crc_written")


def totals_at(conn: Connection, head: Head, versions: Iterable[int]) -> dict[int, Totals]:
    """The totals of versions: those of the head, minus what later commits added, plus what they removed.

    The cost is that of the rows changed since, not of the table. A file that is added again replaces its row: both
    count.
    """
    descending = sorted(set(versions), reverse=True)
    if not descending:
        return {}
    range_ = {"table_id": head.table_id, "first_version": descending[-1] + 1, "last_version": head.current_version}
    changes: dict[int, tuple[int, int]] = {}
    if descending[-1] < head.current_version:
        for query, sign in (("count_adds_by_version", -1), ("count_closes_by_version", 1)):
            for row in conn.all(query, **range_):
                files, size = changes.get(row["version"], (0, 0))
                changes[row["version"]] = (files + sign * int(row["num_files"]), size + sign * int(row["size_bytes"]))
    num_files, size_bytes = head.num_files, head.size_bytes
    totals: dict[int, Totals] = {}
    newer = head.current_version
    for version in descending:
        for undone in range(newer, version, -1):
            files, size = changes.get(undone, (0, 0))
            num_files, size_bytes = num_files + files, size_bytes + size
        newer = version
        totals[version] = Totals(num_files, size_bytes)
    return totals


def _in_force(conn: Connection, mirror: TableMirror, head: Head, version: int) -> InForce:
    """Metadata and protocol at a version; those of the head, which are needed almost always, are cached."""
    since = max(head.metadata_version, head.protocol_version)
    cached = mirror.in_force
    if cached is not None and cached.since == since and since <= version:
        return cached
    metadata = conn.one("select_metadata", table_id=head.table_id, version=version)
    protocol = conn.one("select_protocol", table_id=head.table_id, version=version)
    if metadata is None or protocol is None:
        raise StoreError(f"table {mirror.table.full_name} has no metadata or no protocol at version {version}")
    files_protocol = fence(protocol_from_row(protocol)) if protocol["fenced"] else protocol_from_row(protocol)
    mirror.in_force = InForce(
        max(metadata["version"], protocol["version"]), metadata_from_row(metadata), files_protocol
    )
    return mirror.in_force


def _in_commit_timestamp(conn: Connection, table_id: int, version: int) -> int | None:
    row = conn.one("select_version", table_id=table_id, version=version)
    if row is None or row["commit_info"] is None:
        return None
    return CommitInfo(row["commit_info"]).in_commit_timestamp
