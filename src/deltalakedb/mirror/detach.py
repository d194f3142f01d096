"""Detach: makes a table's `_delta_log` its authority again. Our last commit takes the fence off."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from deltalakedb.exceptions import ConcurrentAppendError, MirrorError, NotWritableError, ProtocolChangedError
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.runtime.caller import current_caller
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.registry import OpenTable, TableRow
from deltalakedb.store.writer import SqlTxnLogWriter

OPERATION = "DETACH"
ATTEMPTS = 20
LEGACY_WRITER_VERSIONS = range(1, 7)
FIRST_FEATURES_READER_VERSION = 3


@dataclass(frozen=True, slots=True)
class DetachResult:
    """`version` is our newest; later versions are written by others."""

    table: TableRow
    version: int
    already_detached: bool = False


def detach(
    store: Store,
    table: TableRow,
    engine: MirrorEngine,
    *,
    actor: str | None = None,
    origin: str | None = None,
    retries: int = 10,
) -> DetachResult:
    """Give a managed table back to its files. Safe to repeat: after a crash it continues.

    One SQL transaction takes the fence off and stops our writers. Then everything is mirrored, and the table becomes
    `detached` only when the files have all of it.
    """
    opened = open_registered(store, table)
    if opened.table.mode == "detached":
        return DetachResult(opened.table, opened.head.current_version, already_detached=True)
    if opened.table.mode != "managed":
        raise NotWritableError(
            f"{opened.table.full_name} is a {opened.table.mode}: its files are the authority already, there is "
            f"nothing to detach; `dl drop {opened.table.full_name}` takes it out of the catalog"
        )
    if opened.table.state != "detaching":
        opened = _commit_fence_off(store, opened, actor=actor, origin=origin, retries=retries)
    reached("detach.committed")
    version = mirror_to_the_end(store, opened.table, engine, "detach")
    reached("detach.mirrored")
    engine.forget_table(opened.table)  # before `finish`, so that it is repeated after a crash
    detached = finish(store, opened.table, version, actor=actor, origin=origin)
    reached("detach.done")
    return DetachResult(detached, version)


def open_registered(store: Store, table: TableRow) -> OpenTable:
    """The table as it is now registered, even if it was renamed."""
    with store.read() as conn:
        row = registry.table_by_id(conn, table.table_id)
        opened = None if row is None else registry.open_table(conn, row.namespace, row.name)
    if opened is None:
        raise NotWritableError(f"the table {table.full_name} is not registered any more")
    return opened


def fence_off(protocol: Protocol) -> ProposedCommit:
    """Our last commit, which takes the fence off. `protocol` is the one in SQL."""
    return ProposedCommit((plainest(protocol),), operation=OPERATION, fenced=False)


def plainest(protocol: Protocol) -> Protocol:
    """The protocol in its legacy form, if that means the same; the fence had required table features.

    A writer without table features that could write the table before can then write it again.
    """
    if protocol.min_reader_version >= FIRST_FEATURES_READER_VERSION:
        return protocol
    features = set(fence(protocol).writer_features or ())
    for version in LEGACY_WRITER_VERSIONS:
        legacy = replace(protocol, min_writer_version=version, writer_features=None)
        if set(fence(legacy).writer_features or ()) == features:
            return legacy
    return protocol


def _commit_fence_off(
    store: Store, opened: OpenTable, *, actor: str | None, origin: str | None, retries: int
) -> OpenTable:
    """Commit the protocol without the fence, and the state `detaching`, in one SQL transaction."""
    writer, token = SqlTxnLogWriter(store, retries=retries), str(uuid.uuid4())
    for attempt in range(ATTEMPTS):
        table = TableProposal(
            opened.table,
            opened.head.current_version,
            commits=(fence_off(opened.protocol),),
            protocol=opened.protocol,
            metadata=opened.metadata,
            changes={"state": "detaching"},
        )
        proposal = Proposal(
            (table,), token, token, actor=actor, origin=origin, message="detach", caller=current_caller()
        )
        try:
            writer.commit(proposal)
            break
        except (ProtocolChangedError, ConcurrentAppendError):  # another commit was faster: read the table again
            if attempt == ATTEMPTS - 1:
                raise
            opened = open_registered(store, opened.table)
            if opened.table.state == "detaching":
                break
    return open_registered(store, opened.table)


def mirror_to_the_end(store: Store, table: TableRow, engine: MirrorEngine, what: str) -> int:
    """Mirror everything that SQL has and return the files' version; MirrorError if that is not possible now."""
    version = open_registered(store, table).head.current_version
    result = engine.mirror_table(table)
    if result.error is not None or result.to_version < version:
        raise MirrorError(
            f"{table.full_name}: its files are at version {result.to_version} and SQL at {version}, so it is not yet "
            f"done: {result.error or 'somebody else mirrors it'}. Nothing is lost: run `dl {what} {table.full_name}` "
            "again when the files can be written"
        )
    return version


def finish(
    store: Store, table: TableRow, mirrored_version: int, *, actor: str | None = None, origin: str | None = None
) -> TableRow:
    """Mark a `detaching` table as detached once its files have everything; also called by the reconciler."""
    with store.write() as conn:
        head = registry.lock_head(conn, table.table_id)
        row = registry.table_by_id(conn, table.table_id)
        if head is None or row is None:
            raise NotWritableError(f"the table {table.full_name} is not registered any more")
        if row.mode == "detached":
            return row
        if row.state != "detaching" or head.current_version > mirrored_version:
            raise MirrorError(
                f"{row.full_name} is {row.state} at version {head.current_version}, its files are at "
                f"{mirrored_version}: it cannot be detached yet; run `dl detach {row.full_name}` again"
            )
        conn.run("mark_mirrored", table_id=table.table_id, version=mirrored_version)
        conn.run("clear_mirror_status", table_id=table.table_id, version=mirrored_version)
        now_ms = registry.next_change_ms(conn)
        # Others will write there, so the files are no longer ours to delete.
        changes = {"mode": "detached", "state": "live", "files_owner": "user"}
        detached = registry.change_table(conn, table.table_id, at_ms=now_ms, **changes)
        details = {"location": row.location, "version": mirrored_version}
        write_audit(conn, action="detach", at_ms=now_ms, actor=actor, origin=origin, table=detached, details=details)
    return detached
