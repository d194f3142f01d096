"""Tells which of a table's files are gone, by asking for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.actions import AddFile
from deltalakedb.log.paths import check_path, decode_path, is_absolute

if TYPE_CHECKING:
    from deltalakedb.data import DataStorage

_ASKING: Final = 16


def missing_files(storage: DataStorage, adds: Sequence[AddFile], *, vectors: bool = False) -> list[AddFile]:
    """Those whose data file, or with `vectors` deletion vector, is not there; DeltaError when the storage does not say.

    They come in their order.
    """
    with ThreadPoolExecutor(_ASKING if storage.is_remote else 4, thread_name_prefix="deltalakedb-look") as pool:
        there = pool.map(lambda add: all(_is_there(storage, path) for path in _paths(add, vectors)), adds)
        return [add for add, found in zip(adds, there, strict=True) if not found]


def _paths(add: AddFile, vectors: bool) -> Iterator[str]:
    yield add.path
    if vectors and add.deletion_vector is not None:
        from deltalakedb.data.deletion_vectors import vector_file

        path = vector_file(add.deletion_vector)
        if path is not None:
            yield path


def _is_there(storage: DataStorage, path: str) -> bool:
    try:
        if is_absolute(path):
            opened = storage.open_elsewhere(path)
        else:
            check_path(path, where=storage.location)
            opened = storage.open(decode_path(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DeltaError(f"cannot look for {path} of {storage.location}: {error.strerror or error}") from error
    opened.close()
    return True
