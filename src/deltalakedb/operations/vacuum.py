"""Owns VACUUM: which files of a table no kept version needs, and their deletion.

A version is kept when it was the newest one at any time within the retention, or is asked to be. Everything is held
against paths: the same file may be named by many versions, with and without a deletion vector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import DeltaError
from deltalakedb.files.tree import ListedFile, list_files
from deltalakedb.log import paths
from deltalakedb.log.actions import AddCDCFile, AddFile, DeletionVector, Metadata
from deltalakedb.log.codec import deletion_vector_from_json
from deltalakedb.log.retention import deleted_file_retention_ms
from deltalakedb.log.text import from_sql_text
from deltalakedb.log.txnlog import LogSnapshot, TxnLogReader

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import DataStorage

HOUR_MS: Final = 3_600_000
DEFAULT_RETENTION_MS: Final = 168 * HOUR_MS
_CHANGE_DATA: Final = "_change_data"
_LOG: Final = "_delta_log"
_DELETING: Final = 16
_FOR_EVER_MS: Final = 100 * 366 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Retention:
    """How long removed files are kept: what the table says, and what was asked for."""

    configured_ms: int
    asked_ms: int | None
    enforced: bool

    @property
    def kept_ms(self) -> int:
        return self.configured_ms if self.asked_ms is None else self.asked_ms

    @classmethod
    def of(cls, metadata: Metadata, hours: float | None, *, enforced: bool, default_ms: int, table: str) -> Retention:
        """The retention in force; DeltaError when less is asked for than the table promises."""
        try:
            configured = deleted_file_retention_ms(metadata.configuration, default_ms)
        except ValueError:
            configured = _FOR_EVER_MS  # what cannot be read keeps everything, which can be mended later
        asked = None if hours is None else int(hours * HOUR_MS)
        if enforced and asked is not None and asked < configured:
            raise DeltaError(
                f"table {table}: a retention of {hours:g} hours is less than the {configured / HOUR_MS:g} hours that "
                "the table promises (delta.deletedFileRetentionDuration): readers of older versions would lose their "
                "files; enforce_retention_duration=False deletes them all the same"
            )
        return cls(configured, asked, enforced)


@dataclass(frozen=True, slots=True)
class Doomed:
    """Files that may go, by their paths below the table; and the version up to which this was looked at."""

    files: tuple[ListedFile, ...]
    version: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table's files lie."""

    location: str
    options: Mapping[str, str] | None
    storage: DataStorage


def find_doomed(
    log: TxnLogReader, newest: LogSnapshot, place: Place, *, since: int, cutoff_ms: int, keep: Sequence[int], full: bool
) -> Doomed:
    """What no kept version needs: every version from `since` on, and those of `keep`.

    Without `full` only files that the log says were removed are looked at; with it all that lie below the table, except
    what was written after the cut-off, and folders whose names begin with `_` or `.` (but `_change_data`).
    """
    needed = _Needed(place.location)
    for version in dict.fromkeys((since, *keep)):
        needed.take_snapshot(log.snapshot(version))
    needed.take_snapshot(newest)
    needed.take_commits(log, since, newest.version)
    for version in keep:
        needed.take_change_data(log, version)
    removed = _removed(newest, place, needed.paths)
    if not full:
        return Doomed(tuple(_those_there(place.storage, removed)), newest.version)
    listed = _visible(list(list_files(place.location, place.options)), newest.metadata)
    unneeded = (file for file in listed if file.path not in needed.paths)
    doomed = [file for file in unneeded if file.path in removed or file.modified_ms <= cutoff_ms]
    return Doomed(tuple(doomed), newest.version)


def still_doomed(log: TxnLogReader, doomed: Doomed, location: str) -> Doomed:
    """The same without files that commits have named since: a restore may bring one back."""
    needed = _Needed(location)
    for commit in log.commits(doomed.version + 1):
        needed.take_actions(commit.actions)
    return Doomed(tuple(file for file in doomed.files if file.path not in needed.paths), doomed.version)


