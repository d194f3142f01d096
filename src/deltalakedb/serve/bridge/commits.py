"""Commits of Spark's: their text as actions, what they have read, VACUUM's two, and the texts that Spark reads."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.protocol.actions import Action, AddFile, CommitInfo, DomainMetadata, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.protocol.completion import ROW_TRACKING, high_water_mark
from deltalakedb.log.protocol.paths import check_path, is_absolute
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.serve.bridge.places import SCHEME
from deltalakedb.store.connection import Store
from deltalakedb.store.registry import TableRow
from deltalakedb.store.rewind import RESOLUTIONS
from deltalakedb.store.vacuums import begin_vacuum, end_vacuum, newest_removal_before
from deltalakedb.transactions.draft import TableDraft

_WRITING = frozenset(
    {"WRITE", "MERGE", "UPDATE", "DELETE", "OPTIMIZE", "STREAMING UPDATE"}
    | {"CREATE TABLE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"}
)
"""Operations of Spark whose added files it has just written."""


def parse_commit(lines: Iterable[bytes], *, table: str, version: int) -> tuple[CommitInfo | None, list[Action]]:
    info: CommitInfo | None = None
    actions: list[Action] = []
    for action in iter_actions(lines, table=table, version=version):
        if isinstance(action, CommitInfo):
            info = action
            continue
        if isinstance(action, AddFile) and action.path.startswith(f"{SCHEME}:"):
            raise InvalidCommitError(
                f"table {table}, version {version}: the commit adds files of another table by their address in this "
                "session, as SHALLOW CLONE does; nothing was committed: no other reader could follow that address, so "
                "copy the rows (CREATE TABLE ... AS SELECT)"
            )
        actions.append(action)
    return info, actions


def say_managed(info: CommitInfo | None) -> CommitInfo | None:
    """Correct CREATE's `isManaged` for a table whose folder the catalog chose: Spark got a path, and says false."""
    parameters = None if info is None else info.value.get("operationParameters")
    if info is None or not isinstance(parameters, dict) or parameters.get("isManaged") != "false":
        return info
    return CommitInfo(to_json(info.value | {"operationParameters": parameters | {"isManaged": "true"}}))


def proposed(info: CommitInfo | None, actions: list[Action], *, fenced: bool | None) -> ProposedCommit:
    operation = (info.operation if info else None) or "WRITE"
    return ProposedCommit(tuple(actions), operation, fenced=fenced, commit_info=info)


def read_by(info: CommitInfo | None, commit: ProposedCommit) -> ReadSet:
    """The read set of a commit, which its text does not have: unless it is a blind append, the whole table."""
    blind = info is not None and info.value.get("isBlindAppend") is True
    return NOTHING_READ if blind and commit.is_blind_append else WHOLE_TABLE


def written_for(commit: ProposedCommit) -> list[AddFile]:
    """The files written for a commit, without older ones that it takes over (RESTORE, CONVERT) or marks (DVs)."""
    if commit.operation.removesuffix(" AS SELECT") not in _WRITING:
        return []
    older = {action.path for action in commit.actions if isinstance(action, RemoveFile)}
    adds = [action for action in commit.actions if isinstance(action, AddFile) and action.path not in older]
    for add in adds:
        check_path(add.path)
    return [add for add in adds if not is_absolute(add.path)]


def without_row_ids(actions: tuple[Action, ...], draft: TableDraft | None) -> tuple[Action, ...]:
    """Remove row ids that Spark assigned: if others commit first, they are theirs. The writer assigns new ones."""
    if not any(isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING for action in actions):
        return actions
    domains = draft.snapshot().domain_metadata() if draft is not None and (draft.base or draft.commits) else {}
    mark = high_water_mark(domains.get(ROW_TRACKING))
    return tuple(_strip(actions, mark))


def _strip(actions: Iterable[Action], mark: int) -> Iterator[Action]:
    for action in actions:
        if isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING:
            continue
        if isinstance(action, AddFile) and action.base_row_id is not None and action.base_row_id > mark:
            yield replace(action, base_row_id=None, default_row_commit_version=None)
        else:
            yield action


def transaction_id(info: CommitInfo | None) -> str:
    """Spark's own id of the commit, if it is a UUID; otherwise a new one."""
    try:
        return str(uuid.UUID((info.txn_id if info else None) or ""))
    except ValueError:
        return str(uuid.uuid4())


