"""Checksums of the mirror, `N.crc`: what the table adds up to at exactly that version, counted back from the head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltalakedb.exceptions import StoreError
from deltalakedb.files.checksum import Checksum
from deltalakedb.log.actions import CommitInfo, Metadata, Protocol
from deltalakedb.log.features import is_enabled
from deltalakedb.log.fence import fence
from deltalakedb.mirror.table_mirror import TableMirror
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.action_values import to_metadata, to_protocol
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.registry import Head

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
MAX_AT_ONCE = 500
"""After a long pass only the newest versions get a checksum: readers do without, and the older it is the fewer ask."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The live files of a version."""

    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _InForce:
    """Metadata and protocol, as the files show them, and from which version on they hold."""

    since: int
    metadata: Metadata
    protocol: Protocol


def put_checksums(store: Store, mirror: TableMirror) -> int:
    """Write the checksum of every version this process has put since the last time; how many."""
    put = dict(mirror.take_written()[-MAX_AT_ONCE:])
    if not put:
        return 0
    for version, checksum in _checksums(store, mirror, put):
        mirror.files.put_checksum(version, checksum)
        reached("mirror.crc_written")
    return len(put)


def _checksums(store: Store, mirror: TableMirror, put: dict[int, tuple[int, int] | None]) -> list[tuple[int, Checksum]]:
    table_id = mirror.table.table_id
    with store.read() as conn:
        head = registry.read_head(conn, table_id)
        if head is None:
            return []
        missing = [version for version, totals in put.items() if totals is None]
        counted = totals_at(conn, head, missing)
        found = []
        in_force: _InForce | None = None
        for version in sorted(put, reverse=True):
            if in_force is None or in_force.since > version:
                in_force = _at(conn, table_id, version)
            told = put[version]
            totals = counted[version] if told is None else Totals(*told)
            timestamp = None
            if is_enabled(in_force.metadata.configuration, IN_COMMIT_TIMESTAMPS):
                timestamp = _in_commit_timestamp(conn, table_id, version)
                if timestamp is None:
                    continue  # such a checksum must carry it
            checksum = Checksum(totals.size_bytes, totals.num_files, in_force.metadata, in_force.protocol, timestamp)
            found.append((version, checksum))
    return found[::-1]


def totals_at(conn: Connection, head: Head, versions: Iterable[int]) -> dict[int, Totals]:
    """The counters of versions up to the head: its own, less what later commits added, plus what they took away.

    This costs the rows changed since, not those of the table. A file that is added again replaces its row: both count.
    """
    wanted = sorted(set(versions), reverse=True)
    if not wanted:
        return {}
    later = {"table_id": head.table_id, "first_version": wanted[-1] + 1, "last_version": head.current_version}
    changes: dict[int, tuple[int, int]] = {}
    if wanted[-1] < head.current_version:
        for query, sign in (("count_adds_by_version", -1), ("count_closes_by_version", 1)):
            for row in conn.all(query, **later):
                files, size = changes.get(row["version"], (0, 0))
                changes[row["version"]] = (files + sign * int(row["num_files"]), size + sign * int(row["size_bytes"]))
    num_files, size_bytes = head.num_files, head.size_bytes
    found: dict[int, Totals] = {}
    at = head.current_version
    for version in wanted:
        for passed in range(at, version, -1):
            files, size = changes.get(passed, (0, 0))
            num_files, size_bytes = num_files + files, size_bytes + size
        at = version
        found[version] = Totals(num_files, size_bytes)
    return found


def _at(conn: Connection, table_id: int, version: int) -> _InForce:
    metadata = conn.one("select_metadata", table_id=table_id, version=version)
    protocol = conn.one("select_protocol", table_id=table_id, version=version)
    if metadata is None or protocol is None:
        raise StoreError(f"table {table_id} has no metadata or no protocol at version {version}")
    shown = fence(to_protocol(protocol)) if protocol["fenced"] else to_protocol(protocol)
    return _InForce(max(metadata["version"], protocol["version"]), to_metadata(metadata), shown)


def _in_commit_timestamp(conn: Connection, table_id: int, version: int) -> int | None:
    row = conn.one("select_version", table_id=table_id, version=version)
    if row is None or row["commit_info"] is None:
        return None
    return CommitInfo(row["commit_info"]).in_commit_timestamp
