"""Repair: restores files that a managed table has lost since they were mirrored; nothing is overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaProtocolError, NotWritableError, TableNotFoundError
from deltalakedb.files.log_folder import LogListing
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks.properties import deleted_file_retention_ms
from deltalakedb.mirror.external import shown_protocol
from deltalakedb.mirror.table_mirror import open_log_writer
from deltalakedb.runtime.config import ConditionalPut
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Row, Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow

MAX_LISTED = 1_000
"""How many versions the audit row lists at most."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was restored."""

    versions: tuple[int, ...] = ()
    checkpoint: int | None = None
    """The version of the checkpoint that was written, if any."""


def repair(
    store: Store,
    table: TableRow,
    *,
    deleted_file_ms: int,
    storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
    origin: str | None = None,
    conditional_put: ConditionalPut = "auto",
) -> Repaired:
    """Restore mirrored commits that are missing, and write a checkpoint if the files are unreadable without one.

    Unmirrored commits are left to the mirror, and cleaned-up ones are not restored. `deleted_file_ms` is how long
    tombstones are kept if the table does not set it.
    """
    if table.mode != "managed":
        raise NotWritableError(f"{table.full_name} is {table.mode}: its files belong to others, nothing is put there")
    reader = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    files = open_log_writer(store, table, storage_options, conditional_put)
    with store.read() as conn:
        state = conn.one("select_checkpoint_state", table_id=table.table_id)
    if state is None:
        raise TableNotFoundError(f"table {table.full_name} has no versions in the database")
    listing = reader.listing()
    ours = SqlTxnLogReader(store, table)
    lost = tuple(_lost(ours, state, listing))
    for version in lost:
        commit = next(ours.mirror_commits(version, version))
        files.put_commit(version, commit.data, modified_ms=commit.timestamp_ms)
    repaired = Repaired(lost)
    newest = listing.checkpoints[0].version if listing.checkpoints else 0
    if newest < (state["checkpoint_version"] or 0) or not _is_readable(reader):
        repaired = Repaired(lost, _write_checkpoint(store, ours, files, state, deleted_file_ms))
    if repaired != Repaired():
        with store.write() as conn:
            write_audit(
                conn,
                action="repair",
                at_ms=conn.now_ms(),
                actor=actor,
                origin=origin,
                table=table,
                details={
                    "versions": list(lost[:MAX_LISTED]),
                    "num_versions": len(lost),
                    "checkpoint": repaired.checkpoint,
                },
            )
    return repaired


def _lost(ours: SqlTxnLogReader, state: Row, listing: LogListing) -> Iterator[int]:
    """The versions that were mirrored, that SQL has as commits, and that are missing in the files."""
    first = max(ours.earliest_version(), state["cleaned_before"] or 0)
    for version in range(first, state["mirrored_version"] + 1):
        if version not in listing.commits and ours.has_commit(version):
            yield version


def _write_checkpoint(
    store: Store, ours: SqlTxnLogReader, files: FileTxnLogWriter, state: Row, deleted_file_ms: int
) -> int:
    snapshot = ours.snapshot(state["mirrored_version"])
    with store.read(single=True) as conn:
        now_ms = conn.now_ms()
    keep_ms = deleted_file_retention_ms(snapshot.metadata.configuration, deleted_file_ms)
    cutoff_ms = now_ms - keep_ms
    checkpoint = files.write_checkpoint(snapshot, protocol=shown_protocol(snapshot), tombstone_cutoff_ms=cutoff_ms)
    files.write_last_checkpoint(checkpoint)
    with store.write() as conn:
        conn.run(
            "put_checkpoint",
            table_id=ours.table.table_id,
            version=snapshot.version,
            written_at_ms=now_ms,
            cleaned_before=state["cleaned_before"] or 0,
        )
    return snapshot.version


def _is_readable(reader: FileTxnLogReader) -> bool:
    try:
        reader.snapshot()
    except (DeltaProtocolError, TableNotFoundError):
        return False
    return True
