"""StagedCommits: finished commits and application versions that other engines add to a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from deltalakedb.exceptions import TableExistsError, TableNotFoundError, VersionTakenError, redact
from deltalakedb.log.protocol.actions import AddFile, AppTransaction
from deltalakedb.log.protocol.proposal import ProposedCommit, ReadSet
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.transactions.block import TransactionBlock
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts


class StagedCommits(TransactionBlock):
    """A transaction that accepts commits made by another engine."""

    # -- application versions

    def app_version(self, table: str, app_id: str) -> int | None:
        """Return an application's version from its last `txn` action in a table; None if there is none, or no table.

        This counts as a read: if another transaction records a version of this application first, the commit fails.
        """
        with self._statement():
            draft = self._drafts.find(parse_table_name(table))
            if draft is None:
                return None
            draft.note_read(ReadSet(app_ids=frozenset({app_id})))
            action = draft.app_transactions.get(app_id) or draft.snapshot().app_transaction(app_id)
            return None if action is None else action.version

    def set_app_version(self, table: str, app_id: str, version: int) -> None:
        """Record an application's version in a table, with this transaction's last commit to it."""
        with self._statement():
            draft = self._drafts.get_writable(table)
            draft.app_transactions[app_id] = AppTransaction(app_id, version, time.time_ns() // 1_000_000)

    # -- commits made by another engine

    def draft_at(self, location: str) -> TableDraft | None:
        """Return the table at a location, with what this transaction has staged for it so far."""
        with self._statement():
            return self._drafts.find_at(location)

    def find_draft(self, name: TableName) -> TableDraft | None:
        """Return the table of this name, as the transaction sees it."""
        with self._statement():
            return self._drafts.find(name)

    def stage(
        self,
        commit: ProposedCommit,
        *,
        location: str,
        version: int,
        name: TableName | None = None,
        new: Callable[[Drafts], TableDraft] | None = None,
        written: Sequence[AddFile] = (),
    ) -> None:
        """Add a finished commit as `version` of the table at `location`, as the transaction sees it.

        If the commit creates the table, `name` is its name and `new` makes its draft. `written` are the files written
        for the commit: they are deleted if the transaction does not commit.
        """
        from deltalakedb.storage.opening import open_storage

        with self._statement():
            draft = self._drafts.find_at(location)
            is_new = draft is None
            if draft is None:
                draft = self._new_draft(name, location, new)
            self._drafts.make_writable(draft)
            expected = (-1 if draft.base is None else draft.base.version) + len(draft.commits) + 1
            if version != expected:
                raise VersionTakenError(
                    f"table {draft.row.full_name}: transaction {self.txn_id} is at version {expected - 1} of it, so "
                    f"version {version} cannot come next",
                    table=draft.row.full_name,
                    version=version,
                )
            if is_new:
                self._drafts.add(draft)
            draft.propose(commit)
            if written:
                files = self._written.for_table(draft.row.table_uuid)
                files.remember(open_storage(location, draft.options), written)

    def _new_draft(
        self, name: TableName | None, location: str, new: Callable[[Drafts], TableDraft] | None
    ) -> TableDraft:
        if name is None:
            raise TableNotFoundError(f"there is no table at {redact(location)}, and no name for a new one")
        other = self._drafts.find(name)
        if other is not None:
            raise TableExistsError(
                f"the table {other.row.full_name} exists already, at {redact(other.row.location)}; drop or rename it, "
                "or choose another name"
            )
        draft = self._drafts.new_at(name, location) if new is None else new(self._drafts)
        self._drafts.reserved.append(draft.row.table_uuid)
        return draft
