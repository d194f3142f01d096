"""Iceberg tables and views in SQL: a version is its metadata without snapshots, which are rows of their own."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from deltalakedb.exceptions import StoreError
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE, Connection
from deltalakedb.store.names import name_key
from deltalakedb.store.proposals import IcebergCommit, RatifiedCommit, TableProposal
from deltalakedb.store.registry import Head, TableRow, to_table_row
from deltalakedb.store.rows import RowBuffer

if TYPE_CHECKING:
    from deltalakedb.store.commit_locks import LockedTable

SNAPSHOTS = "snapshots"
CACHED_BYTES = 8 * 1024 * 1024
"""How much metadata a process keeps in memory, measured as JSON."""
SNAPSHOT_BYTES = 600
"""The usual size of a snapshot as JSON."""


@dataclass(frozen=True, slots=True)
class IcebergVersion:
    """A version of an Iceberg table or view, as its metadata file has it."""

    version: int
    metadata_location: str
    metadata: Mapping[str, Any]
    size_bytes: int = 0
    """About how long the metadata is as JSON."""


class VersionCache:
    """The newest versions of Iceberg tables and views that this process has read or written.

    A version never changes, so a version whose number and time are those of the pinned head needs no second look.
    """

    def __init__(self, max_bytes: int = CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._versions: OrderedDict[str, tuple[int, IcebergVersion]] = OrderedDict()
        """By the uuid of the table: the time of the version, and the version. The last one used is last."""
        self._bytes = 0

    def find(self, table_uuid: str, head: Head) -> IcebergVersion | None:
        """The version at a head, if it is known. Its metadata must not be changed."""
        with self._lock:
            entry = self._versions.get(table_uuid)
            if entry is None or (entry[0], entry[1].version) != (head.last_commit_ms, head.current_version):
                return None
            self._versions.move_to_end(table_uuid)
            return entry[1]

    def keep(self, table_uuid: str, committed_at_ms: int, version: IcebergVersion) -> None:
        """Keeps a version in place of another one of the table, and drops tables that were not used for long."""
        with self._lock:
            known = self._versions.pop(table_uuid, None)
            self._bytes += version.size_bytes - (0 if known is None else known[1].size_bytes)
            self._versions[table_uuid] = committed_at_ms, version
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._versions.popitem(last=False)
                self._bytes -= dropped.size_bytes


# -- reading


def read_iceberg_version(
    conn: Connection, table_id: int, version: int, *, snapshots: Iterable[int] | None = None
) -> IcebergVersion:
    """Reads a version; `snapshots` limits the snapshots to those with these ids, before any is parsed."""
    row = conn.one("select_iceberg_version", table_id=table_id, version=version)
    if row is None:
        raise StoreError(f"version {version} of the Iceberg table with id {table_id} is not in the database any more")
    metadata, size = json.loads(row["metadata"]), len(row["metadata"])
    if SNAPSHOTS in metadata:
        rows = conn.all("select_iceberg_snapshots", table_id=table_id, version=version)
        size += sum(len(row["snapshot"]) for row in rows)
        wanted = None if snapshots is None else set(snapshots)
        metadata[SNAPSHOTS] = [
            json.loads(row["snapshot"]) for row in rows if wanted is None or row["snapshot_id"] in wanted
        ]
    return IcebergVersion(version, row["metadata_location"], metadata, size)


def committed_version(version: int, commit: IcebergCommit, metadata: Mapping[str, Any]) -> IcebergVersion:
    """The version that a commit has become; `metadata` is what the commit was made of."""
    size = len(commit.metadata) + SNAPSHOT_BYTES * len(metadata.get(SNAPSHOTS, ()))
    return IcebergVersion(version, commit.metadata_location, metadata, size)


def referenced_snapshots(conn: Connection, table_id: int, version: int) -> set[int]:
    """The ids of the snapshots that branches and tags of a version refer to."""
    row = conn.one("select_iceberg_version", table_id=table_id, version=version)
    metadata = {} if row is None else json.loads(row["metadata"])
    return {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}


def tables_in(conn: Connection, namespace: str) -> list[TableRow]:
    """The tables and views directly in a namespace."""
    return [to_table_row(row) for row in conn.all("select_tables_in", namespace_key=name_key(namespace))]


# -- writing


def to_commit(
    base: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    metadata_location: str,
    *,
    operation: str,
    parameters: Mapping[str, Any],
) -> IcebergCommit:
    """Makes the commit that leads from one metadata to the next; the metadata file is written already."""
    before = {snapshot["snapshot-id"]: snapshot for snapshot in (base or {}).get(SNAPSHOTS, ())}
    after = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get(SNAPSHOTS, ())}
    summary: Mapping[str, Any] = (after.get(metadata.get("current-snapshot-id")) or {}).get("summary", {})
    stored = {**metadata, SNAPSHOTS: []} if SNAPSHOTS in metadata else dict(metadata)
    return IcebergCommit(
        metadata_location=metadata_location,
        metadata=_to_text(stored),
        operation=operation,
        parameters=parameters,
        added_snapshots=tuple((key, to_json(value)) for key, value in after.items() if before.get(key) != value),
        # A table that was moved and registered again has the same ids, with manifest lists elsewhere.
        removed_snapshots=frozenset(key for key, value in before.items() if after.get(key) != value),
        num_files=_total(summary, "total-data-files"),
        num_records=_total(summary, "total-records"),
        size_bytes=_total(summary, "total-files-size"),
    )


def _to_text(metadata: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(metadata).decode()
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, or half of a surrogate pair
        return to_json(metadata)


def _total(summary: Mapping[str, Any], key: str) -> int | None:
    """A total of a snapshot's summary, which clients write as text; None if it is missing or not a number."""
    text = summary.get(key)
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else None


