"""Replays the JSON that follows a checkpoint: what it says about the table, and which file keys it speaks about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from deltalakedb.log.actions import (
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
    """The newest word on everything the replayed commits mention (PROTOCOL.md, "Action Reconciliation")."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: dict[str, AppTransaction] = field(default_factory=dict)
    domain_metadata: dict[str, DomainMetadata] = field(default_factory=dict)  # removed ones too: they hide older ones
    files: dict[FileKey, AddFile | RemoveFile] = field(default_factory=dict)
    commit_info: CommitInfo | None = None  # of the last replayed file

    def copy(self) -> Tail:
        """One that can be replayed on while this one stays as it is."""
        return Tail(
            self.protocol,
            self.metadata,
            dict(self.app_transactions),
            dict(self.domain_metadata),
            dict(self.files),
            self.commit_info,
        )

    def replay(self, actions: Iterable[Action]) -> None:
        self.commit_info = None
        for action in actions:
            match action:
                case AddFile() | RemoveFile():
                    self.files[action.key] = action
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
