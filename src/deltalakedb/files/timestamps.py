"""Decides what a commit's time is: its in-commit timestamp where the table keeps them, else its file's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deltalakedb.log.actions import Action, CommitInfo, Metadata

ENABLED = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def keeps_in_commit_timestamps(configuration: Mapping[str, str | None], version: int) -> bool:
    """Whether the commit of `version` carries its time (PROTOCOL.md, "In-Commit Timestamps")."""
    if (configuration.get(ENABLED) or "").lower() != "true":
        return False
    since = configuration.get(ENABLEMENT_VERSION) or "0"
    return not since.isdecimal() or version >= int(since)


def in_commit_timestamp(first: Action | None) -> int | None:
    """The time that a commit's first action carries; it must be the first to count."""
    if isinstance(first, CommitInfo) and "inCommitTimestamp" in first.text:
        return first.in_commit_timestamp
    return None


class InCommitTimestamps:
    """Times of commits read in order. The configuration before the first one is asked for only if it matters."""

    def __init__(self, configuration_before: Callable[[], Mapping[str, str | None] | None]) -> None:
        self._configuration_before = configuration_before
        self._known = False
        self._configuration: Mapping[str, str | None] | None = None

    def of(self, version: int, actions: Sequence[Action], modified_ms: int) -> int:
        """The time of the commit made of `actions`, whose file was last modified at `modified_ms`."""
        for action in actions:
            if isinstance(action, Metadata):
                self._known, self._configuration = True, action.configuration
        stamp = in_commit_timestamp(actions[0]) if actions else None
        return modified_ms if stamp is None or not self._enabled(version) else stamp

    def _enabled(self, version: int) -> bool:
        if not self._known:
            self._known, self._configuration = True, self._configuration_before()
        # Where the log no longer says, a commit that carries a time is believed.
        return self._configuration is None or keeps_in_commit_timestamps(self._configuration, version)
