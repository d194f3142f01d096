"""Resolve: reunites SQL and `_delta_log` after they diverged; no file is overwritten.

They diverge if another writer ignored the fence, or if the database was restored from an old backup while the files
have its later commits. The files keep their versions. Our commits under the same versions are removed from SQL, the
files' commits are loaded, and ours are committed again after them, with their transaction ids: all in one SQL
transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from deltalakedb.exceptions import (
    CommitFailedError,
    ExternalWriterError,
    InvalidCommitError,
    NotWritableError,
    StoreBusyError,
    TableReplacedError,
    redact,
)
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.checks import conflicts
from deltalakedb.log.protocol.actions import Action, Protocol
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.completion import ROW_TRACKING, high_water_mark
from deltalakedb.log.protocol.proposal import NOTHING_READ
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.mirror import bookkeeping
from deltalakedb.mirror.detach import open_registered
from deltalakedb.mirror.external import Importer, first_foreign
from deltalakedb.mirror.own_commits import (
    OwnCommit,
    Rebaser,
    Recommitted,
    StateBesideFiles,
    as_proposed,
    compensating_actions,
    own_commit_info,
    read_own,
)
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.loader import Loader
from deltalakedb.store.registry import Head, OpenTable, TableRow
from deltalakedb.store.rewind import RESOLUTIONS, rewind
from deltalakedb.store.winners import read_winners

Decision: TypeAlias = Literal["adopt", "overrule"]
OPERATION = "RESOLVE"
ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was done, or with `dry_run` would be done. `first_version` is None if SQL and the files agree."""

    table: TableRow
    decision: Decision
    first_version: int | None = None
    last_version: int | None = None
    num_own: int = 0
    """How many of the loaded versions this catalog made itself: the database was restored from a backup."""
    compensating_version: int | None = None
    fence_version: int | None = None
    recommitted: tuple[Recommitted, ...] = ()
    version: int = -1
    dry_run: bool = False


def resolve(
    store: Store,
    table: TableRow,
    decision: Decision,
    *,
    storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
    origin: str | None = None,
    dry_run: bool = False,
) -> Resolution:
    """Reunite SQL and the files, and accept commits again.

    If our commits conflict with those in the files, nothing changes and ExternalWriterError is raised; `overrule` then
    undoes the other writer's changes by a commit of its own.
    """
    for _ in range(ATTEMPTS):
        opened = open_registered(store, table)
        _check_mode(opened.table)
        reader = FileTxnLogReader(opened.table.location, storage_options, table=opened.table.full_name)
        latest = reader.latest_version()
        first = first_foreign(store, opened, reader, latest)
        if first is None:
            return _nothing(store, opened, decision, actor, origin, dry_run)
        own = read_own(store, opened.table, first)
        if not dry_run and opened.table.state == "live":
            # From here on nobody commits anything that would have to be removed again.
            bookkeeping.freeze(store, opened.table, first, "it is being resolved", actor=actor)
        job = _Job(store, opened, reader, decision, first, latest, own, actor, origin)
        try:
            resolution = job.dry_run() if dry_run else job.run()
        except _MovedError:
            continue
        reached("resolve.committed")
        return resolution
    raise StoreBusyError(f"{table.full_name}: somebody committed each time it was being resolved; try again")


def _check_mode(table: TableRow) -> None:
    if table.mode != "managed":
        raise NotWritableError(
            f"{table.full_name} is {table.mode}: its files are the authority, there is nothing to resolve; "
            f"`dl follow {table.full_name}` takes in what they hold"
        )


def _nothing(
    store: Store, opened: OpenTable, decision: Decision, actor: str | None, origin: str | None, dry_run: bool
) -> Resolution:
    """SQL and the files agree: only unfreeze a frozen table."""
    table = opened.table
    if table.state == "frozen" and not dry_run:
        with store.write() as conn:
            registry.lock_head(conn, table.table_id)
            now_ms = registry.next_change_ms(conn)
            table = registry.change_table(conn, table.table_id, at_ms=now_ms, state=_thawed(conn, table))
            conn.run("rewind_mirror_status", table_id=table.table_id, version=-1)
            write_audit(
                conn,
                action="resolve",
                at_ms=now_ms,
                actor=actor,
                origin=origin,
                table=table,
                details={"found": "nothing"},
            )
    return Resolution(table, decision, version=opened.head.current_version, dry_run=dry_run)


def _thawed(conn: Connection, table: TableRow) -> str:
    """The state after unfreezing: `detaching` if our own last commit took the fence off, else `live`."""
    protocol = conn.one("select_protocol", table_id=table.table_id, version=LIVE)
    return "live" if protocol is None or protocol["fenced"] else "detaching"


class _MovedError(Exception):
    """Another commit was made after the table was read and before it was locked."""


