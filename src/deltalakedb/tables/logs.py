"""Maintains the files of a DeltaTable's log: through the mirror if a catalog decides, directly if the files do."""

from __future__ import annotations

from deltalakedb.exceptions import NotWritableError, VersionNotFoundError
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.fence import fence
from deltalakedb.operations import log_files
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.sql_backing import SqlBacking

_LOG_DAYS, _DELETED_FILE_DAYS = 30, 7


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
    log_files.create_checkpoint(writer, snapshot, _shown(snapshot), retention_days=days)


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


def _shown(snapshot: TableSnapshot) -> Protocol:
    """Return the protocol as the files have it: with our fence if the catalog's commits carry it."""
    if isinstance(snapshot, SqlSnapshot) and snapshot.fenced:
        return fence(snapshot.protocol)
    return snapshot.protocol