def delete_files(
    storage: DataStorage,
    files: Sequence[ListedFile],
    progress: Callable[[int], None] | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Delete them; how many are gone. What cannot be deleted is an error, after all others were tried.

    `check` is called before each deletion; where it raises a DeltaError, the file stays.
    """
    failures: list[DeltaError] = []

    def delete(file: ListedFile) -> int:
        try:
            if check is not None:
                check()
            storage.delete(file.path)
        except DeltaError as error:
            failures.append(error)
            return 0
        return 1

    done = 0
    with ThreadPoolExecutor(_DELETING, thread_name_prefix="deltalakedb-vacuum") as pool:
        for one in pool.map(delete, files):
            done += one
            if progress is not None:
                progress(1)
    if failures:
        raise DeltaError(f"{len(failures)} of {len(files)} files could not be deleted, the first: {failures[0]}")
    return done


@dataclass(slots=True)
class _Needed:
    """Paths below the table that must stay."""

    location: str
    paths: set[str] = field(default_factory=set)

    def take_snapshot(self, snapshot: LogSnapshot) -> None:
        for batch in snapshot.files():
            self.paths.update(_paths_of(batch, self.location))

    def take_commits(self, log: TxnLogReader, start: int, end: int) -> None:
        """What commits of kept versions name: a file may come and go between two of them."""
        first = max(start, log.earliest_version())
        if not log.has_commit(first):
            first += 1
        if first <= end:
            for commit in log.commits(first, end):
                self.take_actions(commit.actions)

    def take_change_data(self, log: TxnLogReader, version: int) -> None:
        if log.has_commit(version):
            for commit in log.commits(version, version):
                self.take_actions(commit.actions)

    def take_actions(self, actions: Iterable[object]) -> None:
        for action in actions:
            if isinstance(action, AddFile | AddCDCFile):
                self.paths.update(_inside(self.location, action.path))
            if isinstance(action, AddFile) and action.deletion_vector is not None:
                self.paths.update(_vector_path(action.deletion_vector, self.location))


def _removed(newest: LogSnapshot, place: Place, needed: set[str]) -> dict[str, int]:
    """Paths of removed files, and of their vectors, that are not needed; with their sizes."""
    found: dict[str, int] = {}
    for batch in newest.tombstones():
        sizes = batch.column("size").to_pylist()
        for path, size in zip(batch.column("path").to_pylist(), sizes, strict=True):
            found.update((inside, size or 0) for inside in _inside(place.location, from_sql_text(path)))
        for text in batch.column("deletion_vector").drop_null().to_pylist():
            vector = deletion_vector_from_json(text)
            found.update((path, vector.size_in_bytes) for path in _vector_path(vector, place.location))
    return {path: size for path, size in found.items() if path not in needed}


def _those_there(storage: DataStorage, removed: Mapping[str, int]) -> Iterator[ListedFile]:
    def look(path: str) -> bool:
        try:
            storage.open(path).close()
        except FileNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(_DELETING, thread_name_prefix="deltalakedb-vacuum") as pool:
        for (path, size), there in zip(removed.items(), pool.map(look, removed), strict=True):
            if there:
                yield ListedFile(path, size, 0)


def _paths_of(batch: pa.RecordBatch, location: str) -> Iterator[str]:
    for path in batch.column("path").to_pylist():
        yield from _inside(location, from_sql_text(path))
    for text in batch.column("deletion_vector").drop_null().to_pylist():
        yield from _vector_path(deletion_vector_from_json(text), location)


def _inside(location: str, path: str) -> Iterator[str]:
    """A logged path below the table as its store spells it; nothing for a file that lies elsewhere."""
    if not paths.is_absolute(path):
        yield paths.decode_path(path)
        return
    at = paths.resolve(location, path)
    root = location.rstrip("/") + "/"
    local, local_root = paths.local_path(at), paths.local_path(root)
    if local is not None and local_root is not None:
        if local.startswith(local_root.rstrip("/") + "/"):
            yield local.removeprefix(local_root.rstrip("/") + "/")
    elif at.startswith(root):
        yield at.removeprefix(root)


def _vector_path(vector: DeletionVector, location: str) -> Iterator[str]:
    from deltalakedb.data.deletion_vectors import vector_file

    path = vector_file(vector)
    if path is not None:
        yield from _inside(location, path)


def _visible(files: Sequence[ListedFile], metadata: Metadata) -> Iterator[ListedFile]:
    """Those that may be data of this table: no hidden folders, and no folder of another table."""
    others = {file.path.partition(f"/{_LOG}/")[0] for file in files if f"/{_LOG}/" in file.path}
    partitions = tuple(f"{name}=" for name in metadata.partition_columns)
    for file in files:
        parts = file.path.split("/")
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        if any(_is_hidden(part, partitions) for part in parts) or any(folder in others for folder in folders):
            continue
        yield file


def _is_hidden(part: str, partitions: tuple[str, ...]) -> bool:
    return part.startswith(("_", ".")) and part != _CHANGE_DATA and not part.startswith(partitions or ("\0",))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
