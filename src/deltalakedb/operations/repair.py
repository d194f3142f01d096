"""FSCK: finds the files that the log names and that no longer exist, and removes them from the table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    from deltalakedb.storage.interface import Storage


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


_ASKING: Final = 16


def missing_files(storage: Storage, adds: Sequence[AddFile], *, vectors: bool = False) -> list[AddFile]:
    """Return the adds, in order, whose data file is missing, or with `vectors` their deletion vector.

    Raises StorageError if the storage fails to answer.
    """
    with ThreadPoolExecutor(_ASKING if storage.is_remote else 4, thread_name_prefix="deltalakedb-look") as pool:
        presence = pool.map(lambda add: all(_is_there(storage, path) for path in _paths(add, vectors)), adds)
        return [add for add, exists in zip(adds, presence, strict=True) if not exists]


def _paths(add: AddFile, vectors: bool) -> Iterator[str]:
    yield add.path
    if vectors and add.deletion_vector is not None:
        from deltalakedb.data.deletion_vectors import vector_file

        path = vector_file(add.deletion_vector)
        if path is not None:
            yield path


def _is_there(storage: Storage, path: str) -> bool:
    from deltalakedb.storage.location import open_named

    try:
        open_named(storage, path).close()
    except FileNotFoundError:
        return False
    return True
