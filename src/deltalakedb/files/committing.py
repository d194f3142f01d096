"""FileCommitter: commits to a table whose `_delta_log` decides, by put-if-absent and the rules of log/conflicts."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import (
    CommitFailedError,
    DeltaError,
    LogGapError,
    MetadataChangedError,
    MirrorError,
    NotWritableError,
    OutcomeUnknownError,
    TableExistsError,
    redact,
)
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks import conflicts
from deltalakedb.log.checks.commit_checks import check_commit
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.codec import from_sql_text, to_json, to_sql_text
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.log.protocol.completion import (
    ROW_TRACKING,
    InForce,
    Mark,
    check_applications,
    has_in_commit_timestamps,
    high_water_mark,
    parse_mark,
    render_metrics,
    with_user_fields,
)
from deltalakedb.log.protocol.features import check_writable, features_in_use
from deltalakedb.log.protocol.fence import FEATURE, shows_iceberg
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.runtime.steps import reached
from deltalakedb.runtime.version import __version__

RETRIES = 100
"""How often a commit that lost a race is retried by default. Whenever one loses, another has won."""

_PAUSE_SECONDS = 0.02
_READ_BACK_SECONDS = 0.1
_READ_BACKS = 5


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that is in the log."""

    version: int
    timestamp_ms: int
    actions: tuple[Action, ...]
    num_retries: int


@dataclass(slots=True)
class _Head:
    """The state that the next commit is based on: the newest version that was read."""

    version: int
    timestamp_ms: int
    in_force: InForce
    app_versions: dict[str, int]

    @classmethod
    def of(cls, snapshot: LogSnapshot | None) -> _Head:
        if snapshot is None:
            return cls(-1, -1, InForce(), {})
        mark = high_water_mark(snapshot.domain_metadata().get(ROW_TRACKING))
        apps = {app_id: action.version for app_id, action in snapshot.app_transactions().items()}
        return cls(snapshot.version, snapshot.timestamp_ms, InForce(snapshot.protocol, snapshot.metadata, mark), apps)

    def follow(self, commit: Commit) -> None:
        """Apply another writer's commit that does not conflict with ours."""
        self.version, self.timestamp_ms = commit.version, max(commit.timestamp_ms, self.timestamp_ms)
        for action in commit.actions:
            match action:
                case Protocol():
                    self.in_force.protocol = action
                case Metadata():
                    self.in_force.metadata = action
                case DomainMetadata() if action.domain == ROW_TRACKING:
                    self.in_force.row_id_mark = high_water_mark(action)
                case AppTransaction():
                    self.app_versions[action.app_id] = action.version
                case _:
                    pass


