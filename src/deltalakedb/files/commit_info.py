"""The commitInfo of commits without a catalog: the fields that `deltalake` writes, and our transaction id."""

from __future__ import annotations

from typing import Any

from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit_info import render_metrics, with_user_fields
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.runtime.version import __version__


def render_plain_commit_info(
    proposed: ProposedCommit,
    *,
    timestamp_ms: int,
    read_version: int | None,
    txn_id: str,
    in_commit_timestamps: bool,
    num_retries: int,
) -> CommitInfo:
    """The commitInfo action. An in-commit timestamp comes first; parameters are strings, metrics stay numbers."""
    info: dict[str, Any] = {"inCommitTimestamp": timestamp_ms} if in_commit_timestamps else {}
    info |= {
        "timestamp": timestamp_ms,
        "operation": proposed.operation,
        "operationParameters": {key: _text(value) for key, value in proposed.operation_parameters.items()},
    }
    if read_version is not None and not proposed.is_blind_append:
        info["readVersion"] = read_version
    metrics = dict(proposed.operation_metrics)
    if "num_retries" in metrics:
        metrics["num_retries"] = num_retries
    info |= {
        "isBlindAppend": proposed.is_blind_append,
        "engineInfo": f"deltalakedb:py-{__version__}",
        "clientVersion": f"deltalakedb.py-{__version__}",
        **render_metrics(metrics),
        "txnId": txn_id,
    }
    return CommitInfo(to_json(with_user_fields(info, proposed.user_info, is_blind_append=proposed.is_blind_append)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
