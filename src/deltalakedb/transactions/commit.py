"""Commits a transaction: its drafts go to the writer as one proposal, and the ratified commits to the mirror."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb import telemetry
from deltalakedb.exceptions import CommitFailedError, GoneError, redact
from deltalakedb.rights import Access, Right, current_access
from deltalakedb.runtime.caller import current_caller
from deltalakedb.runtime.steps import reached
from deltalakedb.store.names import TableName
from deltalakedb.store.proposals import JoinedTransaction, NameKey, Outcome, Proposal
from deltalakedb.transactions.draft import TableDraft

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.operations.target import WrittenFiles

logger = logging.getLogger(__name__)


def commit_drafts(
    catalog: Catalog,
    drafts: Iterable[TableDraft],
    *,
    txn_id: str,
    token: str,
    message: str | None,
    absent: frozenset[NameKey] = frozenset(),
    listed: frozenset[NameKey] | None = None,
    joined: Sequence[JoinedTransaction] = (),
) -> Outcome | None:
    """Commit all changes in one SQL transaction, then mirror them; return None if there is nothing to commit.

    `absent` and `listed` are the names that the transaction looked up, `joined` the transactions that are committed
    with it (`store/proposals.py`).
    A transaction that only read needs no check: everything it saw is one cut, consistent when it began.
    """
    used_drafts = list(drafts)
    changed = [draft for draft in used_drafts if draft.is_changed]
    if not changed:
        return None
    read_only = [draft for draft in used_drafts if not draft.is_changed and draft.is_read]
    access = current_access().now()
    if not access.is_trusted:
        _require_rights(access, changed, read_only)
    # Drops come first and creations last, so that names and locations are free before they are reused.
    ordered = sorted(changed, key=lambda draft: 2 if draft.is_new else 0 if draft.dropped else 1)
    for draft in ordered:
        if draft.proposed() and not draft.is_new:
            catalog.use_options(draft.pinned, draft.options)
            catalog.mirror.probe(draft.pinned, draft.head)
    proposal = Proposal(
        tables=tuple(draft.to_proposal() for draft in [*read_only, *ordered]),
        txn_id=txn_id,
        client_token=token,
        actor=catalog.actor,
        origin=catalog.origin,
        message=message,
        caller=current_caller(),
        absent=absent,
        listed=listed,
        joined=tuple(joined),
        owner=access.owner,
    )
    outcome = _ratify(catalog, proposal)
    if outcome.repeated and outcome.txn_id != txn_id and txn_id == token:
        raise GoneError(f"transaction {txn_id} was given up by its endpoint; nothing was committed: run it again")
    for draft in ordered:
        catalog.use_options(draft.row, draft.options)
        if draft.dropped or draft.row.full_name != draft.pinned.full_name:
            telemetry.forget_table(draft.pinned.full_name)
    delta_commits = tuple(commit for commit in outcome.commits if commit.table.is_delta)
    catalog.mirror.after_commit(replace(outcome, commits=delta_commits))
    for draft in ordered:
        if draft.dropped:
            _finish_drop(catalog, draft)
    return outcome


def _require_rights(access: Access, changed: Sequence[TableDraft], read_only: Sequence[TableDraft]) -> None:
    """Raise NotPermittedError unless the caller may, now, do all that a transaction does."""
    for draft in changed:
        if draft.is_new:
            access.require_create(TableName(draft.row.namespace, draft.row.name))
            continue
        is_renamed = draft.row.full_name != draft.pinned.full_name
        access.require(Right.MANAGE if draft.dropped or draft.undropped or is_renamed else Right.WRITE, draft.pinned)
        if draft.undropped or is_renamed:
            access.require_create(TableName(draft.row.namespace, draft.row.name))
    for draft in read_only:
        access.require(Right.READ, draft.pinned)


def _ratify(catalog: Catalog, proposal: Proposal) -> Outcome:
    started = time.perf_counter()
    try:
        with telemetry.span("deltalakedb.commit", txn_id=proposal.txn_id, tables=len(proposal.tables)):
            outcome = catalog.writer.commit(proposal)
    except CommitFailedError as error:
        telemetry.conflict(type(error).__name__)
        raise
    if outcome.repeated and outcome.txn_id != proposal.txn_id:
        return outcome  # another transaction used the token, and reported its own outcome
    operations = {
        (table.table.table_uuid, number): commit
        for table in proposal.tables
        for number, commit in enumerate(table.commits)
    }
    iceberg_commits = {
        (table.table.table_uuid, number): commit
        for table in proposal.tables
        for number, commit in enumerate(table.iceberg)
    }
    commit_counts: dict[str, int] = {}
    versions: dict[str, list[telemetry.CommittedVersion]] = {outcome.txn_id: []}
    for commit in outcome.commits:
        number = commit_counts.get(commit.table.table_uuid, 0)
        commit_counts[commit.table.table_uuid] = number + 1
        key = (commit.table.table_uuid, number)
        proposed, iceberg = operations.get(key), iceberg_commits.get(key)
        versions.setdefault((iceberg and iceberg.txn_id) or outcome.txn_id, []).append(
            telemetry.CommittedVersion(
                table=commit.table.full_name,
                version=commit.version,
                operation=proposed.operation if proposed else iceberg.operation if iceberg else "",
                num_actions=len(proposed.actions) if proposed else 0,
                num_files=commit.num_files,
                table_id=commit.table.table_id,
                actions=proposed.actions if proposed else (),
            )
        )
    milliseconds = (time.perf_counter() - started) * 1000
    actors = {joined.txn_id: joined.actor for joined in proposal.joined}
    for txn_id, versions_of_one in versions.items():
        telemetry.observe_commit(
            txn_id=txn_id,
            milliseconds=milliseconds,
            versions=versions_of_one,
            committed_at_ms=outcome.joined_ms.get(txn_id, outcome.committed_at_ms),
            actor=actors.get(txn_id, proposal.actor),
            message=proposal.message,
            repeated=outcome.repeated,
        )
    return outcome


def _finish_drop(catalog: Catalog, draft: TableDraft) -> None:
    """Delete a dropped table's files, or hand them over to their user. Never raises: the drop is already committed."""
    try:
        if draft.purge:
            _purge(catalog, draft)
        elif draft.is_handed_over:
            catalog.mirror.hand_over(draft.pinned)
    except Exception as error:  # the commit has happened, and the caller must learn that
        logger.warning(
            "table %s was dropped, but its files could not be deleted or handed over: %s; `dl mirror once` tries again",
            draft.pinned.full_name,
            redact(str(error)),
            exc_info=True,
        )


