"""Owns proposed commits: the actions of future versions, and what the transaction read to make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, CommitInfo, FileKey, RemoveFile


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What was read of one table. A predicate covers every row that matches it, then and later."""

    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    files: frozenset[FileKey] = frozenset()
    app_ids: frozenset[str] = frozenset()
    definition: bool = False
    """Schema, properties, protocol or metadata domains were read; later changes of rows have no effect on this."""
    history: bool = False
    """The commits were read up to the newest one, so any later commit affects the transaction."""
    removals: bool = False
    """Rows must not be deleted meanwhile; a later commit that only adds or rearranges rows has no effect on this."""

    def __or__(self, other: ReadSet) -> ReadSet:
        return ReadSet(
            self.whole_table or other.whole_table,
            self.predicates + tuple(p for p in other.predicates if p not in self.predicates),
            self.files | other.files,
            self.app_ids | other.app_ids,
            self.definition or other.definition,
            self.history or other.history,
            self.removals or other.removals,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no row was read; application ids, the definition, the history and removals are not rows."""
        return not (self.whole_table or self.predicates or self.files)


NOTHING_READ = ReadSet()
WHOLE_TABLE = ReadSet(whole_table=True)
DEFINITION = ReadSet(definition=True)
HISTORY = ReadSet(history=True)
REMOVALS = ReadSet(removals=True)


@dataclass(frozen=True, slots=True)
class ProposedCommit:
    """One statement, which becomes one version. The writer makes its commitInfo."""

    actions: tuple[Action, ...]
    operation: str = "WRITE"
    operation_parameters: Mapping[str, Any] = field(default_factory=dict)
    operation_metrics: Mapping[str, Any] = field(default_factory=dict)
    read: ReadSet = NOTHING_READ
    user_info: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the user for commitInfo, beside ours."""
    fenced: bool | None = None
    """Whether the mirror adds the fence to this commit's protocol action; None: as the table has it."""
    may_be_elsewhere: bool = False
    """Files outside of the table's location are allowed: the caller named them by absolute paths."""
    only_next: bool = False
    """It becomes the version after the one it was made from, or none: `max_commit_retries` is 0."""
    restores: int | None = None
    """The older version whose files this commit adds again."""
    commit_info: CommitInfo | None = None
    """The commitInfo of another engine; it is kept, and our mark is added. `user_info` is then ignored."""

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds files (and app transactions), and no rows were read."""
        kinds = set(map(type, self.actions))
        return self.read.is_empty and AddFile in kinds and kinds <= {AddFile, AppTransaction}

    @property
    def removed(self) -> frozenset[FileKey]:
        return frozenset(action.key for action in self.actions if isinstance(action, RemoveFile))
