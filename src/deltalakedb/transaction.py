"""What a caller may say about a commit, under the names that `deltalake` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .log.actions import AppTransaction

Transaction = AppTransaction
"""How far an application has come: the `txn` action."""


@dataclass
class CommitProperties:
    """What is recorded with a commit, and how often it is tried."""

    custom_metadata: Mapping[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None

    def joined(
        self, app_transactions: Sequence[Transaction] = (), custom_metadata: Mapping[str, Any] | None = None
    ) -> CommitProperties:
        """The same with more of both."""
        noted = {**(self.custom_metadata or {}), **(custom_metadata or {})}
        return replace(
            self, custom_metadata=noted, app_transactions=[*(self.app_transactions or ()), *app_transactions]
        )


@dataclass
class PostCommitHookProperties:
    """What happens to the log after a commit. A catalog's tables leave both to the mirror, by its own settings."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None
