"""FSCK: removes files from the table that the log names and that no longer exist."""

from __future__ import annotations

import time

from deltalakedb.log.protocol.actions import RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.presence import missing_files
from deltalakedb.operations.target import Done, Target


def repair(target: Target, *, dry_run: bool) -> Done:
    """Return the commit that removes missing files; none if nothing is missing, or for a dry run."""
    adds = [add_from_row(row) for row in target.snapshot.files_table().to_pylist()]
    missing = missing_files(target.storage, adds)
    paths = [add.path for add in missing]
    metrics = {"dry_run": dry_run, "files_removed": paths}
    if dry_run or not missing:
        return Done(None, metrics, WHOLE_TABLE)
    now_ms = time.time_ns() // 1_000_000
    commit = ProposedCommit(
        tuple(RemoveFile.of(add, at_ms=now_ms) for add in missing),
        "FSCK",
        operation_metrics={"dry_run": False, "files_removed": to_json(paths)},
        read=ReadSet(files=frozenset(add.key for add in missing)),
    )
    return Done(commit, metrics)