# -- Spark's own VACUUM makes two commits: the first before it deletes files, the second after it has.

VACUUM_START: Final = "VACUUM START"
VACUUM_END: Final = "VACUUM END"

_OF_SPARK: Final = "spark:"
_LEASE_MS: Final = 24 * 3_600_000
"""Spark sends no signs of life between the two: one that takes longer than this has died."""


def begin_sparks_vacuum(store: Store, table_id: int, info: CommitInfo) -> None:
    """Record the start of a vacuum, before the first commit is acknowledged: Spark deletes files right after it.

    Spark goes by the time at which files were removed, not by versions.
    """
    with store.read() as conn:
        before_ms = conn.now_ms() - _retention_ms(info)
    oldest_kept = newest_removal_before(store, table_id, before_ms)
    begin_vacuum(store, table_id, f"{_OF_SPARK}{uuid.uuid4()}", oldest_kept=oldest_kept, lease_ms=_LEASE_MS)


def end_sparks_vacuum(store: Store, table_id: int) -> None:
    """Record the end, after the second commit or if the first one failed: Spark does not say which vacuum it ends."""
    end_vacuum(store, table_id, _OF_SPARK)


def _retention_ms(info: CommitInfo) -> int:
    """How long removed files are kept; 0 if the commit does not say."""
    raw = info.value.get("operationParameters")
    parameters = raw if isinstance(raw, dict) else {}
    for name in ("specifiedRetentionMillis", "defaultRetentionMillis"):
        try:
            return int(parameters[name])
        except (KeyError, TypeError, ValueError):
            continue
    return 0


# -- the texts of commits, which Spark reads a few times each, and which never change

MAX_BYTES = 64 * 1024 * 1024
MAX_SIZES = 100_000


@dataclass(frozen=True, slots=True)
class Rendered:
    """The bytes of `N.json` as a bridged session reads them, and when it was committed."""

    data: bytes
    modified_ms: int


class RenderedCommits:
    """Holds texts up to a number of bytes; the least recently used goes first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._texts: OrderedDict[tuple[str, object, int], Rendered] = OrderedDict()
        self._sizes: dict[tuple[str, object, int], int] = {}
        self._lock = threading.Lock()

    def size(self, table: TableRow, version: int) -> int | None:
        """The length of a text that was rendered before, even if the text itself is no longer cached."""
        return self._sizes.get(_key(table, version))

    def get(self, table: TableRow, version: int) -> Rendered | None:
        with self._lock:
            text = self._texts.get(_key(table, version))
            if text is not None:
                self._texts.move_to_end(_key(table, version))
            return text

    def put(self, table: TableRow, version: int, text: Rendered) -> None:
        with self._lock:
            if len(self._sizes) >= MAX_SIZES:
                self._sizes.clear()
            self._sizes[_key(table, version)] = len(text.data)
            if len(text.data) > self._max_bytes // 2:
                return
            before = self._texts.pop(_key(table, version), None)
            self._bytes += len(text.data) - (len(before.data) if before else 0)
            self._texts[_key(table, version)] = text
            while self._bytes > self._max_bytes:
                _, evicted = self._texts.popitem(last=False)
                self._bytes -= len(evicted.data)


def _key(table: TableRow, version: int) -> tuple[str, object, int]:
    """Versions change only when `dl mirror resolve` takes in a foreign commit, and records that in the registry."""
    return table.table_uuid, table.properties.get(RESOLUTIONS), version


def runs_of(versions: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last version of each contiguous run."""
    start = 0
    for end in range(1, len(versions) + 1):
        if end == len(versions) or versions[end] != versions[end - 1] + 1:
            yield versions[start], versions[end - 1]
            start = end


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit in a listing."""

    version: int
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The commits from some version on, and the last version that the reader may see."""

    head: int
    entries: tuple[LogEntry, ...] = ()
    pinned: int = -1
    """The last committed version of them: what others have put into the overlay for later versions is not visible."""


def entries_of(staged: list[Rendered], first: int, start: int) -> tuple[LogEntry, ...]:
    return tuple(
        LogEntry(version, len(rendered.data), rendered.modified_ms)
        for version, rendered in enumerate(staged, start=first)
        if version >= start
    )