def write_iceberg_commits(
    conn: Connection,
    proposal: TableProposal,
    row: TableRow,
    locked: LockedTable | None,
    *,
    at_ms: int,
    txn_id: str | None,
    joined_ms: Mapping[str, int] | None = None,
) -> list[RatifiedCommit]:
    """Writes the commits of one Iceberg table or view on top of its locked head.

    `joined_ms` has the times of the other transactions that made some of the commits.
    """
    head = locked.head if locked is not None else _first_head(row.table_id)
    expected = head.current_version
    ratified, buffers = [], _VersionBuffers(conn, row.table_id)
    for commit in proposal.iceberg:
        head = _next_head(head, commit, (joined_ms or {}).get(commit.txn_id or "", at_ms))
        buffers.append(head, commit, commit.txn_id or txn_id)
        ratified.append(
            RatifiedCommit(
                row,
                head.current_version,
                head.last_commit_ms,
                num_files=head.num_files,
                size_bytes=head.size_bytes,
            )
        )
    buffers.flush()
    if locked is None:
        registry.insert_head(conn, head)
    else:
        registry.advance_head(conn, head, expected)
    return ratified


def _first_head(table_id: int) -> Head:
    return Head(table_id, -1, -1, -1, -1, 0, -1, 0, 0, 0, 0, 0, 0)


def _next_head(head: Head, commit: IcebergCommit, at_ms: int) -> Head:
    version = head.current_version + 1
    return replace(
        head,
        current_version=version,
        metadata_version=version,
        mirrored_version=version,
        last_commit_ms=max(at_ms, head.last_commit_ms + 1),
        num_files=commit.num_files or 0,
        num_records=commit.num_records or 0,
        files_without_records=int(commit.num_records is None and bool(commit.num_files)),
        size_bytes=commit.size_bytes or 0,
    )


class _VersionBuffers:
    """The rows of new versions of one Iceberg table or view."""

    def __init__(self, conn: Connection, table_id: int) -> None:
        self._conn, self._table_id = conn, table_id
        self._versions, self._metadata = RowBuffer("dl_table_versions"), RowBuffer("dl_iceberg_versions")
        self._snapshots = RowBuffer("dl_iceberg_snapshots")

    def append(self, head: Head, commit: IcebergCommit, txn_id: str | None) -> None:
        """Adds a commit that has become the version of this head."""
        version = head.current_version
        if commit.removed_snapshots:
            self._snapshots.flush_to(self._conn)  # they may have been added by the commit before
        for snapshot_id in sorted(commit.removed_snapshots):
            ids = {"table_id": self._table_id, "snapshot_id": snapshot_id}
            self._conn.run("end_iceberg_snapshot", **ids, version=version)
        self._versions.append(
            table_id=self._table_id,
            version=version,
            txn_id=txn_id,
            committed_at_ms=head.last_commit_ms,
            operation=commit.operation,
            operation_params=to_json(dict(commit.parameters)),
            operation_metrics=None,
            commit_info=None,
            commit_info_ordinal=None,
            is_base=False,
            num_actions=0,
            num_added_files=0,
            num_removed_files=0,
            total_added=0,
            total_closed=0,
            rendered_bytes=None,
        )
        self._metadata.append(
            table_id=self._table_id,
            version=version,
            metadata_location=commit.metadata_location,
            metadata=commit.metadata,
        )
        for ordinal, (snapshot_id, snapshot) in enumerate(commit.added_snapshots):
            self._snapshots.append(
                table_id=self._table_id,
                added_version=version,
                ordinal=ordinal,
                removed_version=LIVE,
                snapshot_id=snapshot_id,
                snapshot=snapshot,
            )

    def flush(self) -> None:
        for buffer in (self._versions, self._metadata, self._snapshots):
            buffer.flush_to(self._conn)
