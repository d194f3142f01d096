"""SqlTxnLogWriter: commits a proposal in one SQL transaction, all of it or nothing.

Heads are locked in the order of their table ids. If a head has moved since the proposal was made, `conflicts.check`
compares the proposal with the commits in between; without a conflict it is rebased onto the head. After a lost
connection the commit is repeated with its client token, which gives the true outcome.
"""

import logging
import time
from collections.abc import Mapping

from deltalakedb.exceptions import (
    CommitFailedError,
    ExternalWriterError,
    OutcomeUnknownError,
    StoreError,
    TableLockedError,
    VersionTakenError,
)
from deltalakedb.log.checks import conflicts
from deltalakedb.log.checks.commit_checks import check_commit
from deltalakedb.log.checks.table_checks import check_rewritten
from deltalakedb.log.protocol.actions import AddFile, Metadata, Protocol
from deltalakedb.log.protocol.rows import metadata_from_row, protocol_from_row
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.steps import reached
from deltalakedb.store import registry, registry_write
from deltalakedb.store.appends import Appends, AppendsAtOnce
from deltalakedb.store.commit_locks import LockedTable, Locks, lock_tables
from deltalakedb.store.connection import Connection, ConnectionLostError, LostRaceError, Store
from deltalakedb.store.proposals import Outcome, Proposal, RatifiedCommit, TableProposal
from deltalakedb.store.ratify import Ratifier
from deltalakedb.store.registry import TableRow
from deltalakedb.store.registry_check import check_can_drop
from deltalakedb.store.rewind import RESOLUTIONS
from deltalakedb.store.vacuums import check_vacuumed
from deltalakedb.store.winners import read_winners

logger = logging.getLogger(__name__)

_LOST_RACES = Backoff(0.02, 2.0, 0.25)


class SqlTxnLogWriter:
    """Ratifies proposals in one store."""

    def __init__(self, store: Store, *, retries: int = 10, lock_wait_seconds: float = 60.0) -> None:
        self._store = store
        self._retries = retries
        self._lock_wait_seconds = lock_wait_seconds
        self._catalog_id: str | None = None
        self._appends = Appends(store) if isinstance(store, AppendsAtOnce) else None

    def commit(self, proposal: Proposal) -> Outcome:
        """Commits the whole proposal exactly once, or raises and commits nothing. A returned commit is never lost."""
        for table in proposal.tables:
            _check_actions(table)
        deadline = time.monotonic() + self._lock_wait_seconds
        lost: StoreError | None = None
        attempt = 0
        while True:
            try:
                return self._attempt(proposal, is_first=attempt == 0)
            except ConnectionLostError as error:
                lost = error
            except LostRaceError:
                if attempt >= self._retries:
                    raise
            except _ClaimedError as claimed:
                if time.monotonic() >= deadline:
                    raise claimed.final() from None
                attempt -= 1  # waiting for an intent lock is limited by time, not by attempts
            except StoreError:
                if lost is None:
                    raise  # after a lost connection an unreachable database may come back, so that is retried
            attempt += 1
            if attempt > self._retries and lost is not None:
                raise _unknown(proposal, lost) from lost
            _LOST_RACES.sleep(max(attempt, 1))

    def _attempt(self, proposal: Proposal, *, is_first: bool) -> Outcome:
        if is_first and self._appends is not None and self._catalog_id is not None:
            append_outcome = self._appends.commit(proposal, self._catalog_id)
            if append_outcome is not None:
                reached("commit.committed")
                return append_outcome
        with self._store.write(holds_clock=True) as conn:
            reached("commit.begun")
            locks = lock_tables(conn, proposal, self._catalog_id)
            self._catalog_id = locks.catalog_id
            if locks.committed_at_ms is None:
                return _repeated(conn, proposal)
            if len(locks.joined_ms) < len(proposal.joined):
                raise _joined_repeat(proposal)
            reached("commit.locked")
            _check_claims(locks, proposal)
            _check_iceberg(locks, proposal)
            in_force = {
                table.table.table_id: _check_conflicts(conn, locks.tables[table.table.table_id], table)
                for table in proposal.tables
                if table.table.is_delta and not table.is_new
            }
            for table in proposal.tables:
                if table.is_new:
                    continue
                locked = locks.tables[table.table.table_id]
                if table.table.is_delta:
                    _check_kept_files(locked, table)
                    if locked.head.vacuumed_version:  # a vacuum has begun at some time
                        check_vacuumed(conn, locked.head, table)
                if table.drop and locked.row.mode == "managed":
                    check_can_drop(table.table.full_name, in_force[table.table.table_id][1])
            reached("commit.checked")
            outcome, table_states = _write(conn, locks, proposal, in_force)
            reached("commit.written")
        reached("commit.committed")
        if self._appends is not None:
            self._appends.learn(table_states)
        return outcome


