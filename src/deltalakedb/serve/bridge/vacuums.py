"""Spark's own VACUUM makes two commits: the first before it deletes files, the second after it has."""

from __future__ import annotations

import uuid
from typing import Final

from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.store.connection import Store
from deltalakedb.store.vacuums import begin_vacuum, end_vacuum, newest_removal_before

START: Final = "VACUUM START"
END: Final = "VACUUM END"

_OF_SPARK: Final = "spark:"
_LEASE_MS: Final = 24 * 3_600_000
"""Spark sends no signs of life between the two: one that takes longer than this has died."""


def operation_of(info: CommitInfo | None) -> str | None:
    return None if info is None else info.operation


def begin(store: Store, table_id: int, info: CommitInfo) -> None:
    """Record the start of a vacuum, before the first commit is acknowledged: Spark deletes files right after it.

    Spark goes by the time at which files were removed, not by versions.
    """
    with store.read() as conn:
        before_ms = conn.now_ms() - _retention_ms(info)
    oldest_kept = newest_removal_before(store, table_id, before_ms)
    begin_vacuum(store, table_id, f"{_OF_SPARK}{uuid.uuid4()}", oldest_kept=oldest_kept, lease_ms=_LEASE_MS)


def end(store: Store, table_id: int) -> None:
    """Record the end, after the second commit or if the first one failed: Spark does not say which vacuum it ends."""
    end_vacuum(store, table_id, _OF_SPARK)


def _retention_ms(info: CommitInfo) -> int:
    """How long removed files are kept; 0 if the commit does not say."""
    raw = info.value.get("operationParameters")
    parameters = raw if isinstance(raw, dict) else {}
    for name in ("specifiedRetentionMillis", "defaultRetentionMillis"):
        try:
            return int(parameters[name])
        except (KeyError, TypeError, ValueError):
            continue
    return 0
