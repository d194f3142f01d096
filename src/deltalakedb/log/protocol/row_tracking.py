"""Owns row ids: assigned when a commit is ratified, so that no two rows of a table ever share one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.protocol.actions import Action, AddFile, DomainMetadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.statistics.stats import count_or_none, load_stats

DOMAIN: Final = "delta.rowTracking"
_MARK: Final = "rowIdHighWaterMark"


def high_water_mark(domain: DomainMetadata | None) -> int:
    """The largest row id assigned so far; -1 before the first."""
    if domain is None or domain.removed:
        return -1
    value = json.loads(domain.configuration).get(_MARK)
    return value if isinstance(value, int) else -1


def mark_domain(mark: int) -> DomainMetadata:
    """The action that records the largest row id assigned so far."""
    return DomainMetadata(DOMAIN, to_json({_MARK: mark}), removed=False)


def assign_row_ids(
    actions: Sequence[Action], *, version: int, mark: int, table: str, first_new: int
) -> tuple[list[Action], int]:
    """Assigns ids to adds that have none, or one that the proposer guessed (from `first_new` on); returns the new
    mark."""
    assigned: list[Action] = []
    new_mark = mark
    for action in actions:
        if isinstance(action, DomainMetadata) and action.domain == DOMAIN:
            continue  # replaced below: the proposer's mark is older than the lock
        if isinstance(action, AddFile) and (action.base_row_id is None or action.base_row_id >= first_new):
            stats = load_stats(action.stats) if action.stats else None
            records = count_or_none((stats or {}).get("numRecords"))
            if records is None:
                raise InvalidCommitError(
                    f"table {table}: {action.path} has no numRecords in its statistics; row tracking needs it"
                )
            assigned.append(replace(action, base_row_id=new_mark + 1, default_row_commit_version=version))
            new_mark += records
        else:
            assigned.append(action)
    if new_mark != mark:
        assigned.append(mark_domain(new_mark))
    return assigned, new_mark
