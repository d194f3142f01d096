"""Owns the seam between DeltaTable and where a table's log is kept: a catalog's SQL, a transaction, plain files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from deltalakedb.log.actions import AppTransaction, Metadata
from deltalakedb.log.commit import Commit
from deltalakedb.log.txnlog import LogSnapshot, TxnLogReader
from deltalakedb.operations.target import Verb
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.log.atoms import Predicate
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.store.reader import HistoryEntry
    from deltalakedb.store.snapshot import FileTotals


class TableSnapshot(LogSnapshot, Interface):
    """A table at one version, as DeltaTable asks for it."""

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """How far one application has come."""
        ...

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The live files in FILES_SCHEMA; only some columns when `columns` names them."""
        ...

    def metadata_history(self) -> Sequence[Metadata] | None:
        """The metadata of every version up to this one; None where the first of them are gone, or too many."""
        ...

    def totals(self) -> FileTotals: ...


class Backing(Interface):
    """Where a table's log is kept, and how a statement gets into it."""

    @property
    def name(self) -> str:
        """What messages call the table."""
        ...

    @property
    def location(self) -> str:
        """The canonical location of the table's files."""
        ...

    @property
    def mode(self) -> str:
        """`managed`, `follower` or `detached` in a catalog; `files` where `_delta_log` alone decides."""
        ...

    @property
    def reader(self) -> TxnLogReader:
        """The log itself, for who follows it commit by commit."""
        ...

    def storage_options(self) -> dict[str, str]:
        """The options in force for the table's files."""
        ...

    def newest(self) -> TableSnapshot:
        """The newest version; what the table is called may have changed with it."""
        ...

    def snapshot(self, version: int) -> TableSnapshot: ...

    def version_at(self, at_ms: int) -> int:
        """The newest version committed at or before an instant."""
        ...

    def vacuumed_version(self) -> int:
        """Versions below this one may have lost files to a vacuum; 0 when none has, or nobody knows."""
        ...

    def history(
        self, limit: int | None, *, snapshot: TableSnapshot, since_ms: int | None, until_ms: int | None
    ) -> Iterator[HistoryEntry] | list[HistoryEntry]:
        """Commits up to a version, newest first."""
        ...

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        """The commits from one version through another, in order; an error where one of them is not kept."""
        ...

    def plan(
        self, snapshot: TableSnapshot, predicate: Predicate, columns: Sequence[str] | None, *, explain: bool
    ) -> PlannedFiles:
        """The files of a snapshot that may hold a row for which the predicate is true."""
        ...

    def run(self, verb: Verb, properties: CommitProperties, hooks: PostCommitHookProperties) -> dict[str, Any]:
        """Let a verb make one commit on the newest version; what it says it did."""
        ...

    def close(self) -> None: ...
