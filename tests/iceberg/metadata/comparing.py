"""Asks Java and the package the same, and compares what they say."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalakedb.exceptions import BadIcebergRequestError, CommitFailedError
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata
from deltalakedb.iceberg.metadata.view_metadata import (
    apply_view_updates,
    check_view_requirements,
    render_view_metadata,
)
from tests.iceberg.metadata.judge import CONFLICTS, Judge, Verdict, comparable, comparable_view

UUID = "3d2b2ec5-6f4e-4c39-9c43-8c6a5d1f3b10"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: the new metadata, or `conflict` or `refused` and the message."""

    metadata: dict[str, Any] | None
    error: str = ""
    message: str = ""


def outcome_of(call: Callable[[], dict[str, Any]]) -> Outcome:
    """The outcome of ours; any other exception than the two kinds is a fault."""
    try:
        return Outcome(call())
    except CommitFailedError as error:
        return Outcome(None, "conflict", str(error))
    except BadIcebergRequestError as error:
        return Outcome(None, "refused", str(error))


def kind_of(verdict: Verdict) -> str:
    """What Java's exception means to a client."""
    if not verdict.error:
        return ""
    return "conflict" if verdict.error in CONFLICTS else "refused"


DIFFERENCES: Mapping[str, str] = {
    r"Cannot set last (added|version)": (
        "An item that the table has already counts as added last: the client does not know that somebody was faster."
    ),
    r"Invalid snapshot with sequence number": (
        "A stale sequence number is a conflict also if the snapshot has no parent: the client may try again."
    ),
    r"Cannot parse missing int: spec-id": "The REST protocol does not require the id of a new partition spec.",
    r"Cannot parse to a long value: parent-snapshot-id: null": "Other libraries write null for what is absent.",
    r"Cannot create expression literal from null": "Other libraries write null for what is absent.",
    r"arraySize cannot be negative": (
        "Java fails to make a list if more snapshots are to be removed than there are; unknown ones are ignored."
    ),
}
"""By what Java says: requests that we answer otherwise, and why."""


def differs(verdict: Verdict, ours: Outcome) -> bool:
    """Whether we differ from Java on purpose, or found another mistake first in a request that has two."""
    stale = ours.message.startswith("Validation failed, please retry") and kind_of(verdict) == "refused"
    return stale or any(re.match(text, verdict.message) for text in DIFFERENCES)


def commit_both(
    judge: Judge,
    base: Mapping[str, Any] | None,
    updates: Sequence[Mapping[str, Any]],
    requirements: Sequence[Mapping[str, Any]] = (),
) -> Outcome:
    """Commit to a table in both worlds, and compare; the outcome is ours."""
    verdict = judge.table(None if base is None else json.loads(render_metadata(base)), updates, requirements)
    now_ms = verdict.result["last-updated-ms"] if verdict.result else int(time.time() * 1000)
    if base is not None and now_ms == base["last-updated-ms"]:
        now_ms += 1  # Java changed nothing: ours would show that it did

    def commit() -> dict[str, Any]:
        check_requirements(requirements, base)
        return apply_updates(base, updates, now_ms=now_ms, table_uuid=UUID)

    ours = outcome_of(commit)
    if ours.error == "conflict" and kind_of(verdict) == "refused" and requirements:
        # Java reads all of the request before it checks what is required: both are wrong with this one.
        ours = outcome_of(lambda: apply_updates(base, updates, now_ms=now_ms, table_uuid=UUID))
    if not differs(verdict, ours):
        assert ours.error == kind_of(verdict), (verdict.error, verdict.message, ours)
        if verdict.error == "CommitFailedException":
            assert ours.message == verdict.message
        if ours.metadata is not None:
            assert comparable(json.loads(render_metadata(ours.metadata))) == comparable(verdict.result)
    return ours


def commit_both_views(
    judge: Judge,
    base: Mapping[str, Any],
    updates: Sequence[Mapping[str, Any]],
    requirements: Sequence[Mapping[str, Any]] = (),
) -> Outcome:
    """Commit to a view in both worlds, and compare; the outcome is ours."""
    verdict = judge.view(json.loads(render_view_metadata(base)), updates, requirements)
    now_ms = verdict.result["version-log"][-1]["timestamp-ms"] if verdict.result else 0

    def commit() -> dict[str, Any]:
        check_view_requirements(requirements, base)
        return apply_view_updates(base, updates, now_ms=now_ms)

    ours = outcome_of(commit)
    if ours.error == "conflict" and kind_of(verdict) == "refused" and requirements:
        ours = outcome_of(lambda: apply_view_updates(base, updates, now_ms=now_ms))
    if not differs(verdict, ours):
        assert ours.error == kind_of(verdict), (verdict.error, verdict.message, ours)
        if verdict.error == "CommitFailedException":
            assert ours.message == verdict.message
        if ours.metadata is not None:
            assert comparable_view(json.loads(render_view_metadata(ours.metadata))) == comparable_view(verdict.result)
    return ours
