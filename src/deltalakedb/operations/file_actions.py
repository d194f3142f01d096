"""The statement that commits existing files, and removes others, as the caller says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltalakedb.log.predicates.file_filters import Conjunction, check_encoded, read_file_filters
from deltalakedb.log.protocol.actions import Action, AddFile, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.definition import with_schema
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target
from deltalakedb.operations.write import WriteMode, check_mode


def commit_files(
    target: Target,
    adds: Sequence[AddFile],
    removes: Sequence[RemoveFile],
    mode: WriteMode,
    schema: StructType,
    partition_by: Sequence[str] = (),
    partition_filters: Any = None,
) -> Done:
    """Add existing files to the table; `overwrite` removes the files of the matching partitions.

    A file that is added again is not removed. With `overwrite`, a different schema replaces the table's.
    """
    check_mode(mode)
    groups = check_encoded(partition_filters)
    _refuse_mixed(adds, removes, mode)
    changes: list[Action] = []
    read = NOTHING_READ
    if mode == "overwrite":
        added_paths = {add.path for add in adds}
        removes, read = _matching(target, groups, added_paths)
        if schema.to_json() != target.schema.to_json():
            changes = with_schema(target.protocol, target.metadata, schema, table=target.name, history=target.history)
    elif removes:
        removes = _as_live(target, removes)
        read = ReadSet(files=frozenset(remove.key for remove in removes))
    if any(remove.data_change for remove in removes):
        refuse_changed_rows(target.metadata, target.name, "removed")
    parameters = {
        "mode": {"error": "ErrorIfExists"}.get(mode, mode.capitalize()),
        "partitionBy": to_json(list(partition_by)),
    }
    commit = ProposedCommit(
        actions=(*changes, *removes, *adds), operation="WRITE", operation_parameters=parameters, read=read,
        may_be_elsewhere=True,
    )  # fmt: skip
    return Done(commit)


def _refuse_mixed(adds: Sequence[AddFile], removes: Sequence[RemoveFile], mode: str) -> None:
    if removes and mode == "overwrite":
        raise ValueError(
            "RemoveAction is not supported with mode='overwrite'; overwrite already removes the existing files that "
            "match the partition filters"
        )
    both = {add.path for add in adds} & {remove.path for remove in removes}
    if both:
        raise ValueError(f"Cannot add and remove the same file path in one transaction: {min(both)}")


def _matching(target: Target, groups: list[Conjunction] | None, brought: set[str]) -> tuple[list[RemoveFile], ReadSet]:
    now_ms = time.time_ns() // 1_000_000
    if groups is not None:
        file_filters = read_file_filters(groups, target.schema, target.metadata.partition_columns)
        files, read = (
            file_filters.choose(target.plan(file_filters.predicate)),
            ReadSet(predicates=(file_filters.predicate,)),
        )
    else:
        files, read = target.snapshot.files_table(), WHOLE_TABLE
    live = (add_from_row(row) for row in files.to_pylist())
    return [RemoveFile.of(add, at_ms=now_ms) for add in live if add.path not in brought], read


def _as_live(target: Target, removes: Sequence[RemoveFile]) -> list[RemoveFile]:
    """Return the removes with the exact keys of the live files; a remove of a file that is not live stays as given."""
    removed_paths = {remove.path for remove in removes}
    rows = target.snapshot.files_table().to_pylist()
    live = {add.path: add for add in map(add_from_row, rows) if add.path in removed_paths}
    results = []
    for remove in removes:
        add = live.get(remove.path)
        if add is None:
            results.append(remove)
            continue
        live_remove = RemoveFile.of(add, at_ms=remove.deletion_timestamp or 0, data_change=remove.data_change)
        results.append(replace(live_remove, deletion_timestamp=remove.deletion_timestamp))
    return results
