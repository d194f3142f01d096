"""Owns replay: computes a table's state in memory from its actions (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """The newest action for everything in some commits: a whole table's state, or what they change in an older one."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: dict[str, AppTransaction] = field(default_factory=dict)
    domain_metadata: dict[str, DomainMetadata] = field(default_factory=dict)
    removed_domains: set[str] = field(default_factory=set)
    files: dict[FileKey, AddFile] = field(default_factory=dict)
    tombstones: dict[FileKey, RemoveFile] = field(default_factory=dict)
    _num_commits: int = 0
    _commit_of: dict[FileKey, int] = field(default_factory=dict)

    def apply_commit(self, actions: Iterable[Action]) -> None:
        """Applies the actions of the next commit; `newest_files` then lists its files first."""
        self._num_commits += 1
        for action in actions:
            self.apply(action)

    def apply(self, action: Action) -> None:
        match action:
            case AddFile() | RemoveFile():
                self._apply_file(action)
            case Metadata():
                self.metadata = action
            case Protocol():
                self.protocol = action
            case AppTransaction():
                self.app_transactions[action.app_id] = action
            case DomainMetadata():
                self.domain_metadata.pop(action.domain, None)
                if action.removed:
                    self.removed_domains.add(action.domain)
                else:
                    self.removed_domains.discard(action.domain)
                    self.domain_metadata[action.domain] = action
            case _:
                pass  # commitInfo, cdc and unknown actions are not part of the state

    def _apply_file(self, action: AddFile | RemoveFile) -> None:
        key = action.key
        # Moved to the end: a file is as new as its last commit.
        self.files.pop(key, None)
        self.tombstones.pop(key, None)
        if isinstance(action, AddFile):
            self.files[key] = action
            self._commit_of[key] = self._num_commits
        else:
            self.tombstones[key] = action

    def newest_files(self) -> list[AddFile]:
        """The live files, those of the newest commit first, in the order of each commit."""
        return [self.files[key] for key in sorted(self.files, key=lambda key: -self._commit_of[key])]

    def file_keys(self) -> set[FileKey]:
        """The keys of the files that were added or removed: they hide those of an older state."""
        return self.files.keys() | self.tombstones.keys()

    def domains_over(self, older: Mapping[str, DomainMetadata]) -> dict[str, DomainMetadata]:
        """The domains of an older state after these commits."""
        return {
            domain: action for domain, action in older.items() if domain not in self.removed_domains
        } | self.domain_metadata

    def copy(self) -> SnapshotState:
        """A copy that can be changed without changing this one."""
        return SnapshotState(
            self.protocol,
            self.metadata,
            dict(self.app_transactions),
            dict(self.domain_metadata),
            set(self.removed_domains),
            dict(self.files),
            dict(self.tombstones),
            self._num_commits,
            dict(self._commit_of),
        )


def replay(actions: Iterable[Action], state: SnapshotState | None = None) -> SnapshotState:
    """Returns the state after the actions, oldest first; starts from `state`, which is not changed."""
    result = SnapshotState() if state is None else state.copy()
    for action in actions:
        result.apply(action)
    return result
