"""Upkeep of a DeltaTable: restore, vacuum, and the files of its log, through the mirror if a catalog decides."""

from __future__ import annotations

import logging
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.catalog.instants import travel_time_ms
from deltalakedb.exceptions import DeltaError, MissingFileError, NotWritableError, VersionNotFoundError, redact
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.operations import log_files
from deltalakedb.operations.target import Done, Target
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
from deltalakedb.storage.location import open_storage
from deltalakedb.store import Store
from deltalakedb.store.registry import TableRow
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.store.vacuums import begin_vacuum, end_vacuum, renew_vacuum
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.rows import explain_missing
from deltalakedb.tables.sql_backing import SqlBacking

if TYPE_CHECKING:
    from deltalakedb.table import DeltaTable
    from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

    CommitArguments = tuple[CommitProperties | None, PostCommitHookProperties | None]


_DAY_MS: Final = 86_400_000
_LOG_DAYS, _DELETED_FILE_DAYS = 30, 7
_VACUUM_ARGUMENTS = ("post_commithook_properties", "commit_properties", "full", "keep_versions")


def restore(
    table: DeltaTable,
    target: int | datetime | str,
    ignore_missing_files: bool,
    protocol_downgrade_allowed: bool,
    given: CommitArguments,
) -> dict[str, Any]:
    """Make a new version equal to an older one, given by its number or a time."""
    from deltalakedb.operations.restore import restore

    if isinstance(target, datetime):
        target = target.isoformat()  # it must have a zone, as a text must
    if isinstance(target, int) and 0 <= target < 2**63:
        parameters = {"version": str(int(target))}
    elif isinstance(target, str):
        parameters = {"datetime": str(travel_time_ms(target))}
    else:
        raise DeltaError(
            f"Either the version or datetime should be provided for restore: {target!r} is neither a version of "
            f"{table.name} nor a time"
        )
    older = table._snapshot_at(target)
    verb = partial(
        restore,
        older=older,
        parameters=parameters,
        ignore_missing_files=ignore_missing_files,
        protocol_downgrade_allowed=protocol_downgrade_allowed,
    )
    try:
        return table._run(verb, *given)
    except MissingFileError as error:
        raise explain_missing(table, error, older.version) from error


def generate(backing: Backing, snapshot: TableSnapshot) -> None:
    """Write a symlink manifest of a version."""
    from deltalakedb.operations.generate import generate

    generate(
        Target(
            name=backing.name,
            location=backing.location,
            options=backing.storage_options(),
            snapshot=snapshot,
            plan=lambda predicate: snapshot.plan(predicate).files,
        )
    )


# -- vacuum


def vacuum_arguments(args: Sequence[Any], by_name: Sequence[Any]) -> dict[str, Any]:
    """Return the commit arguments of vacuum, passed either way; the warning is for its caller."""
    warnings.warn(
        "Passing commit arguments positionally to vacuum() is deprecated and will be removed in a future release. Use "
        "keyword arguments instead.",
        DeprecationWarning,
        stacklevel=3,
    )
    if len(args) > len(_VACUUM_ARGUMENTS):
        raise TypeError("vacuum() got unexpected positional arguments")
    for name, value, _ in zip(_VACUUM_ARGUMENTS, by_name, args, strict=False):
        if value:
            raise TypeError(f"vacuum() got multiple values for {name!r}")
    return dict(zip(_VACUUM_ARGUMENTS, (*args, *by_name[len(args) :]), strict=True))


