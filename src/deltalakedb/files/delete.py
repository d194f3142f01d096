"""Deletes a table's folder: data first, log last, so that the log identifies what remains after a crash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from deltalakedb.exceptions import DeltaError, StorageError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import parse_location
from deltalakedb.storage.opening import open_storage

OWN_FOLDERS = ("_dldb", LOG_FOLDER)
"""The folders that we keep beside a table's data; the log is deleted last."""


def delete_table(location: str, options: Mapping[str, str] | None = None) -> None:
    """Delete a table's folder with all its content; missing files are no error."""
    if not parse_location(location, options).path.strip("/"):
        raise DeltaError(f"{redact(location)} is a whole disk or bucket: it is not purged; delete the files yourself")
    storage = open_storage(location, options)
    with _deleting():
        storage.delete_folder("", keep=LOG_FOLDER)
        reached("drop.data_deleted")
        storage.delete_folder(LOG_FOLDER)
        storage.delete_folder("")  # on a disk: the folder itself


def delete_named_files(location: str, paths: Iterable[str], options: Mapping[str, str] | None = None) -> None:
    """Delete some files below a table's location, then its log; everything else in the folder stays."""
    storage = open_storage(location, options)
    with _deleting():
        storage.delete(*paths)
        reached("drop.data_deleted")
        for folder in OWN_FOLDERS:
            storage.delete_folder(folder)
        storage.delete_empty_folders()


@contextmanager
def _deleting() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise DeltaError(
            f"{error.what}; `dl mirror once` tries again, or delete by hand what is left"
        ) from error.__cause__
