"""Owns the statement that commits files which are there already, and ends others, as their bringer says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltalakedb.definitions.table import with_schema
from deltalakedb.log.actions import Action, AddFile, RemoveFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.file_filters import Conjunction, check_encoded, read_file_filters
from deltalakedb.log.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.rows import add_from_row
from deltalakedb.log.types import StructType
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
    """Files that are there already become part of the table; `overwrite` ends those of the partitions that match.

    A file that is brought again is not ended. With `overwrite` another schema becomes the table's.
    """
    check_mode(mode)
    groups = check_encoded(partition_filters)
    _refuse_mixed(adds, removes, mode)
    changes: list[Action] = []
    read = NOTHING_READ
    if mode == "overwrite":
        brought = {add.path for add in adds}
        removes, read = _matching(target, groups, brought)
        if schema.to_json() != target.schema.to_json():
            changes = with_schema(target.protocol, target.metadata, schema, table=target.name, history=target.history)
    elif removes:
        removes = _as_live(target, removes)
        read = ReadSet(files=frozenset(remove.key for remove in removes))
    if any(remove.data_change for remove in removes):
        refuse_changed_rows(target.metadata, target.name, "removed")
    parameters = {"mode": {"error": "ErrorIfExists"}.get(mode, mode.capitalize())}
    if partition_by:
        parameters["partitionBy"] = to_json(list(partition_by))
    commit = ProposedCommit(
        actions=(*changes, *removes, *adds), operation="WRITE", operation_parameters=parameters, read=read,
        may_be_elsewhere=True,
    )  # fmt: skip
    return Done(commit)


def _refuse_mixed(adds: Sequence[AddFile], removes: Sequence[RemoveFile], mode: str) -> None:
    if removes and mode == "overwrite":
        raise ValueError(
            "mode='overwrite' finds the files it ends by the partition filters: a RemoveAction goes with mode='append'"
        )
    both = {add.path for add in adds} & {remove.path for remove in removes}
    if both:
        raise ValueError(f"a file is added or removed by a transaction, not both: {min(both)}")


def _matching(target: Target, groups: list[Conjunction] | None, brought: set[str]) -> tuple[list[RemoveFile], ReadSet]:
    now_ms = time.time_ns() // 1_000_000
    if groups is not None:
        chosen = read_file_filters(groups, target.schema, target.metadata.partition_columns)
        files, read = chosen.choose(target.plan(chosen.predicate)), ReadSet(predicates=(chosen.predicate,))
    else:
        files, read = target.snapshot.files_table(), WHOLE_TABLE
    live = (add_from_row(row) for row in files.to_pylist())
    return [RemoveFile.of(add, at_ms=now_ms) for add in live if add.path not in brought], read


def _as_live(target: Target, removes: Sequence[RemoveFile]) -> list[RemoveFile]:
    """The removes under the keys that their files are live under; one that is not live stays as it was given."""
    wanted = {remove.path for remove in removes}
    rows = target.snapshot.files_table().to_pylist()
    live = {add.path: add for add in map(add_from_row, rows) if add.path in wanted}
    found = []
    for remove in removes:
        add = live.get(remove.path)
        if add is None:
            found.append(remove)
            continue
        ended = RemoveFile.of(add, at_ms=remove.deletion_timestamp or 0, data_change=remove.data_change)
        found.append(replace(ended, deletion_timestamp=remove.deletion_timestamp))
    return found
