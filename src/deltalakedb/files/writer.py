"""FileTxnLogWriter: writes the transaction log of one table into its `_delta_log` folder."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import pyarrow as pa

from deltalakedb import telemetry
from deltalakedb.exceptions import DeltaError, MirrorError, redact
from deltalakedb.files.checkpoint_reader import sidecar_names
from deltalakedb.files.checkpoint_writer import CheckpointFile, layout_of
from deltalakedb.files.cleanup import DAY_MS, CleanedUp, Expired, find_expired, find_expired_by_times
from deltalakedb.files.log_folder import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    LogFolder,
    LogListing,
    checkpoint_name,
    commit_name,
)
from deltalakedb.files.optional_files import (
    CheckpointWritten,
    Checksum,
    checksum_name,
    hinted_version,
    render_last_checkpoint,
)
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.storage.interface import NO_LOCK, PUT_TIMEOUT_SECONDS, PutResult, Puts
from deltalakedb.storage.location import open_storage

_log = logging.getLogger(__name__)

SIDECARS = "_sidecars"
TEMPORARY_FILE_AGE_MS = 3_600_000
"""The age at which a temporary file is considered left behind by a dead process."""


class FileTxnLogWriter:
    """Writes `_delta_log` on local disk or in an object store. Never overwrites or deletes another writer's commit."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        *,
        table: str,
        folder: str = LOG_FOLDER,
        puts: Puts = NO_LOCK,
    ) -> None:
        self.table = table
        self._folder = LogFolder(open_storage(location, options), table=table, folder=folder, puts=puts)

    def __repr__(self) -> str:
        return f"FileTxnLogWriter({self._folder.location!r})"

    @property
    def location(self) -> str:
        """The log's URI, without credentials."""
        return self._folder.location

    def put_commit(
        self,
        version: int,
        data: bytes,
        *,
        modified_ms: int,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        lasting: bool = True,
        creates_folder: bool = True,
    ) -> PutResult:
        """Put a commit unless the version exists; "exists" says nothing about its content.

        The commit is whole and durable when this returns; without `lasting` its name is durable only after `sync`. On
        local disk the file gets the commit's time, which readers use for time travel; in an object store it has the
        time of the put. Raises MirrorError if it cannot be written, and without `creates_folder` also if the log's
        folder is gone.
        """
        name = commit_name(version)
        with self._put_span(name):
            return self._folder.put(
                name,
                data,
                modified_ms=modified_ms,
                timeout_seconds=timeout_seconds,
                step="mirror.json",
                lasting=lasting,
                creates_folder=creates_folder,
            )

    def sync(self) -> None:
        """Make durable what was put without `lasting`."""
        self._folder.sync()

    def read_commit(self, version: int) -> bytes | None:
        """The bytes of a commit; None if it does not exist."""
        return self._folder.read(commit_name(version))

    def has_commit(self, version: int) -> bool:
        return self._folder.exists(commit_name(version))

    def write_checkpoint(
        self, snapshot: LogSnapshot, *, protocol: Protocol, tombstone_cutoff_ms: int
    ) -> CheckpointWritten:
        """Write a classic checkpoint of the snapshot, with tombstones younger than the cutoff.

        `protocol` is the one that the files show. Readers see the whole checkpoint or none.
        """
        name = checkpoint_name(snapshot.version)
        layout = layout_of(snapshot.metadata)
        try:
            with self._put_span(name), self._folder.upload(name) as file:
                checkpoint = CheckpointFile(file, layout)
                checkpoint.write(snapshot, protocol, tombstone_cutoff_ms)
                size_bytes = file.tell()
        except (pa.ArrowException, ValueError) as error:
            raise MirrorError(
                f"table {redact(self.table)}: no checkpoint can be made of version {snapshot.version}: "
                f"{redact(str(error))}; the commits in {self.location} can be read without it"
            ) from error
        return CheckpointWritten(
            snapshot.version, checkpoint.num_actions, checkpoint.num_add_files, size_bytes, f"{self.location}/{name}"
        )

    def checkpoints(self) -> list[int]:
        """The versions that have a complete checkpoint in the folder, newest first."""
        return [entry.version for entry in LogListing.of(file.name for file in self._folder.list()).checkpoints]

    def last_checkpoint(self) -> int | None:
        """The version in `_last_checkpoint`, if there is one."""
        return hinted_version(self._folder.read(LAST_CHECKPOINT))

    def write_last_checkpoint(self, written: CheckpointWritten) -> bool:
        """Point `_last_checkpoint` to a checkpoint unless it names a newer one; return whether it was written."""
        current = self.last_checkpoint()
        if current is not None and current > written.version and current in self.checkpoints():
            return False
        with self._put_span(LAST_CHECKPOINT):
            self._folder.replace(LAST_CHECKPOINT, render_last_checkpoint(written))
        return True

    def put_checksum(self, version: int, checksum: Checksum) -> PutResult:
        """Put a commit's checksum unless it exists. The commit itself must exist."""
        name = checksum_name(version)
        with self._put_span(name):
            # A checksum is optional: if its name is lost in a power failure, readers do without it.
            return self._folder.put(name, checksum.render(), lasting=False, decides=False, creates_folder=False)

    def put_compacted(self, first: int, last: int, data: bytes) -> PutResult:
        """Put the compaction of the commits from `first` through `last`, unless it exists (PROTOCOL.md, "Log Compaction
        Files")."""
        name = f"{first:020}.{last:020}.compacted.json"
        with self._put_span(name):
            return self._folder.put(name, data, lasting=False, decides=False)

    def clean_up(self, *, cutoff_ms: int, keep_from_version: int | None = None, protected_before: int = 0) -> CleanedUp:
        """Delete what is unnecessary because of the newest checkpoint before the cutoff (rounded down to midnight UTC).

        Nothing from `keep_from_version` on is deleted, and nothing at all if some of the versions before
        `protected_before` would remain (see `cleanup.protected_before`). The caller checks whether the table wants
        clean-up.
        """
        files = self._folder.list()
        expired = find_expired(
            files, cutoff_ms=cutoff_ms, keep_from_version=keep_from_version, protected_before=protected_before
        )
        return self._delete_expired(expired)

    def clean_up_by_times(self, *, cutoff_ms: int, keep_from_version: int, protected_before: int = 0) -> CleanedUp:
        """Delete what `deltalake` deletes; see `cleanup.find_expired_by_times`."""
        files = self._folder.list()
        return self._delete_expired(
            find_expired_by_times(
                files, cutoff_ms=cutoff_ms, keep_from_version=keep_from_version, protected_before=protected_before
            )
        )

    def _delete_expired(self, expired: Expired) -> CleanedUp:
        self._folder.delete(*expired.names)
        now_ms = time.time_ns() // 1_000_000
        removed = [*expired.names, *self._folder.delete_temporary(now_ms - TEMPORARY_FILE_AGE_MS)]
        if expired.names:
            removed += self._clean_up_sidecars(before_ms=now_ms // DAY_MS * DAY_MS - DAY_MS)
        return CleanedUp(tuple(removed), expired.first_version)

    def _clean_up_sidecars(self, before_ms: int) -> list[str]:
        """Delete sidecar files of V2 checkpoints (written by others) that no checkpoint needs any more."""
        old_names = [file.name for file in self._folder.list(SIDECARS) if file.modified_ms < before_ms]
        if not old_names:
            return []
        checkpoints = LogListing.of(file.name for file in self._folder.list()).checkpoints
        try:
            needed = set().union(
                *(sidecar_names(self._folder.storage, entry, table=self.table) for entry in checkpoints)
            )
        except DeltaError as error:
            _log.warning("table %s: no sidecar is deleted: %s", redact(self.table), redact(str(error)))
            return []
        unused = sorted(name for name in old_names if name.removeprefix(f"{SIDECARS}/") not in needed)
        self._folder.delete(*unused)
        return unused

    def _put_span(self, name: str) -> AbstractContextManager[None]:
        return telemetry.span("deltalakedb.put", table=self.table, file=f"{self._folder.location}/{name}")
