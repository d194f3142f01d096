"""The commitInfo of commits without a catalog: the fields that `deltalake` writes, and the id we know our own by."""

from __future__ import annotations

from importlib.metadata import version as package_version
from typing import Any

from deltalakedb.log.actions import CommitInfo
from deltalakedb.log.codec import to_json
from deltalakedb.log.commit_info import with_user_fields
from deltalakedb.log.proposal import ProposedCommit

_VERSION = package_version("deltalakedb")
_SCALARS = (str, int, float, bool)


def render_plain_commit_info(
    proposed: ProposedCommit,
    *,
    timestamp_ms: int,
    read_version: int | None,
    txn_id: str,
    in_commit_timestamps: bool,
    num_retries: int,
) -> CommitInfo:
    """The in-commit timestamp stands first, where a table has them. Parameters are text; metrics stay numbers."""
    info: dict[str, Any] = {"inCommitTimestamp": timestamp_ms} if in_commit_timestamps else {}
    info |= {
        "timestamp": timestamp_ms,
        "operation": proposed.operation,
        "operationParameters": {key: _text(value) for key, value in proposed.operation_parameters.items()},
    }
    if read_version is not None and not proposed.is_blind_append:
        info["readVersion"] = read_version
    metrics = {key: _metric(value) for key, value in proposed.operation_metrics.items() if value is not None}
    if "num_retries" in metrics:
        metrics["num_retries"] = num_retries
    info |= {
        "isBlindAppend": proposed.is_blind_append,
        "engineInfo": f"deltalakedb:py-{_VERSION}",
        "clientVersion": f"deltalakedb.py-{_VERSION}",
        "operationMetrics": metrics,
        "txnId": txn_id,
    }
    return CommitInfo(to_json(with_user_fields(info, proposed.user_info, is_blind_append=proposed.is_blind_append)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def _metric(value: Any) -> Any:
    """Readers take a metric for text or a number: anything with parts goes in as the text of its JSON."""
    return value if isinstance(value, _SCALARS) else to_json(value)
