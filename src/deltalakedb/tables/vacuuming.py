"""Vacuum, wherever the log is kept: what to delete is planned, announced in the log, looked at again, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deltalakedb.exceptions import VersionNotFoundError
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.operations.target import Done, Verb
from deltalakedb.operations.vacuum import (
    DEFAULT_RETENTION_MS,
    Doomed,
    Place,
    Retention,
    delete_files,
    find_doomed,
    now_ms,
    still_doomed,
)
from deltalakedb.storage import open_data_storage
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.sql_backing import SqlBacking

_DAY_MS = 86_400_000


def vacuum(
    backing: Backing,
    snapshot: TableSnapshot,
    run: Callable[[Verb], Any],
    *,
    hours: float | None,
    dry_run: bool,
    enforced: bool,
    full: bool,
    keep: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """The paths that were deleted, or would be. Two commits say when it began and ended, if there was anything."""
    default_ms = DEFAULT_RETENTION_MS
    if isinstance(backing, SqlBacking):
        default_ms = backing.catalog.config.retention_deleted_file_days * _DAY_MS
    retention = Retention.of(snapshot.metadata, hours, enforced=enforced, default_ms=default_ms, table=backing.name)
    cutoff_ms = now_ms() - retention.kept_ms
    options = backing.storage_options()
    place = Place(backing.location, options, open_data_storage(backing.location, options))
    log = backing.reader
    doomed = find_doomed(
        log,
        snapshot,
        place,
        since=_oldest_kept(backing, snapshot, cutoff_ms),
        cutoff_ms=cutoff_ms,
        keep=keep,
        full=full,
    )
    if dry_run or not doomed.files:
        return [file.path for file in doomed.files]
    run(lambda _: Done(_start(doomed, retention)))
    doomed = still_doomed(backing.reader, doomed, backing.location)
    deleted = delete_files(place.storage, doomed.files, progress)
    run(lambda _: Done(_end(deleted)))
    return [file.path for file in doomed.files]


def _oldest_kept(backing: Backing, snapshot: TableSnapshot, cutoff_ms: int) -> int:
    """The version that was the newest one at the cut-off; in a catalog also what plain readers still see."""
    try:
        oldest = backing.version_at(cutoff_ms)
    except VersionNotFoundError:
        oldest = backing.reader.earliest_version()
    if isinstance(backing, SqlBacking) and backing.mode == "managed":
        backing.catalog.mirror.mirror_table(backing.row)
        mirrored = backing.catalog.mirror.known_version(backing.row.table_id)
        if mirrored is not None and mirrored >= 0:
            oldest = min(oldest, mirrored)
    return min(oldest, snapshot.version)


def _start(doomed: Doomed, retention: Retention) -> ProposedCommit:
    parameters = {
        "retentionCheckEnabled": str(retention.enforced).lower(),
        "defaultRetentionMillis": str(retention.configured_ms),
    }
    if retention.asked_ms is not None:
        parameters["specifiedRetentionMillis"] = str(retention.asked_ms)
    metrics = {"numFilesToDelete": len(doomed.files), "sizeOfDataToDelete": doomed.size}
    return ProposedCommit((), "VACUUM START", parameters, metrics)


def _end(deleted: int) -> ProposedCommit:
    metrics = {"numDeletedFiles": deleted, "numVacuumedDirectories": 0}
    return ProposedCommit((), "VACUUM END", {"status": "COMPLETED"}, metrics)
