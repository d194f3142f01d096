"""Commits in `_delta_log` that SQL lacks: whose they are, and how they and their transactions are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deltalakedb.exceptions import redact
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.actions import CommitInfo, Protocol
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.completion import MARK, Mark, parse_mark
from deltalakedb.log.protocol.fence import fence
from deltalakedb.log.protocol.rows import protocol_from_row
from deltalakedb.mirror.compare import first_difference
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.loader import BaseState, Loader
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import OpenTable
from deltalakedb.store.snapshot import SqlSnapshot

MAX_COMMITS_SEARCHED = 1_000
"""How many commits to search for the newest one of a catalog; in a fenced table it is the newest of all."""


@dataclass(slots=True)
class Importer:
    """Loads commits of `_delta_log` into SQL, and restores the transactions of those that this catalog made."""

    conn: Connection
    loader: Loader
    catalog_id: str
    num_own: int = 0

    @classmethod
    def of(cls, conn: Connection, loader: Loader) -> Importer:
        return cls(conn, loader, registry.catalog_id(conn))

    def take(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            mark = self._own_mark(commit.commit_info)
            if mark is None:
                self.loader.append(commit)
                continue
            self.num_own += 1
            self.loader.append(replace(commit, timestamp_ms=own_time(commit)))
            restore_transaction(self.conn, mark)

    def take_base(self, base: BaseState) -> None:
        mark = self._own_mark(base.commit_info)
        if mark is None:
            self.loader.load_base(base)
            return
        timestamp_ms = base.commit_info.timestamp if base.commit_info is not None else None
        self.loader.load_base(replace(base, timestamp_ms=timestamp_ms or base.timestamp_ms))
        restore_transaction(self.conn, mark)

    def _own_mark(self, info: CommitInfo | None) -> Mark | None:
        if info is None or MARK not in info.text:  # most commits of others: not parsed here
            return None
        mark = parse_mark(info)
        return mark if mark is not None and mark.catalog_id == self.catalog_id else None


def own_time(commit: Commit) -> int:
    """When a commit of ours was made; its file may have been put later, and an object store only has that time."""
    info = commit.commit_info
    timestamp_ms = info.timestamp if info is not None else None
    return commit.timestamp_ms if timestamp_ms is None else timestamp_ms


def restore_transaction(conn: Connection, mark: Mark) -> None:
    """Insert the transaction of a commit of ours, unless SQL has it already, for instance by another table."""
    conn.run(
        "restore_transaction",
        txn_id=mark.txn_id,
        client_token=f"restored:{mark.txn_id}",  # the original token is not in the files
        committed_at_ms=mark.committed_at_ms,
        actor=mark.actor,
        message=mark.message,
    )


def newest_mark(reader: FileTxnLogReader) -> Mark | None:
    """The mark of the newest commit that a catalog of ours made; None if no remaining commit has one."""
    commits = sorted(reader.listing().commits, reverse=True)
    for version in commits[:MAX_COMMITS_SEARCHED]:
        mark = mark_of(reader, version)
        if mark is not None:
            return mark
    return None


def mark_of(reader: FileTxnLogReader, version: int) -> Mark | None:
    actions = reader.actions(version)
    return parse_mark(next((action for action in actions if isinstance(action, CommitInfo)), None))


def fenced_by_another(table: str, location: str, mark: Mark | None) -> str:
    """The error message for a table behind another catalog's fence."""
    owner = "a catalog that left no name" if mark is None else f"the catalog {mark.catalog_id} (as {mark.table})"
    return (
        f"table {table}: {redact(location)} is managed by {owner}; a table has one authority. Detach it there "
        "(`dl detach`), or attach it here to read it; `dl import --rebuild` into an empty database takes over from a "
        "catalog that is lost"
    )


def shown_protocol(snapshot: SqlSnapshot) -> Protocol:
    """The protocol that the files must show."""
    return fence(snapshot.protocol) if snapshot.fenced else snapshot.protocol


def protocol_in_files(row: Row) -> Protocol:
    """The protocol that the files show, from the row of the one in SQL."""
    protocol = protocol_from_row(row)
    return fence(protocol) if row["fenced"] else protocol


def first_foreign(store: Store, opened: OpenTable, reader: FileTxnLogReader, latest: int) -> int | None:
    """The first version in the files that SQL lacks or has differently; None if they agree."""
    head, ours = opened.head, SqlTxnLogReader(store, opened.table)
    for version in range(max(head.mirrored_version, head.base_version) + 1, min(head.current_version, latest) + 1):
        if not reader.has_commit(version):
            continue
        stored, in_files = next(ours.commits(version, version)), next(reader.commits(version, version))
        if difference(stored, in_files) is not None:
            return version
    return head.current_version + 1 if latest > head.current_version else None


def difference(stored: Commit, in_files: Commit) -> str | None:
    """The first difference between a commit in SQL and in the files; SQL keeps the protocol without the fence."""
    return first_difference(_fenced(stored), _fenced(in_files))


def _fenced(commit: Commit) -> Commit:
    actions = tuple(fence(action) if isinstance(action, Protocol) else action for action in commit.actions)
    return replace(commit, actions=actions)