class FileCommitter:
    """Makes one commit. `snapshot` is the version that it is based on; None creates a table."""

    def __init__(
        self,
        reader: FileTxnLogReader,
        writer: FileTxnLogWriter,
        snapshot: LogSnapshot | None,
        *,
        txn_id: str,
        retries: int | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._snapshot = snapshot
        self._txn_id = txn_id
        self._retries = RETRIES if retries is None else max(retries, 0)
        self._table = reader.table
        self.may_have_committed = False
        """Whether the commit is or may be in the log; its data files must then stay."""

    def commit(self, proposed: ProposedCommit, *, is_older: bool = False) -> Committed:
        """Put the commit into the log exactly once, or raise an error that says why not.

        `is_older`: there are commits after the snapshot. They are checked first, because a version that was cleaned up
        must not be put again: nobody would see it.
        """
        head = _Head.of(self._snapshot)
        self._check_actions(proposed)
        if is_older:
            self._meet_winners(proposed, head)
        for attempt in range(self._retries + 1):
            check_applications(proposed.actions, head.app_versions, table=self._table, version=head.version)
            version, at_ms = head.version + 1, max(time.time_ns() // 1_000_000, head.timestamp_ms + 1)
            actions = self._finish(proposed, head, version, at_ms, attempt)
            if self._put(version, render_commit(actions, fenced=False), at_ms):
                return Committed(version, at_ms, tuple(actions), attempt)
            if self._snapshot is None:
                raise TableExistsError(
                    f"there is a table at {redact(self._table)} already: another writer created it first; open it, or "
                    "write to it with mode append or overwrite"
                )
            ours = self._meet_winners(proposed, head)
            if ours is not None:
                return replace(ours, num_retries=attempt)
            _pause(attempt)
        raise CommitFailedError(
            f"table {redact(self._table)}: other writers came first {self._retries + 1} times in a row, the last one "
            f"with version {head.version}; nothing was committed: try again, or raise max_commit_retries",
            table=self._table,
            version=head.version,
        )

    # -- checks before anything is written

    def _check_actions(self, proposed: ProposedCommit) -> None:
        snapshot = self._snapshot
        changes_table = any(isinstance(action, Metadata) for action in proposed.actions)
        check_commit(
            proposed.actions,
            protocol=snapshot.protocol if snapshot else None,
            metadata=snapshot.metadata if snapshot else None,
            table=self._table,
            version=snapshot.version + 1 if snapshot else 0,
            is_live=self._live_keys if snapshot else None,
            location=self._reader.location,
            live_files=_count(snapshot) if snapshot and changes_table else None,
            replaces="REPLACE TABLE" in proposed.operation,
            restores=proposed.operation == "RESTORE",
            clones=proposed.may_be_elsewhere,
        )

    def _live_keys(self, wanted: Collection[FileKey]) -> Set[FileKey]:
        live_keys: set[FileKey] = set()
        for batch in self._batches_of({path for path, _ in wanted}):
            has_no_vector = batch.column("deletion_vector").is_null()
            live_keys |= {(from_sql_text(path), "") for path in batch.column("path").filter(has_no_vector).to_pylist()}
            live_keys |= {add_from_row(row).key for row in batch.filter(pc.invert(has_no_vector)).to_pylist()}
        return live_keys

    def _files_of(self, paths: Collection[str]) -> Iterable[AddFile]:
        """The live files with these paths."""
        for batch in self._batches_of(paths):
            yield from map(add_from_row, batch.to_pylist())

    def _batches_of(self, paths: Collection[str]) -> Iterator[pa.RecordBatch]:
        assert self._snapshot is not None
        texts = pa.array([to_sql_text(path) for path in paths], pa.string())
        for batch in self._snapshot.files():
            yield batch.filter(pc.is_in(batch.column("path"), value_set=texts))

    # -- what depends on the version

    def _finish(self, proposed: ProposedCommit, head: _Head, version: int, at_ms: int, attempt: int) -> list[Action]:
        """The final actions: commitInfo first, row ids and in-commit timestamps filled in."""
        in_force = replace(head.in_force)  # an attempt that loses its race leaves the head as it is
        actions = in_force.finish(proposed.actions, version=version, at_ms=at_ms, table=self._table)
        info = render_plain_commit_info(
            proposed,
            timestamp_ms=at_ms,
            read_version=self._snapshot.version if self._snapshot else None,
            txn_id=self._txn_id,
            in_commit_timestamps=has_in_commit_timestamps(in_force.metadata),
            num_retries=attempt,
        )
        return [info, *actions]

    # -- the race

    def _put(self, version: int, data: bytes, at_ms: int) -> bool:
        """Put a version; return whether it is ours, False if another commit has it."""
        reached("files.commit_begun")
        self.may_have_committed = True
        try:
            won = self._writer.put_commit(version, data, modified_ms=at_ms) == "written"
        except MirrorError as error:
            won = self._read_back(version, data, error)
        self.may_have_committed = won
        if won:
            reached("files.committed")
        return won

    def _read_back(self, version: int, data: bytes, error: MirrorError) -> bool:
        """Find out from the log whose the version is, after a put with an unknown result."""
        reason = redact(str(error))
        if not error.uncertain:
            self.may_have_committed = False
            raise CommitFailedError(f"nothing was committed: {reason}", table=self._table, version=version) from error
        for attempt in range(_READ_BACKS):
            try:
                stored = self._writer.read_commit(version)
            except MirrorError:
                stored = None
            if stored is not None:
                return stored == data
            time.sleep(_READ_BACK_SECONDS * 2**attempt)
        raise OutcomeUnknownError(
            f"table {redact(self._table)}: the storage did not answer while version {version} was written, so nobody "
            f"can say yet whether it happened ({reason}); look for txnId {self._txn_id} in the table's history before "
            "the statement is repeated",
            table=self._table,
            version=version,
        ) from error

    def _meet_winners(self, proposed: ProposedCommit, head: _Head) -> Committed | None:
        """Check our commit against those that others made meanwhile, and advance the head over them."""
        assert self._snapshot is not None
        try:
            commits = list(self._reader.commits(head.version + 1))
        except LogGapError as error:
            raise CommitFailedError(
                f"table {redact(self._table)}: commits after version {head.version}, which this one was made from, "
                "were cleaned up meanwhile, so it cannot be checked against them; nothing was committed: repeat the "
                "statement",
                table=self._table,
                version=head.version,
            ) from error
        for commit in commits:
            info = commit.commit_info
            if info is not None and info.txn_id == self._txn_id:
                self.may_have_committed = True
                return Committed(commit.version, commit.timestamp_ms, commit.actions, 0)
        conflicts.check(
            self._table,
            [proposed],
            NOTHING_READ,
            self._winners(proposed, commits),
            schema=parse_schema(self._snapshot.metadata.schema_string),
            metadata=self._snapshot.metadata,
            protocol=self._snapshot.protocol,
        )
        for commit in commits:
            head.follow(commit)
        return None

    def _winners(self, proposed: ProposedCommit, commits: Sequence[Commit]) -> list[conflicts.Winner]:
        """The winners, with statistics and partition values of the files that they removed: a remove may omit them."""
        adds: dict[FileKey, AddFile] = {}
        removes = [action for commit in commits for action in commit.actions if isinstance(action, RemoveFile)]
        if removes and conflicts.needs([proposed], NOTHING_READ).values:
            adds = {add.key: add for add in self._files_of({remove.path for remove in removes})}
            adds |= {a.key: a for commit in commits for a in commit.actions if isinstance(a, AddFile)}
        return [
            conflicts.Winner(commit.version, tuple(_with_values(action, adds) for action in commit.actions))
            for commit in commits
        ]


def check_plain_writer(reader: FileTxnLogReader, snapshot: LogSnapshot) -> None:
    """Refuse a table that a catalog manages: a write into its files would bypass the catalog."""
    if FEATURE not in (snapshot.protocol.writer_features or ()):
        check_writable(snapshot.protocol, reader.table)
        return
    if shows_iceberg(snapshot.metadata):
        raise NotWritableError(
            f"{redact(reader.table)} belongs to an Iceberg table, and its _delta_log only shows that table to Delta "
            "readers: write the Iceberg table through its catalog.",
            table=reader.table,
            version=snapshot.version,
        )
    mark = _mark_of(reader, snapshot.version)
    name = mark.table if mark else "namespace.name"
    if mark is not None and mark.dropped:
        raise NotWritableError(
            f"{redact(reader.table)} is the folder of the table {name}, which was dropped from its catalog and can "
            f"still be brought back: `dl undrop {name}` does so, then write it by its name. Or choose another folder.",
            table=reader.table,
            version=snapshot.version,
        )
    raise NotWritableError(
        f"{redact(reader.table)} is written through a catalog{f', as the table {name}' if mark else ''}, and by nobody "
        f"else: open it as deltasql://...?table={name}, or set DL_CATALOG to the catalog and give the path again. "
        f"`dl detach {name}` gives the table back to its files.",
        table=reader.table,
        version=snapshot.version,
    )


def without_beginning(proposed: ProposedCommit, snapshot: LogSnapshot, table: str) -> ProposedCommit:
    """The commit without its protocol and metadata, for when another writer has created the same table first.

    Raises MetadataChangedError if the existing table is not the same.
    """
    proposed_metadata = next(action for action in proposed.actions if isinstance(action, Metadata))
    existing = snapshot.metadata
    is_same = (proposed_metadata.schema_string, proposed_metadata.partition_columns) == (
        existing.schema_string,
        existing.partition_columns,
    )
    is_plain = not (
        features_in_use(parse_schema(existing.schema_string), existing.configuration) or existing.configuration
    )
    if not is_same or not is_plain:
        raise MetadataChangedError(
            f"table {redact(table)}: another writer created the table first, with another definition; nothing was "
            "committed: repeat the statement",
            table=table,
            version=snapshot.version,
        )
    rest = tuple(action for action in proposed.actions if not isinstance(action, Metadata | Protocol))
    return replace(proposed, actions=rest)


def _mark_of(reader: FileTxnLogReader, version: int) -> Mark | None:
    """The catalog's mark in the newest commit."""
    try:
        first = next(reader.actions(version), None)
    except DeltaError:
        return None
    return parse_mark(first) if isinstance(first, CommitInfo) else None


def _with_values(action: Action, adds: dict[FileKey, AddFile]) -> Action:
    add = adds.get(action.key) if isinstance(action, RemoveFile) else None
    if add is None or not isinstance(action, RemoveFile):
        return action
    return replace(action, partition_values=add.partition_values, stats=add.stats)


def _count(snapshot: LogSnapshot) -> int:
    return sum(batch.num_rows for batch in snapshot.files())


def _pause(attempt: int) -> None:
    """Sleep a random time, shorter after each lost race, so that the writer that waited longest goes first."""
    time.sleep(random.uniform(0.0, _PAUSE_SECONDS / (attempt + 1)))


def render_plain_commit_info(
    proposed: ProposedCommit,
    *,
    timestamp_ms: int,
    read_version: int | None,
    txn_id: str,
    in_commit_timestamps: bool,
    num_retries: int,
) -> CommitInfo:
    """The commitInfo action. An in-commit timestamp comes first; parameters are strings, metrics stay numbers."""
    info: dict[str, Any] = {"inCommitTimestamp": timestamp_ms} if in_commit_timestamps else {}
    info |= {
        "timestamp": timestamp_ms,
        "operation": proposed.operation,
        "operationParameters": {key: _text(value) for key, value in proposed.operation_parameters.items()},
    }
    if read_version is not None and not proposed.is_blind_append:
        info["readVersion"] = read_version
    metrics = dict(proposed.operation_metrics)
    if "num_retries" in metrics:
        metrics["num_retries"] = num_retries
    info |= {
        "isBlindAppend": proposed.is_blind_append,
        "engineInfo": f"deltalakedb:py-{__version__}",
        "clientVersion": f"deltalakedb.py-{__version__}",
        **render_metrics(metrics),
        "txnId": txn_id,
    }
    return CommitInfo(to_json(with_user_fields(info, proposed.user_info, is_blind_append=proposed.is_blind_append)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
