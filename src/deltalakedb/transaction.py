"""What a caller may say about a commit, under the names that `deltalake` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass
class PostCommitHookProperties:
    """What happens to the log after a commit. A catalog's tables leave both to the mirror, by its own settings."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None
