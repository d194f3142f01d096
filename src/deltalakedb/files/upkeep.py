"""Maintenance after a commit to a table whose `_delta_log` decides: checkpoints and clean-up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.cleanup import DAY_MS, CleanedUp, protected_before, retention_ms, settings_of
from deltalakedb.files.optional_files import CheckpointWritten
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks.properties import cleans_up, deleted_file_retention_ms, log_retention_ms
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.runtime.steps import reached

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
DEFAULT_INTERVAL = 100
"""Commits between checkpoints if the table does not say; the default of `deltalake`."""

_LOG_RETENTION_MS = 30 * DAY_MS
_DELETED_FILE_RETENTION_MS = 7 * DAY_MS


def checkpoint_interval(configuration: Mapping[str, str | None], default: int) -> int:
    """The table's `delta.checkpointInterval` if it is a positive number, else the default."""
    text = (configuration.get(CHECKPOINT_INTERVAL) or "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else default


def checkpoint_is_due(snapshot: FileSnapshot) -> bool:
    """Whether a checkpoint is due, counted as `deltalake` does; also if others omitted theirs for two intervals."""
    interval = checkpoint_interval(snapshot.metadata.configuration, DEFAULT_INTERVAL)
    last_checkpoint = -1 if snapshot.checkpoint_version is None else snapshot.checkpoint_version
    behind = snapshot.version - last_checkpoint
    return behind > 0 and ((snapshot.version + 1) % interval == 0 or behind >= 2 * interval)


def write_checkpoint(writer: FileTxnLogWriter, snapshot: LogSnapshot) -> CheckpointWritten:
    """Write a checkpoint of the snapshot, and point `_last_checkpoint` to it."""
    keep_ms = retention_ms(deleted_file_retention_ms, snapshot.metadata, _DELETED_FILE_RETENTION_MS)
    checkpoint = writer.write_checkpoint(
        snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=time.time_ns() // 1_000_000 - keep_ms
    )
    reached("files.checkpoint_written")
    writer.write_last_checkpoint(checkpoint)
    return checkpoint


def clean_up(writer: FileTxnLogWriter, snapshot: LogSnapshot) -> CleanedUp:
    """Delete commits older than the table's retention that a checkpoint replaces."""
    keep_ms = retention_ms(log_retention_ms, snapshot.metadata, _LOG_RETENTION_MS)
    cutoff_ms = (time.time_ns() // 1_000_000 - keep_ms) // DAY_MS * DAY_MS  # midnight UTC, as the protocol requires
    return writer.clean_up(cutoff_ms=cutoff_ms, protected_before=protected_before(snapshot.protocol, snapshot.metadata))


def after_commit(
    writer: FileTxnLogWriter, load: Callable[[], FileSnapshot], *, checkpoint: bool, cleanup: bool | None
) -> None:
    """Write a checkpoint and clean up if due. Never raises, because the commit is made already."""
    if not checkpoint:
        return
    try:
        snapshot = load()
        if not checkpoint_is_due(snapshot) or (writer.last_checkpoint() or -1) >= snapshot.version:
            return
        write_checkpoint(writer, snapshot)
        cleans = cleans_up(settings_of(snapshot.metadata)) if cleanup is None else cleanup
        if cleans:
            clean_up(writer, snapshot)
    except DeltaError as error:
        _log.warning("table %s: committed, but without its checkpoint: %s", redact(writer.table), redact(str(error)))