class _ClaimedError(Exception):
    """Another transaction holds an intent lock; worth waiting for."""

    def __init__(self, table: TableRow, holder: str, until_ms: int) -> None:
        self._table, self._holder, self._until_ms = table, holder, until_ms
        super().__init__(table.full_name)

    def final(self) -> TableLockedError:
        return TableLockedError(
            f"table {self._table.full_name} is locked by transaction {self._holder}, which rewrites it, until "
            f"{self._until_ms} ms; nothing was committed: try again later, or raise concurrency.lock_timeout"
        )


def _check_actions(proposal: TableProposal) -> None:
    """Checks what needs no lock: the actions against the rules of protocol and table."""
    protocol, metadata = proposal.protocol, proposal.metadata
    for number, commit in enumerate(proposal.commits):
        check_commit(
            commit.actions,
            protocol=protocol,
            metadata=metadata,
            table=proposal.table.full_name,
            version=proposal.read_version + 1 + number,
            location=proposal.table.location,
            replaces="REPLACE TABLE" in commit.operation,
            # We have no DROP FEATURE statement: it comes from an engine with its own commitInfo, such as Spark.
            drops_feature=commit.commit_info is not None and commit.operation == "DROP FEATURE",
            restores=commit.operation == "RESTORE",
            clones=commit.may_be_elsewhere or (commit.commit_info is not None and commit.operation == "CLONE"),
        )
        protocol = next((a for a in commit.actions if isinstance(a, Protocol)), protocol)
        metadata = next((a for a in commit.actions if isinstance(a, Metadata)), metadata)


def _check_claims(locks: Locks, proposal: Proposal) -> None:
    """Raises _ClaimedError if another transaction's intent lock protects a long rewrite; appends never wait."""
    assert locks.committed_at_ms is not None
    for table in proposal.tables:
        locked = locks.tables.get(table.table.table_id)
        if locked is None or locked.intent_holder in (None, proposal.txn_id) or table.is_append_only:
            continue
        until_ms = locked.intent_until_ms or 0
        if until_ms > locks.committed_at_ms:
            raise _ClaimedError(locked.row, str(locked.intent_holder), until_ms)


def _check_iceberg(locks: Locks, proposal: Proposal) -> None:
    """Raises if an Iceberg table or view has changed since the transaction read or changed its metadata."""
    for table in proposal.tables:
        if table.table.is_delta or table.is_new or not table.exactly:
            continue
        version = locks.tables[table.table.table_id].head.current_version
        if version != table.read_version:
            raise VersionTakenError(
                f"{table.table.full_name} has changed: it is at version {version}, and this transaction is based on "
                f"version {table.read_version}; nothing was committed: run it again",
                table=table.table.full_name,
                version=table.read_version + 1,
            )


def _check_conflicts(conn: Connection, locked: LockedTable, proposal: TableProposal) -> tuple[Protocol, Metadata]:
    """Raises if a commit since `read_version` conflicts; else returns the protocol and metadata at the head."""
    if proposal.protocol is None or proposal.metadata is None:
        raise ValueError(
            f"a proposal for {proposal.table.full_name} must carry the protocol and metadata it was made from"
        )
    head, since = locked.head, proposal.read_version
    if proposal.table.properties.get(RESOLUTIONS) != locked.row.properties.get(RESOLUTIONS):
        raise ExternalWriterError(
            f"table {proposal.table.full_name}: its versions changed since this transaction began, because a commit of "
            "another writer was taken in (`dl mirror resolve`). Nothing was committed. Open the table again and repeat "
            "the statement.",
            table=proposal.table.full_name,
            version=since,
        )
    if head.current_version == since:
        return proposal.protocol, proposal.metadata
    if proposal.exactly:
        raise VersionTakenError(
            f"table {proposal.table.full_name}: version {since + 1} exists already, the head is "
            f"{head.current_version}; nothing was committed",
            table=proposal.table.full_name,
            version=since + 1,
        )
    needs = conflicts.needs(proposal.commits, proposal.also_read)
    moved = head.metadata_version > since or head.protocol_version > since
    if moved or needs.any:
        if since < head.base_version:
            raise CommitFailedError(
                f"table {proposal.table.full_name}: this transaction read version {since}, and `dl gc` has removed the "
                f"commits up to {head.base_version} since, so it cannot be checked against them; nothing was "
                "committed: run it again"
            )
        winners = read_winners(conn, head.table_id, since + 1, head.current_version, needs)
        conflicts.check(
            proposal.table.full_name,
            proposal.commits,
            proposal.also_read,
            winners,
            schema=parse_schema(proposal.metadata.schema_string),
            metadata=proposal.metadata,
            protocol=proposal.protocol,
        )
    return _at_head(conn, locked) if moved else (proposal.protocol, proposal.metadata)