def vacuum(
    table: DeltaTable,
    hours: float | None,
    *,
    dry_run: bool,
    enforced: bool,
    full: bool,
    keep: Sequence[int],
    given: CommitArguments = (None, None),
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Delete unneeded files and return their paths; with `dry_run` only return them. If there are any to delete, one
    commit records the start and another the end."""
    table._refuse_in_transaction("vacuum")
    backing = table._backing
    snapshot = backing.newest()
    default_ms = DEFAULT_RETENTION_MS
    if isinstance(backing, SqlBacking):
        default_ms = backing.catalog.config.retention_deleted_file_days * _DAY_MS
    retention = Retention.of(snapshot.metadata, hours, enforced=enforced, default_ms=default_ms, table=backing.name)
    cutoff_ms = now_ms() - retention.kept_ms
    options = backing.storage_options()
    storage_place = Place(backing.location, open_storage(backing.location, options))
    log, since = backing.reader, _oldest_kept(backing, snapshot, cutoff_ms)
    doomed = find_doomed(log, snapshot, storage_place, since=since, cutoff_ms=cutoff_ms, keep=keep, full=full)
    if not dry_run and not doomed.files and isinstance(backing, SqlBacking):
        end_vacuum(backing.catalog.store, backing.row.table_id, None)
    if dry_run or not doomed.files:
        return [file.path for file in doomed.files]
    table.update_incremental()
    table._run(lambda _: Done(_start(doomed, retention)), *given)
    with _mark_files(backing, since) as check:
        # Check again after the mark: commits made before it are seen here, later ones are refused by it.
        doomed = still_doomed(backing.reader, doomed, backing.location)
        reached("vacuum.marked")
        try:
            deleted = delete_files(storage_place.storage, doomed.files, progress, check)
        except BaseException:
            with suppress(DeltaError):
                table._run(lambda _: Done(_end("FAILED")), *given)
            raise
        reached("vacuum.deleted")
        # Commit before the mark is removed, so that an engine that looked for these files sees a newer version.
        table._run(lambda _: Done(_end("COMPLETED", deleted)), *given)
    return [file.path for file in doomed.files]


@contextmanager
def _mark_files(backing: Backing, oldest_kept: int) -> Iterator[Callable[[], None]]:
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


# -- the files of the log


def create_checkpoint(backing: Backing, snapshot: TableSnapshot) -> None:
    """Write a checkpoint of a snapshot, whose commit must be in `_delta_log`."""
    writer = _writer(backing)
    days = _DELETED_FILE_DAYS
    if isinstance(backing, SqlBacking):
        days = backing.catalog.config.retention_deleted_file_days
        if not writer.has_commit(snapshot.version):
            raise VersionNotFoundError(
                f"table {backing.name}: version {snapshot.version} has not reached its `_delta_log`, or was cleaned up "
                "there; `dl mirror status` shows how far the files are"
            )
    log_files.create_checkpoint(writer, snapshot, _protocol_in_files(snapshot), retention_days=days)


def cleanup_metadata(backing: Backing, snapshot: TableSnapshot) -> None:
    """Delete old commits from `_delta_log`; a catalog keeps its own until `dl gc`."""
    days = backing.catalog.config.retention_log_days if isinstance(backing, SqlBacking) else _LOG_DAYS
    log_files.clean_up(_writer(backing), snapshot, retention_days=days)


def compact_logs(backing: Backing, starting_version: int, ending_version: int) -> None:
    """Write one file for a range of commits in `_delta_log`."""
    _writer(backing)
    log_files.compact_logs(backing.location, backing.storage_options(), backing.name, starting_version, ending_version)


def _writer(backing: Backing) -> FileTxnLogWriter:
    """Return a writer for the table's log; a managed table is mirrored first, one that others write is refused."""
    if isinstance(backing, SqlBacking):
        if backing.mode != "managed":
            raise NotWritableError(
                f"table {backing.name} is a {backing.mode}: its `_delta_log` is written by others; "
                f"`dl promote {backing.name}` makes this catalog its writer"
            )
        backing.catalog.mirror.mirror_table(backing.row)
    return FileTxnLogWriter(backing.location, backing.storage_options(), table=backing.name)


def _protocol_in_files(snapshot: TableSnapshot) -> Protocol:
    """Return the protocol as the files have it: with our fence if the catalog's commits carry it."""
    if isinstance(snapshot, SqlSnapshot) and snapshot.fenced:
        return fence(snapshot.protocol)
    return snapshot.protocol


logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""How long a vacuum counts as running after its process died."""


class VacuumMark:
    """The mark of one vacuum. A thread renews its lease until `end`."""

    def __init__(self, store: Store, table: TableRow, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._table = table
        self._vacuum_id = str(uuid.uuid4())
        self._lease_seconds = lease_seconds
        self._held_until = 0.0
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="deltalakedb-vacuum-mark", daemon=True)

    def begin(self, oldest_kept: int) -> None:
        """Set the mark: from now on no commit may add a file that only versions below `oldest_kept` have."""
        asked_at = time.monotonic()
        begin_vacuum(
            self._store, self._table.table_id, self._vacuum_id, oldest_kept=oldest_kept, lease_ms=self._lease_ms
        )
        self._held_until = asked_at + self._lease_seconds
        self._renewer.start()

    def check(self) -> None:
        """Raise if the lease has expired: others may assume that the vacuum is over, so nothing may be deleted."""
        if time.monotonic() >= self._held_until:
            raise DeltaError(
                f"table {self._table.full_name}: the vacuum could not renew its lease in the database for "
                f"{self._lease_seconds:.0f} s and has stopped deleting files; run it again to delete the rest"
            )

    def end(self) -> None:
        """Remove the mark when all files are deleted. If the database is unreachable, the next vacuum removes it."""
        self._ended.set()
        self._renewer.join()
        try:
            end_vacuum(self._store, self._table.table_id, self._vacuum_id)
        except DeltaError as error:
            logger.warning(
                "table %s: the end of its vacuum could not be recorded; the next vacuum does it: %s",
                self._table.full_name,
                redact(str(error)),
            )

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_seconds * 1000)

    def _renew(self) -> None:
        """Renew at a third of the lease, so that two renewals may fail before it is lost."""
        while not self._ended.wait(self._lease_seconds / 3):
            asked_at = time.monotonic()
            try:
                if not renew_vacuum(self._store, self._table.table_id, self._vacuum_id, lease_ms=self._lease_ms):
                    return  # `check` raises once the lease expires
            except DeltaError as error:
                logger.warning("the lease of a vacuum could not be renewed, it is tried again: %s", redact(str(error)))
                continue
            self._held_until = asked_at + self._lease_seconds
