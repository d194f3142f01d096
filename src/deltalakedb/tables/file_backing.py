"""FileBacking: a table whose log is in its own `_delta_log`, read and written without a catalog."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import TableExistsError, TableNotFoundError
from deltalakedb.files.committing import FileCommitter, check_plain_writer, without_beginning
from deltalakedb.files.reader import FileTxnLogReader, version_at
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.files.upkeep import after_commit
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.features import check_readable
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.operations.target import Done, Target, Verb, WrittenFiles
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.store.reader import HistoryEntry
from deltalakedb.tables.file_snapshot import NewTableSnapshot, PathSnapshot
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.tables.backing import TableSnapshot

_HISTORY_PAGE = 100
"""How many commits are read at once, from the newest backwards."""


class FileBacking:
    """A table at a path or URL, whose `_delta_log` decides about commits."""

    mode = "files"

    def __init__(self, location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self.given_options = dict(storage_options) if storage_options else None
        self.reader = FileTxnLogReader(location, self.given_options)
        self._newest: PathSnapshot | None = None

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> tuple[FileBacking, PathSnapshot]:
        """Open the table at its newest version."""
        backing = cls(location, storage_options)
        return backing, backing.newest()

    @property
    def name(self) -> str:
        return self.reader.table

    @property
    def location(self) -> str:
        return self.reader.location

    @cached_property
    def writer(self) -> FileTxnLogWriter:
        return FileTxnLogWriter(self.location, self.given_options, table=self.name)

    def storage_options(self) -> dict[str, str]:
        return dict(self.given_options or {})

    def exists(self) -> bool:
        """Return whether there is a table."""
        try:
            self.reader.latest_version()
        except TableNotFoundError:
            return False
        return True

    # -- reading

    def newest(self) -> PathSnapshot:
        """Return the newest version; only the commits since the last call are read."""
        previous = self._newest
        loaded = self._load_newest()
        if previous is not None and previous.loaded is loaded:
            return previous
        self._newest = self._as_readable(loaded)
        return self._newest

    def snapshot(self, version: int) -> PathSnapshot:
        return self._as_readable(self.reader.snapshot(version))

    def _load_newest(self) -> FileSnapshot:
        return self.reader.snapshot() if self._newest is None else self.reader.advance(self._newest.loaded)

    def _as_readable(self, loaded: FileSnapshot) -> PathSnapshot:
        check_readable(loaded.protocol, self.name)
        return PathSnapshot(self.reader, loaded)

    def vacuumed_version(self) -> int:
        return 0  # the log does not record it

    def version_at(self, at_ms: int) -> int:
        return version_at(self.reader, self.newest().metadata.configuration, at_ms)

    def history(
        self, limit: int | None, *, snapshot: TableSnapshot, since_ms: int | None, until_ms: int | None
    ) -> Iterator[HistoryEntry]:
        """Yield the commits up to a version, newest first, as far back as their files exist."""
        listing = self.reader.listing()
        first, page = listing.first_contiguous(snapshot.version), min(limit or _HISTORY_PAGE, _HISTORY_PAGE)
        num_entries = 0
        for end in range(snapshot.version, first - 1, -page):
            for commit in reversed(list(self.reader.commits(max(first, end - page + 1), end))):
                if num_entries == limit or (since_ms is not None and commit.timestamp_ms < since_ms):
                    return
                if until_ms is None or commit.timestamp_ms <= until_ms:
                    num_entries += 1
                    yield _history_entry(commit)

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        return self.reader.commits(start, end)

    # -- writing

    def run(
        self,
        verb: Verb,
        properties: CommitProperties,
        hooks: PostCommitHookProperties,
        *,
        at: TableSnapshot | None = None,
    ) -> dict[str, Any]:
        """Run a verb on a version of the table and commit; a lost race fails only if the commits conflict."""
        assert at is None or isinstance(at, PathSnapshot)
        newest = self.newest()
        check_plain_writer(self.reader, newest)
        is_older = at is not None and at.version < newest.version
        return self._run(verb, at if is_older and at is not None else newest, properties, hooks, is_older=is_older)

    def create(
        self,
        first: tuple[Protocol, Metadata],
        verb: Verb,
        properties: CommitProperties | None = None,
        hooks: PostCommitHookProperties | None = None,
        *,
        joins: bool = False,
    ) -> dict[str, Any]:
        """Create a table: its first commit is protocol and metadata, and what the verb does to the empty table.

        `joins`: if another writer creates the same table meanwhile, append the rows to that table.
        """
        properties, hooks = properties or CommitProperties(), hooks or PostCommitHookProperties()
        if self.exists():
            if joins:
                return self.run(verb, properties, hooks)
            raise TableExistsError(f"there is a table at {self.name} already; open it, or choose another place")
        return self._run(
            lambda target: _beginning(verb(target), first), NewTableSnapshot(*first), properties, hooks, joins=joins
        )

    def _run(
        self,
        verb: Verb,
        snapshot: PathSnapshot | NewTableSnapshot,
        properties: CommitProperties,
        hooks: PostCommitHookProperties,
        *,
        joins: bool = False,
        is_older: bool = False,
    ) -> dict[str, Any]:
        user_info = properties.checked_metadata()
        new_files = WrittenFiles()
        committer = self._committer(snapshot, properties)
        try:
            result = verb(self._target(snapshot, new_files))
            result = result.noting(properties.actions(), user_info, only_next=properties.only_next)
            if result.commit is not None:
                try:
                    committer.commit(result.commit, is_older=is_older)
                except TableExistsError:
                    if not joins:
                        raise
                    newest = self.newest()
                    append = without_beginning(result.commit, newest, self.name)
                    committer = self._committer(newest, properties)
                    committer.commit(append)
        except BaseException:
            if not committer.may_have_committed:
                new_files.remove()
            raise
        if result.commit is not None:
            after_commit(
                self.writer,
                lambda: self.newest().loaded,
                checkpoint=hooks.create_checkpoint,
                cleanup=hooks.cleanup_expired_logs,
            )
        return result.metrics

    def _committer(self, snapshot: PathSnapshot | NewTableSnapshot, properties: CommitProperties) -> FileCommitter:
        return FileCommitter(
            self.reader,
            self.writer,
            snapshot if isinstance(snapshot, PathSnapshot) else None,
            txn_id=str(uuid.uuid4()),
            retries=properties.max_commit_retries,
        )

    def _target(self, snapshot: PathSnapshot | NewTableSnapshot, written: WrittenFiles) -> Target:
        return Target(
            name=self.name,
            location=self.location,
            options=self.given_options,
            snapshot=snapshot,
            plan=lambda predicate: snapshot.plan(predicate).files,
            written=written,
        )

    def close(self) -> None:
        """Do nothing: no resource is held open."""


def create_at(
    location: str | os.PathLike[str],
    first: tuple[Protocol, Metadata],
    commit: ProposedCommit | Verb,
    storage_options: Mapping[str, str] | None = None,
    properties: CommitProperties | None = None,
    hooks: PostCommitHookProperties | None = None,
) -> dict[str, Any]:
    """Create a table at a location. `commit` is its first commit, or a verb that makes it from the empty table.

    Protocol and metadata are put before it. Raises TableExistsError if there is a table, or another writer is faster.
    """
    backing = FileBacking(location, storage_options)
    first_commit = commit
    verb: Verb = (lambda _: Done(first_commit)) if isinstance(first_commit, ProposedCommit) else first_commit
    return backing.create(first, verb, properties, hooks)


def _history_entry(commit: Commit) -> HistoryEntry:
    info = commit.commit_info
    value = info.value if info is not None else {}
    return HistoryEntry(
        version=commit.version,
        timestamp_ms=commit.timestamp_ms,
        operation=value.get("operation"),
        operation_parameters=value.get("operationParameters"),
        operation_metrics=value.get("operationMetrics"),
        commit_info=info,
        is_base=False,
        num_actions=len(commit.actions),
        num_added_files=sum(isinstance(action, AddFile) for action in commit.actions),
        num_removed_files=sum(isinstance(action, RemoveFile) for action in commit.actions),
        txn_id=value.get("txnId"),
        actor=None,
        message=None,
    )


def _beginning(done: Done, first: tuple[Protocol, Metadata]) -> Done:
    """Return the first commit of a table; if the verb changes nothing, the table is created empty."""
    commit = done.commit or ProposedCommit((), "CREATE TABLE")
    kinds = {type(action) for action in commit.actions}
    missing = [action for action in first if type(action) not in kinds]
    return replace(done, commit=replace(commit, actions=(*missing, *commit.actions)))
