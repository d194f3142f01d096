"""Ratifier: turns proposed commits into versions under the locks of their tables, and writes them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from deltalakedb.log.protocol.actions import CommitInfo, Metadata, Protocol
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.log.protocol.completion import (
    ROW_TRACKING,
    InForce,
    Mark,
    Participant,
    check_applications,
    has_in_commit_timestamps,
    high_water_mark,
    mark_commit_info,
    render_commit_info,
)
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.runtime.version import __version__
from deltalakedb.store.commit_locks import LockedTable, Locks
from deltalakedb.store.connection import Connection
from deltalakedb.store.iceberg import write_iceberg_commits
from deltalakedb.store.loader import Loader
from deltalakedb.store.proposals import Proposal, RatifiedCommit, TableProposal
from deltalakedb.store.registry import TableRow

ENGINE_INFO = f"deltalakedb/{__version__}"
RENDERED_ACTIONS = 2_000
"""Commits up to this many actions are rendered at once, for the mirror."""

LATE_ACTIONS = 200_000
"""Commits up to this size are rendered when the mirror writes them right away; larger ones are read back from SQL."""


class Ratifier:
    """Writes the commits of one proposal, all of whose tables are locked."""

    def __init__(self, conn: Connection, proposal: Proposal, rows: Sequence[TableRow], locks: Locks) -> None:
        assert locks.committed_at_ms is not None
        self._conn = conn
        self._proposal = proposal
        self._rows = rows
        self._locks = locks
        self._at_ms = locks.committed_at_ms
        self.left: dict[int, LockedTable] = {}
        """The state of each written table, valid once the transaction is committed."""
        self._participants = tuple(
            Participant(row.table_id, row.table_uuid, self._first_version(table) + number)
            for table, row in zip(proposal.tables, rows, strict=True)
            for number in range(len(table.commits) + len(table.iceberg))
        )

    def ratify(self, number: int, in_force: tuple[Protocol, Metadata] | None) -> list[RatifiedCommit]:
        """Writes the commits of one table of the proposal on top of its head."""
        table, row = self._proposal.tables[number], self._rows[number]
        locked = self._locks.tables.get(table.table.table_id)
        if table.iceberg:
            txn_id, joined_ms = self._proposal.txn_id, self._locks.joined_ms
            return write_iceberg_commits(
                self._conn, table, row, locked, at_ms=self._at_ms, txn_id=txn_id, joined_ms=joined_ms
            )
        if not table.commits:
            return []
        if (
            locked is not None and locked.app_versions and not table.exactly
        ):  # a writer that names the version knows the applications' versions
            proposed = (action for commit in table.commits for action in commit.actions)
            check_applications(proposed, locked.app_versions, table=row.full_name, version=locked.head.current_version)
        protocol, metadata = in_force or (None, None)
        loader = Loader(
            self._conn,
            row.table_id,
            table=row.full_name,
            head=locked.head if locked else None,
            metadata=metadata,
            known=locked.known if locked else None,
            strict=True,
        )
        state = InForce(protocol, metadata)
        if locked is not None and ROW_TRACKING in locked.domains:
            state.row_id_mark = high_water_mark(locked.domains[ROW_TRACKING])
        last_ms = locked.head.last_commit_ms if locked else -1
        ratified = []
        for offset, commit in enumerate(table.commits):
            version = self._first_version(table) + offset
            last_ms = self._time_of(table, commit, last_ms)
            finished = state.finish(commit.actions, version=version, at_ms=last_ms, table=row.full_name)
            actions = [self._commit_info(table, row, commit, state.metadata, version, last_ms), *finished]
            fenced = commit.fenced if commit.fenced is not None else (locked.fenced if locked else True)
            data = render_commit(actions, fenced=fenced) if len(actions) <= RENDERED_ACTIONS else None
            shows_fence = fenced and any(isinstance(action, Protocol) for action in actions)
            size = len(data) if data is not None and not shows_fence else None
            loader.append(Commit(version, last_ms, tuple(actions), size), fenced=fenced)
            late = partial(render_commit, actions, fenced=fenced) if len(actions) <= LATE_ACTIONS else None
            ratified.append(RatifiedCommit(row, version, last_ms, data, late=None if data is not None else late))
        head = loader.finish()
        if locked is not None:
            self.left[row.table_id] = replace(locked, row=row, head=head, known=loader.known)
        ratified[-1] = replace(ratified[-1], num_files=head.num_files, size_bytes=head.size_bytes)
        return ratified

    def _time_of(self, table: TableProposal, commit: ProposedCommit, last_ms: int) -> int:
        """The version's time: the transaction's T, unless an engine put an in-commit timestamp into an exact commit."""
        info = commit.commit_info
        if table.exactly and info is not None and info.in_commit_timestamp is not None:
            return max(info.in_commit_timestamp, last_ms + 1)
        return max(self._at_ms, last_ms + 1)

    def _first_version(self, table: TableProposal) -> int:
        return 0 if table.is_new else self._locks.tables[table.table.table_id].head.current_version + 1

    def _commit_info(
        self,
        table: TableProposal,
        row: TableRow,
        commit: ProposedCommit,
        metadata: Metadata | None,
        version: int,
        at_ms: int,
    ) -> CommitInfo:
        mark = Mark(
            catalog_id=self._locks.catalog_id,
            table_id=row.table_id,
            table_uuid=row.table_uuid,
            table=row.full_name,
            txn_id=self._proposal.txn_id,
            committed_at_ms=self._at_ms,
            participants=self._participants,
            actor=self._proposal.actor,
            message=self._proposal.message,
            request=self._proposal.caller.request_fields() if self._proposal.caller else None,
            files_owner=row.files_owner,
            dropped=table.drop and commit is table.commits[-1],
        )
        if commit.commit_info is not None:
            return mark_commit_info(commit.commit_info, mark, timestamp_ms=at_ms)
        read_version = table.read_version + version - self._first_version(table)
        return render_commit_info(
            mark,
            timestamp_ms=at_ms,
            operation=commit.operation,
            operation_parameters=commit.operation_parameters,
            operation_metrics=commit.operation_metrics,
            read_version=read_version if read_version >= 0 else None,
            is_blind_append=commit.is_blind_append,
            engine_info=ENGINE_INFO,
            in_commit_timestamps=has_in_commit_timestamps(metadata),
            user_info=commit.user_info,
        )
