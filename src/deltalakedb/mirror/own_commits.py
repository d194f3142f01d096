"""The commitInfo of commits that no user proposed: the fence and the compensating commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.log.protocol.actions import CommitInfo, Metadata
from deltalakedb.log.protocol.commit_info import Mark, Participant, render_commit_info
from deltalakedb.log.protocol.completion import has_in_commit_timestamps
from deltalakedb.store.ratify import ENGINE_INFO
from deltalakedb.store.registry import TableRow


def own_commit_info(
    table: TableRow,
    *,
    catalog_id: str,
    txn_id: str,
    committed_at_ms: int,
    timestamp_ms: int,
    version: int,
    operation: str,
    parameters: Mapping[str, Any],
    metadata: Metadata,
    actor: str | None,
    message: str | None = None,
) -> CommitInfo:
    """The commitInfo of a commit to this table alone, with our mark; `metadata` is the table's before the commit."""
    mark = Mark(
        catalog_id=catalog_id,
        table_id=table.table_id,
        table_uuid=table.table_uuid,
        table=table.full_name,
        txn_id=txn_id,
        committed_at_ms=committed_at_ms,
        participants=(Participant(table.table_id, table.table_uuid, version),),
        actor=actor,
        message=message,
        files_owner=table.files_owner,
    )
    return render_commit_info(
        mark,
        timestamp_ms=timestamp_ms,
        operation=operation,
        operation_parameters=parameters,
        operation_metrics={},
        read_version=version - 1,
        is_blind_append=False,
        engine_info=ENGINE_INFO,
        in_commit_timestamps=has_in_commit_timestamps(metadata),
    )