def _check_kept_files(locked: LockedTable, proposal: TableProposal) -> None:
    """Checks that a commit which changes how rows are stored replaces all files; the locked head has their number."""
    if not any(isinstance(action, Metadata) for commit in proposal.commits for action in commit.actions):
        return
    protocol, metadata, num_files = proposal.protocol, proposal.metadata, locked.head.num_files
    for number, commit in enumerate(proposal.commits):
        new_protocol = next((a for a in commit.actions if isinstance(a, Protocol)), protocol)
        new_metadata = next((a for a in commit.actions if isinstance(a, Metadata)), metadata)
        removed = len(commit.removed)
        if new_metadata is not metadata and new_metadata is not None and metadata is not None and new_protocol:
            where = f"table {proposal.table.full_name}, version {locked.head.current_version + 1 + number}"
            check_rewritten(new_metadata, metadata, new_protocol, protocol, num_files - removed, where)
        num_files += sum(isinstance(a, AddFile) for a in commit.actions) - removed
        protocol, metadata = new_protocol, new_metadata


def _at_head(conn: Connection, locked: LockedTable) -> tuple[Protocol, Metadata]:
    ids = {"table_id": locked.head.table_id, "version": locked.head.current_version}
    ((protocol,), (metadata,)) = conn.gather([("select_protocol", ids), ("select_metadata", ids)])
    return protocol_from_row(protocol), metadata_from_row(metadata)


def _write(
    conn: Connection, locks: Locks, proposal: Proposal, in_force: Mapping[int, tuple[Protocol, Metadata]]
) -> tuple[Outcome, Mapping[int, LockedTable]]:
    """Writes the proposal; returns the outcome and the state of the written tables."""
    assert locks.committed_at_ms is not None
    if proposal.depends_on_names:
        rows = registry_write.write_registry(conn, proposal, locks)
    else:
        rows = [locks.tables[table.table.table_id].row for table in proposal.tables]
    ratifier = Ratifier(conn, proposal, rows, locks)
    conn.defer()
    commits: list[RatifiedCommit] = []
    for number, table in enumerate(proposal.tables):
        commits += ratifier.ratify(number, in_force.get(table.table.table_id))
    rows_by_name = {table.table.full_name: row for table, row in zip(proposal.tables, rows, strict=True)}
    outcome = Outcome(proposal.txn_id, locks.committed_at_ms, tuple(commits), rows_by_name, joined_ms=locks.joined_ms)
    return outcome, ratifier.left


def _repeated(conn: Connection, proposal: Proposal) -> Outcome:
    """Returns what the first transaction with this client token committed."""
    token_row = conn.one("select_token", client_token=proposal.client_token)
    if token_row is None:
        raise StoreError(f"the transaction {proposal.txn_id} met its own token, which then was gone")
    if proposal.joined and token_row["txn_id"] != proposal.txn_id:
        raise _joined_repeat(proposal)
    versions = conn.all("select_transaction_versions", txn_id=token_row["txn_id"])
    rows = {table_id: registry.table_by_id(conn, table_id) for table_id in {row["table_id"] for row in versions}}
    by_uuid = {row.table_uuid: row for row in rows.values() if row is not None}
    rows_by_name = {t.table.full_name: by_uuid.get(t.table.table_uuid, t.table) for t in proposal.tables}
    by_id = {row.table_id: row for row in by_uuid.values()} | {row.table_id: row for row in rows_by_name.values()}
    commits = tuple(
        RatifiedCommit(by_id[row["table_id"]], row["version"], row["committed_at_ms"])
        for row in versions
        if row["table_id"] in by_id
    )
    return Outcome(token_row["txn_id"], token_row["committed_at_ms"], commits, rows_by_name, repeated=True)


def _joined_repeat(proposal: Proposal) -> CommitFailedError:
    return CommitFailedError(
        f"one of the transactions that transaction {proposal.txn_id} was to be committed with had been committed "
        "before, with the same token; nothing was committed: run each of them by itself"
    )


def _unknown(proposal: Proposal, error: Exception) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the database went away while transaction {proposal.txn_id} was being committed, and did not come back: "
        f'it may or may not be committed. Once the database answers, `dl sql "select * from dl_transactions where '
        f"txn_id = '{proposal.txn_id}'\"` tells; committing the same transaction object again is safe ({error})"
    )
