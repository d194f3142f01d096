"""TransactionTable: a DeltaTable in a transaction, at its cut and with its own writes; it records what is read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError, VersionNotFoundError
from deltalakedb.log.protocol.proposal import ReadSet
from deltalakedb.operations.target import Verb
from deltalakedb.table import DeltaTable
from deltalakedb.tables.sql_backing import SqlBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.tables.backing import TableSnapshot
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.transaction import CatalogTransaction


class TransactionTable(DeltaTable):
    """A table as a transaction sees it. `update_incremental` shows what the transaction has written since."""

    _transaction: CatalogTransaction
    _draft: TableDraft

    @classmethod
    def bind(cls, transaction: CatalogTransaction, draft: TableDraft) -> TransactionTable:
        table = cls.__new__(cls)
        table._transaction, table._draft = transaction, draft
        table._backing = SqlBacking(transaction.catalog, draft.pinned)
        table.update_incremental()
        return table

    def update_incremental(self) -> None:
        """Move to the transaction's own newest state; commits of others stay invisible."""
        if self._draft.dropped:
            raise DeltaError(f"{self._draft.row.full_name} was dropped by this transaction")
        assert isinstance(self._backing, SqlBacking)
        self._backing.use(self._draft.row)
        self._backing.given_options = self._draft.options
        self._snapshot = self._draft.snapshot()

    def _snapshot_at(self, version: int | str | datetime) -> TableSnapshot:
        """Return an older version, or the newest one when the transaction began; later versions are not visible."""
        if isinstance(version, int):
            self._check_seen(version)
        snapshot = super()._snapshot_at(version)
        return snapshot if snapshot.version <= self._newest_version else self._newest()

    @property
    def _newest_version(self) -> int:
        return -1 if self._draft.base is None else self._draft.base.version

    def _check_seen(self, version: int) -> None:
        if version > self._newest_version:
            raise VersionNotFoundError(
                f"table {self.name}: this transaction sees versions up to {self._newest_version}, and its own changes "
                "as the newest state; `update_incremental` moves there"
            )

    def _newest(self) -> TableSnapshot:
        """Return the newest version committed before the transaction began."""
        if self._draft.base is None:
            raise VersionNotFoundError(f"table {self.name}: this transaction makes it, so nothing is committed yet")
        return self._draft.base

    def _run(
        self,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,  # noqa: ARG002  the mirror does both
        *,
        moves: bool = True,  # noqa: ARG002  it always shows what the transaction wrote
        replaces_all: bool = False,  # noqa: ARG002  it sees the transaction's cut
    ) -> dict[str, Any]:
        """Run a verb as one statement of the transaction."""
        metrics = self._transaction.run(self.name, verb, commit_properties)
        self.update_incremental()
        return metrics

    def _refuse_in_transaction(self, what: str) -> None:
        raise DeltaError(f"{self.name}: {what} is no part of a transaction: it works on files; call it outside")

    def close(self) -> None:
        """Do nothing: the catalog belongs to the transaction."""

    def _note(self, read: ReadSet, *, version: int | None = None) -> None:
        """Record a read whose result a later commit could change; older versions never change."""
        if version is not None:
            self._check_seen(version)
        if (self._snapshot.version if version is None else version) >= self._newest_version:
            self._draft.note_read(read)