def _purge(catalog: Catalog, draft: TableDraft) -> None:
    """Delete a dropped table's files; one that cannot be deleted now is recorded for later."""
    from deltalakedb.mirror.purge import finish_purges

    reached("drop.committed")
    catalog.mirror.flush()  # the mirror must not put files into a folder that is being deleted
    finish_purges(catalog.store, catalog.storage_options_of, table_id=draft.pinned.table_id, config=catalog.config)


def remove_files_of_dropped(drafts: Sequence[TableDraft], written: WrittenFiles) -> None:
    """Delete the files of tables that were created and dropped again, unless another of our tables uses them."""
    dropped_uuids = {draft.row.table_uuid for draft in drafts if draft.is_new and draft.dropped}
    if dropped_uuids:
        live = [draft for draft in drafts if draft.row.table_uuid not in dropped_uuids]
        written.remove(dropped_uuids, kept={file for draft in live for file in draft.named_files()})


def resolve_outcome(catalog: Catalog, txn_id: str) -> dict[str, int] | None:
    """Return the versions that a transaction committed whose process died; None if it committed nothing.

    This commits an empty transaction under the same client token. Either the token exists already, or it is claimed
    now and a process that still holds the transaction open is refused. A look-up alone would race with that commit.
    """
    own_txn_id = str(uuid.uuid4())
    outcome = catalog.writer.commit(
        Proposal((), own_txn_id, txn_id, actor=catalog.actor, origin=catalog.origin, message=f"given up: {txn_id}")
    )
    return outcome.versions if outcome.txn_id == txn_id else None