class _DryRunError(Exception):
    """Rolls back the transaction of a dry run."""

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        super().__init__()


@dataclass(slots=True)
class _Job:
    """One resolution, of versions `first` to `latest`, under the lock of the table's head."""

    store: Store
    opened: OpenTable
    reader: FileTxnLogReader
    decision: Decision
    first: int
    latest: int
    own: tuple[OwnCommit, ...]
    actor: str | None
    origin: str | None

    def dry_run(self) -> Resolution:
        try:
            self.run(keep=False)
        except _DryRunError as rolled_back:
            return replace(rolled_back.resolution, dry_run=True)
        raise AssertionError("a dry run is rolled back")

    def run(self, *, keep: bool = True) -> Resolution:
        with self.store.write(holds_clock=True) as conn:
            resolution = self._resolve(conn)
            reached("resolve.written")
            if not keep:
                raise _DryRunError(resolution)
        return resolution

    def _resolve(self, conn: Connection) -> Resolution:
        table, head = self._lock(conn)
        if self.own:
            head = rewind(conn, table, head, self.first - 1)
        before = StateBesideFiles.read(conn, table, self.first - 1)
        importer = Importer.of(conn, self._loader(conn, table, head))
        importer.take(self.reader.commits(self.first, self.latest))
        head = importer.loader.finish()
        self._check_same_table(conn, table, before)
        reached("resolve.imported")
        own = self._not_in_files(conn, table)
        loader = self._loader(conn, table, head, strict=True)
        try:
            own_version = self._compensate(conn, table, head, loader, before, own)
            recommitted = self._recommit(conn, table, loader, before, own)
            head = loader.finish()
        except InvalidCommitError as error:
            raise self._clash(error) from error
        resolution = Resolution(
            table,
            self.decision,
            self.first,
            self.latest,
            importer.num_own,
            own_version if self.decision == "overrule" else None,
            own_version if self.decision == "adopt" else None,
            recommitted,
            head.current_version,
        )
        return self._thaw(conn, resolution)

    def _lock(self, conn: Connection) -> tuple[TableRow, Head]:
        head = registry.lock_head(conn, self.opened.table.table_id)
        table = registry.table_by_id(conn, self.opened.table.table_id)
        if head is None or table is None:
            raise NotWritableError(f"the table {self.opened.table.full_name} is not registered any more")
        last = self.own[-1].commit.version if self.own else self.first - 1
        if head.current_version != last:
            raise _MovedError
        return table, head

    def _loader(self, conn: Connection, table: TableRow, head: Head, *, strict: bool = False) -> Loader:
        metadata = StateBesideFiles.read(conn, table, head.current_version).metadata
        return Loader(conn, table.table_id, table=table.full_name, head=head, metadata=metadata, strict=strict)

    def _check_same_table(self, conn: Connection, table: TableRow, before: StateBesideFiles) -> None:
        new_id = StateBesideFiles.read(conn, table, self.latest).metadata.id
        if new_id != before.metadata.id:
            raise TableReplacedError(
                f"{table.full_name}: another table lives at {redact(table.location)} now: its metaData.id is {new_id}, "
                f"SQL has {before.metadata.id}. Put the files back from a copy, or drop the table"
            )

    def _not_in_files(self, conn: Connection, table: TableRow) -> tuple[OwnCommit, ...]:
        """Our commits whose transactions the files do not have: nothing is committed twice."""
        rows = conn.all("select_versions", table_id=table.table_id, first_version=self.first, last_version=self.latest)
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["txn_id"] or ""] = counts.get(row["txn_id"] or "", 0) + 1
        missing = []
        for own in self.own:
            txn_id = own.txn_id or ""
            if txn_id and counts.get(txn_id, 0) > 0:
                counts[txn_id] -= 1
            else:
                missing.append(own)
        return tuple(missing)

    # -- the commits after those of the files

    def _compensate(
        self,
        conn: Connection,
        table: TableRow,
        head: Head,
        loader: Loader,
        before: StateBesideFiles,
        own: Sequence[OwnCommit],
    ) -> int | None:
        """The commit between the files' commits and ours, if needed: undoes the former, or only restores the fence."""
        if self.decision == "adopt":
            self._check_conflicts(conn, table, before, own)
            state = StateBesideFiles.read(conn, table, self.latest)
            actions: tuple[Action, ...] = () if state.fenced or not before.fenced else (state.protocol,)
        else:
            actions = compensating_actions(
                conn, table, before, self.first - 1, deleted_ms=max(conn.now_ms(), head.last_commit_ms + 1)
            )
        if not actions:
            return None
        commit = self._own_commit(conn, table, head, actions, before)
        loader.append(commit, fenced=before.fenced)
        return commit.version

    def _check_conflicts(
        self, conn: Connection, table: TableRow, before: StateBesideFiles, own: Sequence[OwnCommit]
    ) -> None:
        proposed = [as_proposed(commit) for commit in own]
        if not proposed:
            return
        needs = conflicts.needs(proposed, NOTHING_READ)
        in_files = {commit.txn_id for commit in self.own} - {commit.txn_id for commit in own}
        rows = conn.all("select_versions", table_id=table.table_id, first_version=self.first, last_version=self.latest)
        skipped = {row["version"] for row in rows if row["txn_id"] in in_files}
        winners = read_winners(conn, table.table_id, self.first, self.latest, needs)
        try:
            conflicts.check(
                table.full_name,
                proposed,
                NOTHING_READ,
                (winner for winner in winners if winner.version not in skipped),
                schema=parse_schema(before.metadata.schema_string),
                metadata=before.metadata,
                protocol=before.protocol,
            )
        except CommitFailedError as error:
            raise self._clash(error) from error

    def _clash(self, reason: Exception) -> ExternalWriterError:
        name, last = self.opened.table.full_name, self.own[-1].commit.version if self.own else self.first
        detail = str(reason).removeprefix(f"table {name}: ").split(". Nothing was committed.")[0]
        return ExternalWriterError(
            f"table {name}: our commits {self.first} to {last} clash with what another writer put into the files: "
            f"{detail}. Nothing was changed, and the table stays frozen. `dl mirror resolve {name} --overrule` undoes "
            "what the other writer did by a commit of its own, and keeps ours",
            table=name,
            version=self.first,
        )

    def _own_commit(
        self, conn: Connection, table: TableRow, head: Head, actions: tuple[Action, ...], before: StateBesideFiles
    ) -> Commit:
        txn_id, version = str(uuid.uuid4()), head.current_version + 1
        message = f"{self.decision} versions {self.first} to {self.latest} of another writer"
        txn_row = conn.one("take_token", txn_id=txn_id, client_token=txn_id, actor=self.actor, message=message)
        assert txn_row is not None, "a new id was never used"
        at_ms = int(txn_row["committed_at_ms"])
        timestamp_ms = max(at_ms, head.last_commit_ms + 1)
        info = own_commit_info(
            table,
            catalog_id=registry.catalog_id(conn),
            txn_id=txn_id,
            committed_at_ms=at_ms,
            timestamp_ms=timestamp_ms,
            version=version,
            operation=OPERATION,
            parameters={"decision": self.decision, "firstVersion": self.first, "lastVersion": self.latest},
            metadata=before.metadata,
            actor=self.actor,
            message=message,
        )
        return Commit(version, timestamp_ms, (info, *actions))

    def _recommit(
        self,
        conn: Connection,
        table: TableRow,
        loader: Loader,
        before: StateBesideFiles,
        own: Sequence[OwnCommit],
    ) -> tuple[Recommitted, ...]:
        if not own:
            return ()
        loader.flush()
        state = StateBesideFiles.read(conn, table, LIVE)
        last = conn.one("select_version", table_id=table.table_id, version=loader.current_version)
        assert last is not None, "flushed"
        marks = (high_water_mark(before.domains.get(ROW_TRACKING)), high_water_mark(state.domains.get(ROW_TRACKING)))
        first = loader.current_version + 1
        rebaser = Rebaser.of(table.table_id, own, first, marks=marks, last_ms=last["committed_at_ms"])
        recommitted = []
        for own_commit in own:
            commit = rebaser.rebase(own_commit)
            has_protocol = any(isinstance(action, Protocol) for action in commit.actions)
            loader.append(commit, fenced=own_commit.fenced if has_protocol else None)
            recommitted.append(Recommitted(own_commit.commit.version, commit.version, own_commit.txn_id))
        return tuple(recommitted)

    def _thaw(self, conn: Connection, resolution: Resolution) -> Resolution:
        table, now_ms = resolution.table, registry.next_change_ms(conn)
        conn.run("mark_mirrored", table_id=table.table_id, version=self.latest)
        conn.run("rewind_mirror_status", table_id=table.table_id, version=-1)
        properties = dict(table.properties)
        if self.own:
            properties[RESOLUTIONS] = int(properties.get(RESOLUTIONS, 0)) + 1
        changes = {"state": _thawed(conn, table), "properties": properties}
        thawed = registry.change_table(conn, table.table_id, at_ms=now_ms, **changes)
        details = {
            "decision": self.decision,
            "first_version": self.first,
            "last_version": self.latest,
            "own_versions_taken_in": resolution.num_own,
            "compensating_version": resolution.compensating_version,
            "fence_version": resolution.fence_version,
            "recommitted": [commit.to_value() for commit in resolution.recommitted],
        }
        write_audit(
            conn, action="resolve", at_ms=now_ms, actor=self.actor, origin=self.origin, table=thawed, details=details
        )
        return replace(resolution, table=thawed)
