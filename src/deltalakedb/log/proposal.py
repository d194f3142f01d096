"""What a transaction offers: the actions of versions to be, and what of the table it has read to make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalakedb.log.actions import Action, AddFile, AppTransaction, CommitInfo, FileKey, RemoveFile
from deltalakedb.log.atoms import Predicate


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What was read of one table. A predicate stands for every row it matches, then and later."""

    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    files: frozenset[FileKey] = frozenset()
    app_ids: frozenset[str] = frozenset()
    definition: bool = False
    """Schema, properties, protocol or metadata domains were read; rows that change since then do not matter."""
    history: bool = False
    """The commits were read up to the newest one, so that any later commit matters."""

    def __or__(self, other: ReadSet) -> ReadSet:
        return ReadSet(
            self.whole_table or other.whole_table,
            self.predicates + tuple(p for p in other.predicates if p not in self.predicates),
            self.files | other.files,
            self.app_ids | other.app_ids,
            self.definition or other.definition,
            self.history or other.history,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no row was read; application ids, the definition and the history are not rows."""
        return not (self.whole_table or self.predicates or self.files)


NOTHING_READ = ReadSet()
WHOLE_TABLE = ReadSet(whole_table=True)
DEFINITION = ReadSet(definition=True)
HISTORY = ReadSet(history=True)


@dataclass(frozen=True, slots=True)
class ProposedCommit:
    """One statement: it becomes one version, whatever else its transaction does. The writer makes its commitInfo."""

    actions: tuple[Action, ...]
    operation: str = "WRITE"
    operation_parameters: Mapping[str, Any] = field(default_factory=dict)
    operation_metrics: Mapping[str, Any] = field(default_factory=dict)
    read: ReadSet = NOTHING_READ
    user_info: Mapping[str, Any] = field(default_factory=dict)
    """Fields a user wants in commitInfo beside ours."""
    fenced: bool | None = None
    """Whether the mirror adds the fence to this commit's protocol action; None: as the table has it."""
    may_be_elsewhere: bool = False
    """Files outside of the table's location are meant: the caller named them by absolute paths."""
    restores: int | None = None
    """The older version whose files this commit names again."""
    commit_info: CommitInfo | None = None
    """What another engine says of its commit; it is kept, and our mark added. `user_info` is not looked at then."""

    @property
    def is_blind_append(self) -> bool:
        """Only adds (and app transactions), of nothing that was read."""
        kinds = set(map(type, self.actions))
        return self.read.is_empty and AddFile in kinds and kinds <= {AddFile, AppTransaction}

    @property
    def removed(self) -> frozenset[FileKey]:
        return frozenset(action.key for action in self.actions if isinstance(action, RemoveFile))
