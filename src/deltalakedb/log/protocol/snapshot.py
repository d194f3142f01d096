"""Owns replay: computes a table's state in memory from its actions (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
)


@dataclass(slots=True)
class SnapshotState:
    """A table's state after some commits; removed domain metadata is not in it."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: dict[str, AppTransaction] = field(default_factory=dict)
    domain_metadata: dict[str, DomainMetadata] = field(default_factory=dict)
    files: dict[FileKey, AddFile] = field(default_factory=dict)
    tombstones: dict[FileKey, RemoveFile] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        match action:
            case AddFile():
                self.files[action.key] = action
                self.tombstones.pop(action.key, None)
            case RemoveFile():
                self.tombstones[action.key] = action
                self.files.pop(action.key, None)
            case Metadata():
                self.metadata = action
            case Protocol():
                self.protocol = action
            case AppTransaction():
                self.app_transactions[action.app_id] = action
            case DomainMetadata():
                if action.removed:
                    self.domain_metadata.pop(action.domain, None)
                else:
                    self.domain_metadata[action.domain] = action
            case _:
                pass  # commitInfo, cdc and unknown actions are not part of the state

    def copy(self) -> SnapshotState:
        return SnapshotState(
            self.protocol,
            self.metadata,
            dict(self.app_transactions),
            dict(self.domain_metadata),
            dict(self.files),
            dict(self.tombstones),
        )


def replay(actions: Iterable[Action], state: SnapshotState | None = None) -> SnapshotState:
    """Returns the state after the actions, oldest first; starts from `state`, which is not changed."""
    result = SnapshotState() if state is None else state.copy()
    for action in actions:
        result.apply(action)
    return result
