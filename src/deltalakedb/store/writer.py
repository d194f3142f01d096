"""SqlTxnLogWriter: one SQL transaction decides over a proposal, whole or not at all.

Heads are locked in the order of their table ids. Whatever moved since the proposal was made is held against it by
`conflicts.check`; what does not clash is rebased onto the heads as they are. A lost connection is answered by repeating
the commit under its client token, which tells the true outcome.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping

from deltalakedb.exceptions import (
    CommitFailedError,
    ExternalWriterError,
    OutcomeUnknownError,
    StoreError,
    TableLockedError,
    VersionTakenError,
)
from deltalakedb.log import conflicts
from deltalakedb.log.actions import AddFile, Metadata, Protocol
from deltalakedb.log.checks import check_commit
from deltalakedb.log.table_checks import check_rewritten
from deltalakedb.log.types import parse_schema
from deltalakedb.steps import reached
from deltalakedb.store import registry, registry_write
from deltalakedb.store.action_values import to_metadata, to_protocol
from deltalakedb.store.appends import Appends
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

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 2.0


class SqlTxnLogWriter:
    """Ratifies proposals in one store."""

    def __init__(self, store: Store, *, retries: int = 10, lock_wait_seconds: float = 60.0) -> None:
        self._store = store
        self._retries = retries
        self._lock_wait_seconds = lock_wait_seconds
        self._catalog_id: str | None = None
        self._appends = Appends(store)

    def commit(self, proposal: Proposal) -> Outcome:
        """All of the proposal, in SQL, exactly once; or an error, and nothing. After this returns it is never lost."""
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
                attempt -= 1  # waiting for a claim is bounded by time, not by tries
            except StoreError:
                if lost is None:
                    raise  # a database that cannot be reached after a lost connection may still come back
            attempt += 1
            if attempt > self._retries and lost is not None:
                raise _unknown(proposal, lost) from lost
            _pause(max(attempt, 1))

    def _attempt(self, proposal: Proposal, *, is_first: bool) -> Outcome:
        if is_first and self._catalog_id is not None:
            appended = self._appends.commit(proposal, self._catalog_id)
            if appended is not None:
                reached("commit.committed")
                return appended
        with self._store.write(holds_clock=True) as conn:
            reached("commit.begun")
            locks = lock_tables(conn, proposal, self._catalog_id)
            self._catalog_id = locks.catalog_id
            if locks.committed_at_ms is None:
                return _repeated(conn, proposal)
            reached("commit.locked")
            _check_claims(locks, proposal)
            in_force = {
                table.table.table_id: _check_conflicts(conn, locks.tables[table.table.table_id], table)
                for table in proposal.tables
                if not table.is_new
            }
            for table in proposal.tables:
                if not table.is_new:
                    _check_kept_files(locks.tables[table.table.table_id], table)
                    check_vacuumed(conn, locks.tables[table.table.table_id].head, table)
                if table.drop and locks.tables[table.table.table_id].row.mode == "managed":
                    check_can_drop(table.table.full_name, in_force[table.table.table_id][1])
            reached("commit.checked")
            outcome, left = _write(conn, locks, proposal, in_force)
            reached("commit.written")
        reached("commit.committed")
        self._appends.learn(left)
        return outcome


class _ClaimedError(Exception):
    """Another transaction's intent lock is in the way; worth waiting for."""

    def __init__(self, table: TableRow, holder: str, until_ms: int) -> None:
        self._table, self._holder, self._until_ms = table, holder, until_ms
        super().__init__(table.full_name)

    def final(self) -> TableLockedError:
        return TableLockedError(
            f"table {self._table.full_name} is locked by transaction {self._holder}, which rewrites it, until "
            f"{self._until_ms} ms; nothing was committed: try again later, or raise concurrency.lock_timeout"
        )


def _check_actions(proposal: TableProposal) -> None:
    """What can be known to be wrong before any lock is taken."""
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
            # We have no such statement: it comes from an engine that brings its own commitInfo, as Spark does.
            drops_feature=commit.commit_info is not None and commit.operation == "DROP FEATURE",
            restores=commit.operation == "RESTORE",
            clones=commit.may_be_elsewhere or (commit.commit_info is not None and commit.operation == "CLONE"),
        )
        protocol = next((a for a in commit.actions if isinstance(a, Protocol)), protocol)
        metadata = next((a for a in commit.actions if isinstance(a, Metadata)), metadata)


