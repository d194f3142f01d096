"""Maintenance of `_delta_log` on request: writes checkpoints, compacts logs, cleans up old commits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from deltalakedb.exceptions import DeltaError, VersionNotFoundError
from deltalakedb.files.cleanup import DAY_MS, CleanedUp, protected_before
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks.properties import deleted_file_retention_ms, log_retention_ms
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.commit import render_commit
from deltalakedb.log.protocol.txnlog import LogSnapshot

_FOR_EVER_MS: Final = 100 * 366 * DAY_MS


def create_checkpoint(
    writer: FileTxnLogWriter, snapshot: LogSnapshot, protocol: Protocol, *, retention_days: int
) -> None:
    """Write a checkpoint of a version whose commit is in the files, and point `_last_checkpoint` to the newest."""
    try:
        keep_ms = deleted_file_retention_ms(snapshot.metadata.configuration, retention_days * DAY_MS)
    except ValueError:
        keep_ms = _FOR_EVER_MS
    cutoff_ms = time.time_ns() // 1_000_000 - keep_ms
    checkpoint = writer.write_checkpoint(snapshot, protocol=protocol, tombstone_cutoff_ms=cutoff_ms)
    writer.write_last_checkpoint(checkpoint)


def clean_up(writer: FileTxnLogWriter, snapshot: LogSnapshot, *, retention_days: int) -> CleanedUp:
    """Delete commits whose files are older than the table's retention and that a checkpoint covers.

    What the snapshot's version needs is kept, even if a newer checkpoint covers it.
    """
    try:
        keep_ms = log_retention_ms(snapshot.metadata.configuration, retention_days * DAY_MS)
    except ValueError:
        keep_ms = _FOR_EVER_MS
    return writer.clean_up_by_times(
        cutoff_ms=time.time_ns() // 1_000_000 - keep_ms,
        keep_from_version=snapshot.version,
        protected_before=protected_before(snapshot.protocol, snapshot.metadata),
    )


def compact_logs(
    location: str, options: Mapping[str, str] | None, table: str, starting_version: int, ending_version: int
) -> None:
    """Write one file for the commits of a range of versions, which readers may use instead of them."""
    if ending_version <= starting_version:
        raise DeltaError(
            f"Invalid version range: end_version {ending_version} must be greater than start_version "
            f"{starting_version} to put commits of {table} together"
        )
    reader = FileTxnLogReader(location, options)
    latest = reader.latest_version()
    if starting_version < 0 or ending_version > latest:
        raise VersionNotFoundError(
            f"table {table}: its log has versions up to {latest}, so {starting_version} to {ending_version} cannot be "
            "put together"
        )
    actions = (action for commit in reader.commits(starting_version, ending_version) for action in commit.actions)
    data = render_commit(reconcile(actions), fenced=False)
    FileTxnLogWriter(location, options, table=table).put_compacted(starting_version, ending_version, data)


def reconcile(actions: Iterable[Action]) -> list[Action]:
    """Combine the actions of several commits. Removes are kept, because older commits may have added the files."""
    newest: dict[tuple[object, ...], Action] = {}
    for action in actions:
        match action:
            case AddFile() | RemoveFile():
                key: tuple[object, ...] = ("file", *action.key)
            case Metadata() | Protocol():
                key = (type(action),)
            case AppTransaction():
                key = ("txn", action.app_id)
            case DomainMetadata():
                key = ("domain", action.domain)
            case _:
                continue  # commitInfo and cdc belong to their commit
        newest.pop(key, None)
        newest[key] = action
    return list(newest.values())
