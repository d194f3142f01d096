"""Finds the files of a table that no longer exist in storage, by opening each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from deltalakedb.log.protocol.actions import AddFile

if TYPE_CHECKING:
    from deltalakedb.storage.interface import Storage

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
    from deltalakedb.storage.opening import open_named

    try:
        open_named(storage, path).close()
    except FileNotFoundError:
        return False
    return True
