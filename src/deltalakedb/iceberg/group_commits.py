"""Group commits: requests that change the same Iceberg tables are decided one by one and committed in one transaction.

Each request is applied to what the ones before it have made of the tables, with its requirements checked there. Each
makes versions, metadata files and a transaction of its own, with its own client token. One that fails leaves nothing
behind; the others are committed without it. If the commit as a whole fails, each request is run again by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError, OutcomeUnknownError, VersionTakenError
from deltalakedb.iceberg import statements
from deltalakedb.iceberg.statements import Step, TableChange, metadata_file
from deltalakedb.iceberg.turns import ATTEMPTS, LOST_RACES, Waiter
from deltalakedb.rights import Right, acting_with, current_access
from deltalakedb.runtime.caller import acting_for, current_caller
from deltalakedb.store.iceberg import committed_version
from deltalakedb.store.proposals import JoinedTransaction, Outcome
from deltalakedb.store.registry import ICEBERG
from deltalakedb.transactions.transaction import CatalogTransaction

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.drafts import Drafts, IcebergFiles


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table as a request has left it."""

    draft: TableDraft
    version: int
    metadata_location: str
    metadata: Mapping[str, Any]
    old_files: tuple[str, ...]


class ChangeRequest(Waiter):
    """A request that changes tables, and what became of it; without tables and error it must be run by itself."""

    def __init__(self, changes: Sequence[TableChange], token: str | None) -> None:
        super().__init__(change.name.key for change in changes)
        self.changes = changes
        self.access = current_access()
        """What the client may do that sent it; another client's thread may decide it."""
        self.txn_id = str(uuid.uuid4())
        self.token = token or f"iceberg:{self.txn_id}"
        """The client token, with which the request is committed once, however often it is tried."""
        self.tables: list[ChangedTable] | None = None
        self.error: Exception | None = None
        self.makes_versions = False
        self.caller = current_caller()
        """Whose request it is: the thread that decides it may answer another caller."""

    def reset(self) -> None:
        """Forget what an attempt has found, because it was not committed."""
        self.tables, self.error, self.makes_versions = None, None, False


def commit_together(catalog: Catalog, files: IcebergFiles, requests: Sequence[ChangeRequest]) -> None:
    """Decide requests that change no other tables than the first of them; each is told its own outcome."""
    for attempt in range(1, ATTEMPTS + 1):
        for request in requests:
            request.reset()
        try:
            _attempt(catalog, files, requests)
            return
        except DeltaError as error:
            is_lost_race = isinstance(error, VersionTakenError)
            if is_lost_race and attempt < ATTEMPTS:
                LOST_RACES.sleep(attempt)
                continue
            is_final = is_lost_race or isinstance(error, OutcomeUnknownError) or len(requests) == 1
            for request in requests:
                request.reset()
                request.error = error if is_final else None
            return
        except BaseException:
            for request in requests:  # the others must not take it for committed
                request.reset()
            raise


def _attempt(catalog: Catalog, files: IcebergFiles, requests: Sequence[ChangeRequest]) -> None:
    names = [str(change.name) for change in requests[0].changes]
    with ExitStack() as acting, CatalogTransaction(catalog, tables=names) as tx:
        tx.use_iceberg_files(files)
        tx.run_statement(partial(_apply_all, requests))
        makers = [request for request in requests if request.makes_versions]
        if makers:
            tx.token = makers[0].token
            tx.joined = tuple(_joined(catalog, request) for request in makers[1:])
            acting.enter_context(acting_for(makers[0].caller))  # the transaction ends, and is committed, before this
    if tx.outcome is None:
        return
    if tx.outcome.repeated:
        if tx.outcome.txn_id != tx.txn_id:  # all were decided on changes that another transaction has made before
            for request in requests:
                request.reset()  # run by itself it finds its commit by the token
        return
    for draft in {id(table.draft): table.draft for request in makers for table in request.tables or ()}.values():
        keep_version(files, draft, tx.outcome)


def _joined(catalog: Catalog, request: ChangeRequest) -> JoinedTransaction:
    with acting_for(request.caller):
        return JoinedTransaction(request.txn_id, request.token, catalog.actor, request.caller)


def keep_version(files: IcebergFiles, draft: TableDraft, outcome: Outcome) -> None:
    """Remember the version that a transaction has made of a table, so that the next one need not read it."""
    commits = [commit for commit in outcome.commits if commit.table.table_uuid == draft.row.table_uuid]
    if files.cache is not None and draft.iceberg_metadata is not None and draft.row.mode == ICEBERG and commits:
        version = committed_version(commits[-1].version, draft.iceberg[-1], draft.iceberg_metadata)
        files.cache.keep(draft.row.table_uuid, commits[-1].timestamp_ms, version)


def _apply_all(requests: Sequence[ChangeRequest], drafts: Drafts, written: WrittenFiles) -> None:
    has_maker = False
    for request in requests:
        if any(drafts.mode_of(change.name) != ICEBERG for change in request.changes):
            continue
        try:
            with acting_with(request.access), written.of_statement():
                _apply(request, drafts, written, joins=has_maker)
        except _GoesAloneError:
            continue
        except Exception as error:  # the request's own; the others go on
            request.error = error
        has_maker = has_maker or request.makes_versions


class _GoesAloneError(Exception):
    """The request changes more of a table than its metadata, so that its commit can fail for a reason of its own."""


def _apply(request: ChangeRequest, drafts: Drafts, written: WrittenFiles, *, joins: bool) -> None:
    """Apply a request to the drafts, or raise and leave them as they were."""
    found = [draft for change in request.changes if (draft := drafts.find(change.name)) is not None]
    access = request.access.now()
    for draft in found:
        access.require(Right.WRITE, draft.pinned)
    before = [(draft, draft.save(), len(draft.iceberg), draft.row) for draft in found]
    try:
        steps = [statements.change_table(drafts, written, change) for change in request.changes]
        if any(draft.row != row for draft, _, _, row in before):
            raise _GoesAloneError
    except BaseException:
        for _, restore, _, _ in before:
            restore()
        raise
    for draft, _, count, _ in before:
        request.makes_versions = request.makes_versions or len(draft.iceberg) > count
        if joins:
            draft.iceberg[count:] = [replace(commit, txn_id=request.txn_id) for commit in draft.iceberg[count:]]
    request.tables = [_changed(step) for step in steps]


def _changed(step: Step) -> ChangedTable:
    draft = step.draft
    assert draft.head is not None, "the table exists"
    version = draft.head.current_version + len(draft.iceberg)
    return ChangedTable(draft, version, metadata_file(draft), step.metadata, step.old_files)
