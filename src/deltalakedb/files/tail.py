"""Replays the JSON files after a checkpoint: their table actions, and the file keys that they mention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Tail:
    """The newest action for everything in the replayed commits (PROTOCOL.md, "Action Reconciliation")."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: dict[str, AppTransaction] = field(default_factory=dict)
    domain_metadata: dict[str, DomainMetadata] = field(default_factory=dict)  # also removed ones, which hide older ones
    files: dict[FileKey, AddFile | RemoveFile] = field(default_factory=dict)
    commit_info: CommitInfo | None = None  # of the last replayed file
    _replayed: int = 0
    _commit_of: dict[FileKey, int] = field(default_factory=dict)

    def copy(self) -> Tail:
        """A copy that can be replayed on without changing this one."""
        return Tail(
            self.protocol,
            self.metadata,
            dict(self.app_transactions),
            dict(self.domain_metadata),
            dict(self.files),
            self.commit_info,
            self._replayed,
            dict(self._commit_of),
        )

    def replay(self, actions: Iterable[Action]) -> None:
        self.commit_info = None
        self._replayed += 1
        for action in actions:
            match action:
                case AddFile() | RemoveFile():
                    self.files.pop(action.key, None)  # moved to the end: it is as new as its last commit
                    self.files[action.key] = action
                    self._commit_of[action.key] = self._replayed
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case AppTransaction():
                    self.app_transactions[action.app_id] = action
                case DomainMetadata():
                    self.domain_metadata[action.domain] = action
                case CommitInfo() if self.commit_info is None:
                    self.commit_info = action
                case _:
                    pass

    def adds(self) -> list[AddFile]:
        """The live files, those of the newest commit first, in the order of each commit."""
        adds = [action for action in self.files.values() if isinstance(action, AddFile)]
        return sorted(adds, key=lambda add: -self._commit_of[add.key])
