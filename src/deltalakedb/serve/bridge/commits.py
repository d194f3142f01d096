"""Interprets a commit of Spark's: its text as actions, what it has read, and the removal of what only SQL assigns."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.protocol.actions import Action, AddFile, CommitInfo, DomainMetadata, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.protocol.completion import ROW_TRACKING, high_water_mark
from deltalakedb.log.protocol.paths import check_path, is_absolute
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.serve.bridge.places import SCHEME
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
