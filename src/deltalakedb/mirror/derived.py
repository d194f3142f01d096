"""Compares what is derived from commits: the head's counters in SQL; checkpoints, pointer and checksums in files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deltalakedb.exceptions import DeltaProtocolError
from deltalakedb.files.checkpoint import read_checkpoint
from deltalakedb.files.last_checkpoint import CHECKSUM, json_checksum
from deltalakedb.files.listing import LAST_CHECKPOINT, LOG_FOLDER, CheckpointEntry, LogListing, Segment
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.commit import parse_action
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.mirror.checksums import Totals, totals_at
from deltalakedb.mirror.compare import Difference, compare_action, compare_states
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head
from deltalakedb.store.snapshot import SqlSnapshot

_CHECKSUM_NAME = re.compile(r"([0-9]{20})\.crc")
_COUNTERS = ("num_files", "size_bytes", "num_records", "files_without_records")


def shown_protocol(snapshot: SqlSnapshot) -> Protocol:
    """The protocol that the files must show."""
    return fence(snapshot.protocol) if snapshot.fenced else snapshot.protocol


def compare_counters(conn: Connection, head: Head) -> Difference | None:
    """Compare the head's counters with a recount of the live files in the same database snapshot."""
    row = conn.one("count_live_files", table_id=head.table_id) or {}
    for name in _COUNTERS:
        stored, counted = getattr(head, name), int(row.get(name) or 0)
        if stored != counted:
            return Difference(name, str(stored), str(counted))
    return None


def compare_checkpoint(ours: SqlTxnLogReader, theirs: FileTxnLogReader, entry: CheckpointEntry) -> Difference | None:
    """Compare a checkpoint alone, without the commits around it, with the state at its version."""
    try:
        content = read_checkpoint(theirs.storage, entry, table=theirs.table)
        checkpoint_state = FileSnapshot.of(
            theirs.storage, theirs.table, Segment(entry.version, entry, ()), content, SnapshotState(), set()
        )
        snapshot = ours.snapshot(entry.version)
        return compare_states(snapshot, checkpoint_state, protocol=shown_protocol(snapshot))
    except DeltaProtocolError as error:
        return Difference(entry.names[0], "a readable state", f"a checkpoint that cannot be read: {error}")


def read_pointer(theirs: FileTxnLogReader) -> bytes | None:
    """The content of `_last_checkpoint`; read before the listing, because it is written after its checkpoint."""
    return _read(theirs, LAST_CHECKPOINT)


def compare_pointer(text: bytes | None, listing: LogListing) -> tuple[int, Difference] | None:
    """Check the checksum of `_last_checkpoint`, and that the checkpoint that it names exists."""
    if text is None:
        return None
    newest = listing.checkpoints[0].version if listing.checkpoints else -1
    try:
        value = json.loads(text)
        version, checksum = int(value["version"]), value.get(CHECKSUM)
    except (ValueError, KeyError, TypeError, RecursionError):
        return max(newest, 0), Difference(LAST_CHECKPOINT, "JSON with a version", "something else")
    if checksum is not None and checksum != json_checksum(value):
        return version, Difference(LAST_CHECKPOINT, f"the checksum {json_checksum(value)}", str(checksum))
    if all(entry.version != version for entry in listing.checkpoints):
        in_files = f"{newest} as the newest checkpoint" if newest >= 0 else "no checkpoint at all"
        return version, Difference(f"{LAST_CHECKPOINT} names the checkpoint of version {version}", "that one", in_files)
    return None


def checksum_versions(theirs: FileTxnLogReader) -> list[int]:
    """The versions that have a checksum, newest first."""
    matches = map(_CHECKSUM_NAME.fullmatch, theirs.storage.names(LOG_FOLDER))
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def compare_checksums(
    store: Store, ours: SqlTxnLogReader, theirs: FileTxnLogReader, versions: list[int]
) -> Iterator[tuple[int, Difference | None]]:
    """Compare each checksum with SQL's totals for its version, oldest first."""
    with store.read() as conn:
        head = registry.read_head(conn, ours.table.table_id)
        totals = totals_at(conn, head, versions) if head else {}
    for version in sorted(totals):
        text = _read(theirs, f"{version:020d}.crc")
        if text is not None:
            yield version, _compare_checksum(ours.snapshot(version), totals[version], text)


def _compare_checksum(snapshot: SqlSnapshot, totals: Totals, text: bytes) -> Difference | None:
    try:
        value: Mapping[str, Any] = json.loads(text)
        metadata, protocol = _action(value, "metadata", "metaData"), _action(value, "protocol", "protocol")
        expected_totals = {"numFiles": totals.num_files, "tableSizeBytes": totals.size_bytes}
        for name, expected in expected_totals.items():
            if value[name] != expected:
                return Difference(f"checksum, {name}", str(expected), str(value[name]))
    except (ValueError, KeyError, TypeError, RecursionError, DeltaProtocolError) as error:
        return Difference("checksum", "a checksum", f"a file that cannot be read as one ({type(error).__name__})")
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    return compare_action("checksum, metadata", snapshot.metadata, metadata) or compare_action(
        "checksum, protocol", shown_protocol(snapshot), protocol
    )


def _action(value: Mapping[str, Any], name: str, kind: str) -> Any:
    return parse_action(json.dumps({kind: value[name]}), where="a checksum")


def _read(theirs: FileTxnLogReader, name: str) -> bytes | None:
    try:
        return theirs.storage.get(f"{LOG_FOLDER}/{name}")
    except FileNotFoundError:
        return None