def _check_claims(locks: Locks, proposal: Proposal) -> None:
    """Whoever rewrites a table for hours may claim it; others who would spoil that work wait. Appends do not."""
    assert locks.committed_at_ms is not None
    for table in proposal.tables:
        locked = locks.tables.get(table.table.table_id)
        if locked is None or table.is_append_only or locked.intent_holder in (None, proposal.txn_id):
            continue
        until_ms = locked.intent_until_ms or 0
        if until_ms > locks.committed_at_ms:
            raise _ClaimedError(locked.row, str(locked.intent_holder), until_ms)


def _check_conflicts(conn: Connection, locked: LockedTable, proposal: TableProposal) -> tuple[Protocol, Metadata]:
    """Raise if a commit since `read_version` clashes; else the protocol and metadata in force at the head."""
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
    """A commit that changes how rows lie in files replaces them all; only the lock tells how many there are."""
    protocol, metadata, kept = proposal.protocol, proposal.metadata, locked.head.num_files
    for number, commit in enumerate(proposal.commits):
        new_protocol = next((a for a in commit.actions if isinstance(a, Protocol)), protocol)
        new_metadata = next((a for a in commit.actions if isinstance(a, Metadata)), metadata)
        removed = len(commit.removed)
        if new_metadata is not metadata and new_metadata is not None and metadata is not None and new_protocol:
            where = f"table {proposal.table.full_name}, version {locked.head.current_version + 1 + number}"
            check_rewritten(new_metadata, metadata, new_protocol, protocol, kept - removed, where)
        kept += sum(isinstance(a, AddFile) for a in commit.actions) - removed
        protocol, metadata = new_protocol, new_metadata


def _at_head(conn: Connection, locked: LockedTable) -> tuple[Protocol, Metadata]:
    ids = {"table_id": locked.head.table_id, "version": locked.head.current_version}
    ((protocol,), (metadata,)) = conn.gather([("select_protocol", ids), ("select_metadata", ids)])
    return to_protocol(protocol), to_metadata(metadata)


def _write(
    conn: Connection, locks: Locks, proposal: Proposal, in_force: Mapping[int, tuple[Protocol, Metadata]]
) -> tuple[Outcome, Mapping[int, LockedTable]]:
    """What was committed, and what it left behind."""
    assert locks.committed_at_ms is not None
    rows = registry_write.write_registry(conn, proposal, locks)
    ratifier = Ratifier(conn, proposal, rows, locks)
    conn.defer()
    commits: list[RatifiedCommit] = []
    for number, table in enumerate(proposal.tables):
        commits += ratifier.ratify(number, in_force.get(table.table.table_id))
    named = {table.table.full_name: row for table, row in zip(proposal.tables, rows, strict=True)}
    return Outcome(proposal.txn_id, locks.committed_at_ms, tuple(commits), named), ratifier.left


def _repeated(conn: Connection, proposal: Proposal) -> Outcome:
    """The token was here before: what that transaction committed is the answer."""
    found = conn.one("select_token", client_token=proposal.client_token)
    if found is None:
        raise StoreError(f"the transaction {proposal.txn_id} met its own token, which then was gone")
    versions = conn.all("select_transaction_versions", txn_id=found["txn_id"])
    rows = {table_id: registry.table_by_id(conn, table_id) for table_id in {row["table_id"] for row in versions}}
    by_uuid = {row.table_uuid: row for row in rows.values() if row is not None}
    named = {t.table.full_name: by_uuid.get(t.table.table_uuid, t.table) for t in proposal.tables}
    by_id = {row.table_id: row for row in by_uuid.values()} | {row.table_id: row for row in named.values()}
    commits = tuple(
        RatifiedCommit(by_id[row["table_id"]], row["version"], row["committed_at_ms"])
        for row in versions
        if row["table_id"] in by_id
    )
    return Outcome(found["txn_id"], found["committed_at_ms"], commits, named, repeated=True)


def _unknown(proposal: Proposal, error: Exception) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the database went away while transaction {proposal.txn_id} was being committed, and did not come back: "
        f'it may or may not be committed. Once the database answers, `dl sql "select * from dl_transactions where '
        f"txn_id = '{proposal.txn_id}'\"` tells; committing the same transaction object again is safe ({error})"
    )


def _pause(attempt: int, sleep: Callable[[float], None] = time.sleep) -> None:
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10))
    sleep(random.uniform(longest / 4, longest))
