"""Promote: makes SQL the authority for a table whose files decided before. The fence is put into the files first."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltalakedb.exceptions import CommitFailedError, DeltaError, NotWritableError, redact
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.log.protocol.features import check_writable
from deltalakedb.log.protocol.fence import unfence
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.mirror.external import fenced_by_another, newest_mark, protocol_in_files
from deltalakedb.mirror.follow import PromotedError, catch_up, follow, open_loader
from deltalakedb.mirror.own_commits import own_commit_info
from deltalakedb.mirror.table_mirror import open_log_writer
from deltalakedb.runtime.config import ConditionalPut
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.loader import Progress
from deltalakedb.store.registry import TableRow

OPERATION = "PROMOTE"
ATTEMPTS = 100
"""How often to try to put the fence while another writer commits first each time."""


@dataclass(frozen=True, slots=True)
class PromoteResult:
    """`version` is the fence's; if the table was managed already, nothing was done."""

    table: TableRow
    version: int
    already_managed: bool = False


@dataclass(frozen=True, slots=True)
class _Tip:
    """The newest version in the files, with its protocol and metadata."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata

    @property
    def is_fenced(self) -> bool:
        return unfence(self.protocol)[1]

    def after(self, commit: Commit) -> _Tip:
        tip = replace(self, version=commit.version, timestamp_ms=max(commit.timestamp_ms, self.timestamp_ms + 1))
        for action in commit.actions:
            if isinstance(action, Protocol):
                tip = replace(tip, protocol=action)
            elif isinstance(action, Metadata):
                tip = replace(tip, metadata=action)
        return tip


def promote(
    store: Store,
    table: TableRow,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    actor: str | None = None,
    origin: str | None = None,
    attempts: int = ATTEMPTS,
    conditional_put: ConditionalPut = "auto",
) -> PromoteResult:
    """Make a follower or a detached table a managed one.

    The files decide until they have the fence, so the fence is put there first, if absent, and then loaded into SQL.
    After a crash between the two, the next promote finds its own commit and finishes. `conditional_put` is the setting
    `mirror.conditional_put`, which applies to the fence as to every other commit.
    """
    table, version = _as_registered(store, table)
    if table.mode == "managed":
        return PromoteResult(table, version, already_managed=True)
    _check_state(table)
    try:
        follow(store, table, storage_options=storage_options, progress=progress, actor=actor, origin=origin)
        reached("promote.followed")
        reader = FileTxnLogReader(table.location, storage_options, table=table.full_name)
        writer = open_log_writer(store, table, storage_options, conditional_put)
        _put_fence(store, table, reader, writer, _tip_of(store, table), actor, attempts)
        reached("promote.fence_put")
        return _take_over(store, table, reader, actor=actor, origin=origin)
    except PromotedError:  # another promote of this catalog was faster
        return PromoteResult(*_as_registered(store, table), already_managed=True)


def has_own_fence(store: Store, table: TableRow, storage_options: Mapping[str, str] | None) -> bool:
    """Whether the files of a follower have our fence: a promote put it there and died before it was in SQL."""
    reader = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    try:
        mark = newest_mark(reader) if unfence(reader.snapshot().protocol)[1] else None
    except DeltaError:  # if the files are gone or unreadable, there is no fence to take off
        return False
    with store.read(single=True) as conn:
        return mark is not None and mark.catalog_id == registry.catalog_id(conn)


def _as_registered(store: Store, table: TableRow) -> tuple[TableRow, int]:
    with store.read() as conn:
        row, head = registry.table_by_id(conn, table.table_id), registry.read_head(conn, table.table_id)
    if row is None or head is None:
        raise DeltaError(f"the table {table.full_name} is not registered any more")
    return row, head.current_version


def _check_state(table: TableRow) -> None:
    if table.state != "live":
        raise NotWritableError(
            f"{table.full_name} is {table.state} and cannot be promoted; finish what was begun, then promote it again"
        )


def _tip_of(store: Store, table: TableRow) -> _Tip:
    """The newest version that SQL has followed, with its protocol and metadata."""
    with store.read() as conn:
        head = registry.read_head(conn, table.table_id)
        assert head is not None, "a followed table has a head"
        at_head = {"table_id": table.table_id, "version": head.current_version}
        protocol, metadata = conn.one("select_protocol", **at_head), conn.one("select_metadata", **at_head)
    assert protocol is not None, "a followed table has a protocol"
    assert metadata is not None, "and metadata"
    return _Tip(head.current_version, head.last_commit_ms, protocol_in_files(protocol), metadata_from_row(metadata))


def _put_fence(
    store: Store,
    table: TableRow,
    reader: FileTxnLogReader,
    writer: FileTxnLogWriter,
    tip: _Tip,
    actor: str | None,
    attempts: int,
) -> None:
    """Put the fence into the files, unless a promote of ours that died has put it there already."""
    with store.read() as conn:
        catalog_id, at_ms = registry.catalog_id(conn), registry.next_change_ms(conn)
    for _ in range(attempts):
        if tip.is_fenced:
            _check_own(table, reader, catalog_id)
            return
        check_writable(tip.protocol, table.full_name)
        timestamp_ms = max(at_ms, tip.timestamp_ms + 1)
        data = _fence_commit(table, tip, catalog_id, at_ms, timestamp_ms, actor)
        if writer.put_commit(tip.version + 1, data, modified_ms=timestamp_ms) == "written":
            return
        # Another writer was faster. Read its commits now and load them into SQL later, so that the next put comes soon.
        for commit in reader.commits(tip.version + 1):
            tip = tip.after(commit)
    raise CommitFailedError(
        f"{table.full_name}: another writer was faster {attempts} times, now at version {tip.version}; "
        "nothing was changed. Promote it again when less is written to it"
    )


def _check_own(table: TableRow, reader: FileTxnLogReader, catalog_id: str) -> None:
    mark = newest_mark(reader)
    if mark is None or mark.catalog_id != catalog_id:
        raise NotWritableError(fenced_by_another(table.full_name, table.location, mark))


def _fence_commit(
    table: TableRow, tip: _Tip, catalog_id: str, at_ms: int, timestamp_ms: int, actor: str | None
) -> bytes:
    info = own_commit_info(
        table,
        catalog_id=catalog_id,
        txn_id=str(uuid.uuid4()),
        committed_at_ms=at_ms,
        timestamp_ms=timestamp_ms,
        version=tip.version + 1,
        operation=OPERATION,
        parameters={"table": table.full_name, "catalogId": catalog_id},
        metadata=tip.metadata,
        actor=actor,
    )
    return render_commit((info, tip.protocol), fenced=True)


def _take_over(
    store: Store,
    table: TableRow,
    reader: FileTxnLogReader,
    *,
    actor: str | None,
    origin: str | None,
) -> PromoteResult:
    """Load the fence and the commits before it into SQL and set the mode, in one transaction."""
    latest = reader.latest_version()
    with store.write() as conn:
        loader = open_loader(conn, table)
        catch_up(conn, loader, reader, latest)
        head = loader.finish()
        _check_fenced(conn, table, head.current_version)
        conn.run("mark_mirrored", table_id=table.table_id, version=head.current_version)
        now_ms = registry.next_change_ms(conn)
        managed = registry.change_table(conn, table.table_id, at_ms=now_ms, mode="managed")
        details = {"location": table.location, "version": head.current_version, "from": table.mode}
        write_audit(conn, action="promote", at_ms=now_ms, actor=actor, origin=origin, table=managed, details=details)
    reached("promote.imported")
    return PromoteResult(managed, head.current_version)


def _check_fenced(conn: Connection, table: TableRow, version: int) -> None:
    protocol = conn.one("select_protocol", table_id=table.table_id, version=version)
    if protocol is None or not protocol["fenced"]:
        raise CommitFailedError(
            f"{table.full_name}: somebody took the fence off {redact(table.location)} again, at version {version}; "
            "find out who writes there, then promote it again"
        )
