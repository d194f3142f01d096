"""VACUUM: finds the files of a table that no kept version needs, and deletes them.

A version is kept if it was the newest one at any time within the retention, or the caller asks to keep it. Files are
compared by path: many versions may name the same file, with and without a deletion vector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.checks.properties import deleted_file_retention_ms
from deltalakedb.log.protocol import paths
from deltalakedb.log.protocol.actions import AddCDCFile, AddFile, DeletionVector, Metadata
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text
from deltalakedb.log.protocol.txnlog import LogSnapshot, TxnLogReader
from deltalakedb.storage.interface import ListedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.storage.interface import Storage

HOUR_MS: Final = 3_600_000
DEFAULT_RETENTION_MS: Final = 168 * HOUR_MS
_CHANGE_DATA: Final = "_change_data"
_LOG: Final = "_delta_log"
_DELETING: Final = 16
_FOR_EVER_MS: Final = 100 * 366 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Retention:
    """How long removed files are kept: the table's setting, and what the caller asked for."""

    configured_ms: int
    asked_ms: int | None
    enforced: bool

    @property
    def kept_ms(self) -> int:
        return self.configured_ms if self.asked_ms is None else self.asked_ms

    @classmethod
    def of(cls, metadata: Metadata, hours: float | None, *, enforced: bool, default_ms: int, table: str) -> Retention:
        """Return the retention in force; DeltaError if the caller asks for less than the table's setting."""
        try:
            configured = deleted_file_retention_ms(metadata.configuration, default_ms)
        except ValueError:
            configured = _FOR_EVER_MS  # an unreadable setting keeps all files; it can be corrected later
        asked_ms = None if hours is None else int(hours * HOUR_MS)
        if enforced and asked_ms is not None and asked_ms < configured:
            raise DeltaError(
                "Generic error: Invalid retention period, minimum retention for vacuum is configured to be greater "
                f"than {configured / HOUR_MS:g} hours, got {hours:g} hours. Readers of older versions of {table} would "
                "lose their files (delta.deletedFileRetentionDuration); enforce_retention_duration=False deletes them "
                "all the same"
            )
        return cls(configured, asked_ms, enforced)


@dataclass(frozen=True, slots=True)
class Doomed:
    """Files to delete, by path below the table, and the version up to which commits were considered."""

    files: tuple[ListedFile, ...]
    version: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table's files are stored."""

    location: str
    storage: Storage


def find_doomed(
    log: TxnLogReader, newest: LogSnapshot, place: Place, *, since: int, cutoff_ms: int, keep: Sequence[int], full: bool
) -> Doomed:
    """Return the files that no kept version needs; every version from `since` on is kept, and those of `keep`.

    Without `full`, only files that the log removed are considered; with it, all files below the table, except those
    written after the cut-off and those in folders whose name begins with `_` or `.` (other than `_change_data`).
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
    all_files = _visible(list(place.storage.walk()), newest.metadata)
    unneeded = (file for file in all_files if file.path not in needed.paths)
    doomed = [file for file in unneeded if file.path in removed or file.modified_ms <= cutoff_ms]
    return Doomed(tuple(doomed), newest.version)


def still_doomed(log: TxnLogReader, doomed: Doomed, location: str) -> Doomed:
    """Return the same without files that later commits name: a restore may have brought one back."""
    needed = _Needed(location)
    for commit in log.commits(doomed.version + 1):
        needed.take_actions(commit.actions)
    return Doomed(tuple(file for file in doomed.files if file.path not in needed.paths), doomed.version)


def delete_files(
    storage: Storage,
    files: Sequence[ListedFile],
    progress: Callable[[int], None] | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Delete files and return how many were deleted. Failures are raised after all files were tried.

    `check` is called before each deletion; if it raises a DeltaError, the file is kept.
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

    num_deleted = 0
    with ThreadPoolExecutor(_DELETING, thread_name_prefix="deltalakedb-vacuum") as pool:
        for deleted in pool.map(delete, files):
            num_deleted += deleted
            if progress is not None:
                progress(1)
    if failures:
        raise DeltaError(f"{len(failures)} of {len(files)} files could not be deleted, the first: {failures[0]}")
    return num_deleted


@dataclass(slots=True)
class _Needed:
    """Paths below the table that must be kept."""

    location: str
    paths: set[str] = field(default_factory=set)

    def take_snapshot(self, snapshot: LogSnapshot) -> None:
        for batch in snapshot.files():
            self.paths.update(_paths_of(batch, self.location))

    def take_commits(self, log: TxnLogReader, start: int, end: int) -> None:
        """Add the files that commits of kept versions name: a file may be added and removed between two snapshots."""
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
    """Return the sizes of removed files and their vectors that are not needed, by path."""
    removed: dict[str, int] = {}
    for batch in newest.tombstones():
        sizes = batch.column("size").to_pylist()
        for path, size in zip(batch.column("path").to_pylist(), sizes, strict=True):
            removed.update((relative_path, size or 0) for relative_path in _inside(place.location, from_sql_text(path)))
        for text in batch.column("deletion_vector").drop_null().to_pylist():
            vector = deletion_vector_from_json(text)
            removed.update((path, vector.size_in_bytes) for path in _vector_path(vector, place.location))
    return {path: size for path, size in removed.items() if path not in needed}


def _those_there(storage: Storage, removed: Mapping[str, int]) -> Iterator[ListedFile]:
    def look(path: str) -> bool:
        try:
            storage.open(path).close()
        except FileNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(_DELETING, thread_name_prefix="deltalakedb-vacuum") as pool:
        for (path, size), exists in zip(removed.items(), pool.map(look, removed), strict=True):
            if exists:
                yield ListedFile(path, size, 0)


def _paths_of(batch: pa.RecordBatch, location: str) -> Iterator[str]:
    for path in batch.column("path").to_pylist():
        yield from _inside(location, from_sql_text(path))
    for text in batch.column("deletion_vector").drop_null().to_pylist():
        yield from _vector_path(deletion_vector_from_json(text), location)


def _inside(location: str, path: str) -> Iterator[str]:
    """Yield a logged path relative to the table, as its storage spells it; nothing if the file is elsewhere."""
    if not paths.is_absolute(path):
        yield paths.decode_path(path)
        return
    absolute = paths.resolve(location, path)
    root = location.rstrip("/") + "/"
    local, local_root = paths.local_path(absolute), paths.local_path(root)
    if local is not None and local_root is not None:
        if local.startswith(local_root.rstrip("/") + "/"):
            yield local.removeprefix(local_root.rstrip("/") + "/")
    elif absolute.startswith(root):
        yield absolute.removeprefix(root)


def _vector_path(vector: DeletionVector, location: str) -> Iterator[str]:
    from deltalakedb.data.deletion_vectors import vector_file

    path = vector_file(vector)
    if path is not None:
        yield from _inside(location, path)


def _visible(files: Sequence[ListedFile], metadata: Metadata) -> Iterator[ListedFile]:
    """Yield the files that may belong to this table: not in hidden folders, and not in the folder of another table."""
    other_tables = {file.path.partition(f"/{_LOG}/")[0] for file in files if f"/{_LOG}/" in file.path}
    partitions = tuple(f"{name}=" for name in metadata.partition_columns)
    for file in files:
        parts = file.path.split("/")
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        if any(_is_hidden(part, partitions) for part in parts) or any(folder in other_tables for folder in folders):
            continue
        yield file


def _is_hidden(part: str, partitions: tuple[str, ...]) -> bool:
    return part.startswith(("_", ".")) and part != _CHANGE_DATA and not part.startswith(partitions or ("\0",))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
