"""FileBacking: a table whose log lies in its own `_delta_log`, read and written without a catalog."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import TableExistsError, TableNotFoundError
from deltalakedb.files.commit_times import version_at
from deltalakedb.files.committing import FileCommitter, check_plain_writer, without_beginning
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.files.upkeep import after_commit
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.commit import Commit
from deltalakedb.log.features import check_readable
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.operations.written_files import WrittenFiles
from deltalakedb.store.reader import HistoryEntry
from deltalakedb.tables.file_snapshot import NewTableSnapshot, PathSnapshot
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.log.atoms import Predicate
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.tables.backing import TableSnapshot

_HISTORY_PAGE = 100
"""Commits read at once, from the newest backwards."""


class FileBacking:
    """A table at a path or URL; `_delta_log` there decides."""

    mode = "files"

    def __init__(self, location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self.given_options = dict(storage_options) if storage_options else None
        self.reader = FileTxnLogReader(location, self.given_options)
        self._newest: PathSnapshot | None = None

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> tuple[FileBacking, PathSnapshot]:
        """The table and its newest version."""
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
        """Whether there is a table."""
        try:
            self.reader.latest_version()
        except TableNotFoundError:
            return False
        return True

    # -- reading

    def newest(self) -> PathSnapshot:
        """The newest version; of what was read before, only what came after it is read."""
        known = self._newest
        loaded = self._load_newest()
        if known is not None and known.loaded is loaded:
            return known
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
        return 0  # the log of files does not tell

    def version_at(self, at_ms: int) -> int:
        return version_at(self.reader, self.newest().metadata.configuration, at_ms)

    def history(
        self, limit: int | None, *, snapshot: TableSnapshot, since_ms: int | None, until_ms: int | None
    ) -> Iterator[HistoryEntry]:
        """Commits up to a version, newest first, as far back as their files are there."""
        listing = self.reader.listing()
        first, page = listing.first_contiguous(snapshot.version), min(limit or _HISTORY_PAGE, _HISTORY_PAGE)
        given = 0
        for end in range(snapshot.version, first - 1, -page):
            for commit in reversed(list(self.reader.commits(max(first, end - page + 1), end))):
                if given == limit or (since_ms is not None and commit.timestamp_ms < since_ms):
                    return
                if until_ms is None or commit.timestamp_ms <= until_ms:
                    given += 1
                    yield _history_entry(commit)

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        return self.reader.commits(start, end)

    def plan(
        self,
        snapshot: TableSnapshot,
        predicate: Predicate,
        columns: Sequence[str] | None,
        *,
        explain: bool,  # noqa: ARG002  every condition is held against every file, and nothing else is known of it
    ) -> PlannedFiles:
        assert isinstance(snapshot, PathSnapshot)
        return snapshot.plan(predicate, columns)

    # -- writing

    def run(self, verb: Verb, properties: CommitProperties, hooks: PostCommitHookProperties) -> dict[str, Any]:
        """The newest version of the table, one statement, one commit; a race is lost only where meanings clash."""
        snapshot = self.newest()
        check_plain_writer(self.reader, snapshot)
        return self._run(verb, snapshot, properties, hooks)

    def create(
        self,
        first: tuple[Protocol, Metadata],
        verb: Verb,
        properties: CommitProperties | None = None,
        hooks: PostCommitHookProperties | None = None,
        *,
        joins: bool = False,
    ) -> dict[str, Any]:
        """A new table: its first commit is protocol and metadata, and what the verb makes of the empty table.

        `joins`: if another creates the same table meanwhile, rows that were to be its first ones are appended to it.
        """
        if self.exists():
            raise TableExistsError(f"there is a table at {self.name} already; open it, or choose another place")
        snapshot = NewTableSnapshot(*first)
        return self._run(
            lambda target: _beginning(verb(target), first),
            snapshot,
            properties or CommitProperties(),
            hooks or PostCommitHookProperties(),
            joins=joins,
        )

    def _run(
        self,
        verb: Verb,
        snapshot: PathSnapshot | NewTableSnapshot,
        properties: CommitProperties,
        hooks: PostCommitHookProperties,
        *,
        joins: bool = False,
    ) -> dict[str, Any]:
        user_info = properties.checked_metadata()
        written = WrittenFiles()
        committer = self._committer(snapshot, properties)
        try:
            done = verb(self._target(snapshot, written))
            done = done.noting(properties.app_transactions or (), user_info)
            if done.commit is not None:
                try:
                    committer.commit(done.commit)
                except TableExistsError:
                    if not joins:
                        raise
                    newest = self.newest()
                    rest = without_beginning(done.commit, newest, self.name)
                    committer = self._committer(newest, properties)
                    committer.commit(rest)
        except BaseException:
            if not committer.may_have_committed:
                written.remove()
            raise
        if done.commit is not None:
            after_commit(
                self.writer,
                lambda: self.newest().loaded,
                checkpoint=hooks.create_checkpoint,
                cleanup=hooks.cleanup_expired_logs,
            )
        return done.metrics

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
        """Nothing is held open."""


def create_at(
    location: str | os.PathLike[str],
    first: tuple[Protocol, Metadata],
    commit: ProposedCommit | Verb,
    storage_options: Mapping[str, str] | None = None,
    properties: CommitProperties | None = None,
    hooks: PostCommitHookProperties | None = None,
) -> dict[str, Any]:
    """Begin a table at a place where there is none. `commit` is its first one, or a verb that makes it of the empty
    table; protocol and metadata are put before it. TableExistsError when there is one, or another is faster."""
    backing = FileBacking(location, storage_options)
    made = commit
    verb: Verb = (lambda _: Done(made)) if isinstance(made, ProposedCommit) else made
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
    """The commit that begins a table; a verb that changes nothing begins an empty one."""
    commit = done.commit or ProposedCommit((), "CREATE TABLE")
    kinds = {type(action) for action in commit.actions}
    missing = [action for action in first if type(action) not in kinds]
    return replace(done, commit=replace(commit, actions=(*missing, *commit.actions)))
