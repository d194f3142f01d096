"""Vacuum for every backing: plans what to delete, announces it in the log, checks it again, and deletes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from deltalakedb.exceptions import DeltaError, VersionNotFoundError
from deltalakedb.log.protocol.proposal import ProposedCommit
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
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.opening import open_data_storage
from deltalakedb.store.vacuums import end_vacuum
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.sql_backing import SqlBacking
from deltalakedb.tables.vacuum_mark import VacuumMark

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
    """Delete unneeded files and return their paths; with `dry_run` only return them. If there are any to delete, one
    commit records the start and another the end."""
    default_ms = DEFAULT_RETENTION_MS
    if isinstance(backing, SqlBacking):
        default_ms = backing.catalog.config.retention_deleted_file_days * _DAY_MS
    retention = Retention.of(snapshot.metadata, hours, enforced=enforced, default_ms=default_ms, table=backing.name)
    cutoff_ms = now_ms() - retention.kept_ms
    options = backing.storage_options()
    storage_place = Place(backing.location, options, open_data_storage(backing.location, options))
    log, since = backing.reader, _oldest_kept(backing, snapshot, cutoff_ms)
    doomed = find_doomed(log, snapshot, storage_place, since=since, cutoff_ms=cutoff_ms, keep=keep, full=full)
    if not dry_run and not doomed.files and isinstance(backing, SqlBacking):
        end_vacuum(backing.catalog.store, backing.row.table_id, None)
    if dry_run or not doomed.files:
        return [file.path for file in doomed.files]
    run(lambda _: Done(_start(doomed, retention)))
    with _marked(backing, since) as check:
        # Check again after the mark: commits made before it are seen here, later ones are refused by it.
        doomed = still_doomed(backing.reader, doomed, backing.location)
        reached("vacuum.marked")
        try:
            deleted = delete_files(storage_place.storage, doomed.files, progress, check)
        except BaseException:
            with suppress(DeltaError):
                run(lambda _: Done(_end("FAILED")))
            raise
        reached("vacuum.deleted")
        # Commit before the mark is removed, so that an engine that looked for these files sees a newer version.
        run(lambda _: Done(_end("COMPLETED", deleted)))
    return [file.path for file in doomed.files]


@contextmanager
def _marked(backing: Backing, oldest_kept: int) -> Iterator[Callable[[], None]]:
    """Record in the catalog's database that files are being deleted; yields a check to call before each deletion."""
    if not isinstance(backing, SqlBacking):
        yield lambda: None
        return
    mark = VacuumMark(backing.catalog.store, backing.row)
    mark.begin(oldest_kept)
    try:
        yield mark.check
    finally:
        mark.end()


def _oldest_kept(backing: Backing, snapshot: TableSnapshot, cutoff_ms: int) -> int:
    """Return the newest version at the cut-off, or in a catalog an older one that readers of the files still see."""
    try:
        oldest = backing.version_at(cutoff_ms)
    except VersionNotFoundError:  # its commits were cleaned up
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
        "specifiedRetentionMillis": str(retention.kept_ms),
    }
    metrics = {"numFilesToDelete": len(doomed.files), "sizeOfDataToDelete": doomed.size}
    return ProposedCommit((), "VACUUM START", parameters, metrics)


def _end(status: str, deleted: int | None = None) -> ProposedCommit:
    metrics = {} if deleted is None else {"numDeletedFiles": deleted, "numVacuumedDirectories": 0}
    return ProposedCommit((), "VACUUM END", {"status": status}, metrics)
