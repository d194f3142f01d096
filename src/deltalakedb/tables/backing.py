"""Backing: the interface between DeltaTable and the place of its log: a catalog's SQL, a transaction or plain files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.txnlog import LogSnapshot, TxnLogReader
from deltalakedb.operations.target import TableSnapshot as SnapshotOfVerb
from deltalakedb.operations.target import Verb
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.store.reader import HistoryEntry
    from deltalakedb.store.snapshot import FileTotals


class TableSnapshot(LogSnapshot, SnapshotOfVerb, Interface):
    """A table at one version, with what DeltaTable needs."""

    def totals(self) -> FileTotals: ...

    def plan(
        self, predicate: Predicate, columns: Sequence[str] | None = None, *, explain: bool = False
    ) -> PlannedFiles:
        """Return the files that may hold a row for which the predicate is true."""
        ...


class Backing(Interface):
    """Where a table's log is kept, and how a statement commits to it."""

    @property
    def name(self) -> str:
        """The table's name in messages."""
        ...

    @property
    def location(self) -> str:
        """The canonical location of the table's files."""
        ...

    @property
    def mode(self) -> str:
        """`managed`, `follower` or `detached` in a catalog; `files` if `_delta_log` alone decides."""
        ...

    @property
    def reader(self) -> TxnLogReader:
        """The log itself, for callers that read it commit by commit."""
        ...

    def storage_options(self) -> dict[str, str]:
        """Return the storage options in force for the table's files."""
        ...

    def newest(self) -> TableSnapshot:
        """Return the newest version; the table's name may have changed too."""
        ...

    def snapshot(self, version: int) -> TableSnapshot: ...

    def version_at(self, at_ms: int) -> int:
        """Return the newest version committed at or before an instant."""
        ...

    def vacuumed_version(self) -> int:
        """Return the vacuum watermark: versions below it may have lost files; 0 if none has, or it is unknown."""
        ...

    def history(
        self, limit: int | None, *, snapshot: TableSnapshot, since_ms: int | None, until_ms: int | None
    ) -> Iterator[HistoryEntry] | list[HistoryEntry]:
        """Return the commits up to a version, newest first."""
        ...

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        """Yield the commits from `start` through `end`, in order; raise if one of them is not kept."""
        ...

    def run(
        self,
        verb: Verb,
        properties: CommitProperties,
        hooks: PostCommitHookProperties,
        *,
        at: TableSnapshot | None = None,
    ) -> dict[str, Any]:
        """Run a verb on a version, by default the newest, and commit; return the verb's metrics.

        Commits made since that version count as concurrent: the commit follows them, or fails if they conflict.
        """
        ...

    def close(self) -> None: ...
