"""Deletes a table's folder: data first, log last, so that the log identifies what remains after a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from obstore.exceptions import BaseError

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import Location, parse_location
from deltalakedb.storage.log_storage import epoch_ms
from deltalakedb.storage.options import Credentials, open_object_store

OWN_FOLDERS = ("_dldb", LOG_FOLDER)
"""The folders that we keep beside a table's data; the log is deleted last."""

_DELETE_AT_ONCE = 1_000
_MAX_LISTINGS = 100


def delete_table(location: str, options: Mapping[str, str] | None = None) -> None:
    """Delete a table's folder with all its content; missing files are no error."""
    parsed = parse_location(location, options)
    if not parsed.path.strip("/"):
        raise DeltaError(f"{redact(location)} is a whole disk or bucket: it is not purged; delete the files yourself")
    if parsed.scheme == "file":
        _delete_local(parsed)
    else:
        _delete_objects(parsed, options or {})


def delete_named_files(location: str, paths: Iterable[str], options: Mapping[str, str] | None = None) -> None:
    """Delete some files below a table's location, then its log; everything else in the folder stays.

    On a disk Hadoop keeps the checksum of `NAME` in `.NAME.crc` beside it, which is deleted with the file.
    """
    parsed = parse_location(location, options)
    if parsed.scheme == "file":
        try:
            for path in paths:
                file = os.path.join(parsed.path, path)
                _delete(file)
                _delete(os.path.join(os.path.dirname(file), f".{os.path.basename(file)}.crc"))
            reached("drop.data_deleted")
            for folder in OWN_FOLDERS:
                _delete(os.path.join(parsed.path, folder))
            _remove_empty_folders(parsed.path)
        except OSError as error:
            raise _not_deleted(parsed, error.strerror or str(error)) from error
        return
    credentials = Credentials.of(options or {})
    store: Any = open_object_store(parsed, options or {}, credentials)
    try:
        keys = [f"{parsed.path}/{path}" for path in paths]
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            store.delete(keys[start : start + _DELETE_AT_ONCE])
        reached("drop.data_deleted")
        for folder in OWN_FOLDERS:
            for batch in _listed(store, f"{parsed.path}/{folder}/", lambda _: True):
                store.delete(batch)
    except BaseError as error:
        raise _not_deleted(parsed, credentials.explain(error)) from None


def _remove_empty_folders(path: str) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # not empty
            os.rmdir(folder)


def delete_folder(location: str, folder: str, options: Mapping[str, str] | None = None) -> None:
    """Delete one folder below a table's location with all its content; missing files are no error."""
    parsed = parse_location(location, options)
    target = replace(parsed, path=f"{parsed.path}/{folder}")
    if parsed.scheme == "file":
        try:
            _delete(target.path)
        except OSError as error:
            raise _not_deleted(target, error.strerror or str(error)) from error
        return
    credentials = Credentials.of(options or {})
    store: Any = open_object_store(parsed, options or {}, credentials)
    try:
        for batch in _listed(store, f"{target.path}/", lambda _: True):
            store.delete(batch)
    except BaseError as error:
        raise _not_deleted(target, credentials.explain(error)) from None


def newest_ms(location: str, folder: str, options: Mapping[str, str] | None = None) -> int:
    """The latest modification time below a folder, in epoch milliseconds; 0 if it is empty."""
    parsed = parse_location(location, options)
    if parsed.scheme == "file":
        times = [0]
        for parent, _, names in os.walk(f"{parsed.path}/{folder}"):
            for path in (parent, *(os.path.join(parent, name) for name in names)):
                with suppress(FileNotFoundError):
                    times.append(os.stat(path).st_mtime_ns // 1_000_000)
        return max(times)
    credentials = Credentials.of(options or {})
    store: Any = open_object_store(parsed, options or {}, credentials)
    try:
        pages = store.list(f"{parsed.path}/{folder}/", chunk_size=_DELETE_AT_ONCE)
        return max((epoch_ms(meta) for page in pages for meta in page), default=0)
    except BaseError as error:
        raise DeltaError(f"cannot list {parsed.uri}/{folder}: {credentials.explain(error)}") from None


def _delete_local(place: Location) -> None:
    try:
        with suppress(FileNotFoundError):
            for name in os.listdir(place.path):
                if name != LOG_FOLDER:
                    _delete(os.path.join(place.path, name))
            reached("drop.data_deleted")
            _delete(os.path.join(place.path, LOG_FOLDER))
            os.rmdir(place.path)
    except OSError as error:
        raise _not_deleted(place, error.strerror or str(error)) from error


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _delete_objects(place: Location, options: Mapping[str, str]) -> None:
    credentials = Credentials.of(options)
    store: Any = open_object_store(place, options, credentials)
    log = f"{place.path}/{LOG_FOLDER}/"
    try:
        for batch in _listed(store, f"{place.path}/", lambda path: not path.startswith(log)):
            store.delete(batch)
        reached("drop.data_deleted")
        for batch in _listed(store, log, lambda _: True):
            store.delete(batch)
    except BaseError as error:
        raise _not_deleted(place, credentials.explain(error)) from None


def _listed(store: Any, prefix: str, wanted: Callable[[str], bool]) -> Iterator[list[str]]:
    """Batches of existing objects; lists again until none is left: a listing may skip objects after deletions."""
    for _ in range(_MAX_LISTINGS):
        any_listed = False
        for page in store.list(prefix, chunk_size=_DELETE_AT_ONCE):
            batch = [meta["path"] for meta in page if wanted(meta["path"])]
            if batch:
                any_listed = True
                yield batch
        if not any_listed:
            return


def _not_deleted(place: Location, reason: str) -> DeltaError:
    return DeltaError(
        f"cannot delete {place.uri}: {reason}; `dl mirror once` tries again, or delete by hand what is left"
    )
