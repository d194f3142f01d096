"""Owns in-commit timestamps: since when a table has them, and the time of a commit with or without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from deltalakedb.log.protocol.actions import Action, CommitInfo, Metadata
from deltalakedb.log.protocol.features import is_enabled

ENABLED: Final = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def has_in_commit_timestamps(metadata: Metadata | None) -> bool:
    """Whether a commit with this metadata in force must contain its time."""
    return metadata is not None and is_enabled(metadata.configuration, ENABLED)


def with_enablement(metadata: Metadata, before: Metadata | None, version: int, at_ms: int) -> Metadata:
    """Adds the enablement version and timestamp, required if in-commit timestamps are turned on after version 0."""
    if version == 0 or not has_in_commit_timestamps(metadata) or has_in_commit_timestamps(before):
        return metadata
    enablement = {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(at_ms)}
    return replace(metadata, configuration={**metadata.configuration, **enablement})


def keeps_in_commit_timestamps(configuration: Mapping[str, str | None], version: int) -> bool:
    """Whether the commit of `version` contains its time (PROTOCOL.md, "In-Commit Timestamps")."""
    if not is_enabled(configuration, ENABLED):
        return False
    since = configuration.get(ENABLEMENT_VERSION) or "0"
    return not since.isdecimal() or version >= int(since)


def in_commit_timestamp(first: Action | None) -> int | None:
    """The in-commit timestamp in a commit's first action; it counts only there."""
    if isinstance(first, CommitInfo) and "inCommitTimestamp" in first.text:
        return first.in_commit_timestamp
    return None


class InCommitTimestamps:
    """The times of commits that are read in order. The configuration before the first one is read only if needed."""

    def __init__(self, configuration_before: Callable[[], Mapping[str, str | None] | None]) -> None:
        self._configuration_before = configuration_before
        self._known = False
        self._configuration: Mapping[str, str | None] | None = None

    def of(self, version: int, actions: Sequence[Action], modified_ms: int) -> int:
        """The time of the commit with these actions, whose file was last modified at `modified_ms`."""
        for action in actions:
            if isinstance(action, Metadata):
                self._known, self._configuration = True, action.configuration
        stamp = in_commit_timestamp(actions[0]) if actions else None
        return modified_ms if stamp is None or not self._enabled(version) else stamp

    def _enabled(self, version: int) -> bool:
        if not self._known:
            self._known, self._configuration = True, self._configuration_before()
        # If the log no longer has the configuration, trust a timestamp in the commit.
        return self._configuration is None or keeps_in_commit_timestamps(self._configuration, version)
