"""The `_delta_log` folder of a table: what its names mean, which files give a version, and how files are put there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

from deltalakedb.exceptions import LogGapError, MirrorError, StorageError, VersionNotFoundError, redact
from deltalakedb.storage.interface import NO_LOCK, PUT_TIMEOUT_SECONDS, PutResult, Puts, Storage

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
MAX_VERSION = 2**63 - 1

_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint\."
    r"(?:(?P<classic>parquet)|(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet|[0-9A-Za-z-]{36}\.(?:json|parquet))"
)
_COMPACTED = re.compile(r"([0-9]{20})\.([0-9]{20})\.compacted\.json")


class CheckpointKind(IntEnum):
    """In order of preference among checkpoints of one version."""

    MULTIPART = 0
    V2 = 1  # named with a UUID; a checkpoint with a classic name may have the V2 layout too
    CLASSIC = 2


@dataclass(frozen=True, slots=True, order=True)
class CheckpointEntry:
    """One complete checkpoint: all its files except the sidecars, which only its content names."""

    version: int
    kind: CheckpointKind
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """A commit (start == end) or a log compaction file."""

    start: int
    end: int

    @property
    def name(self) -> str:
        if self.start == self.end:
            return commit_name(self.start)
        return f"{self.start:020d}.{self.end:020d}.compacted.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """The files whose replay gives the state at `version`: at most one checkpoint, then JSON files in order."""

    version: int
    checkpoint: CheckpointEntry | None
    json: tuple[JsonEntry, ...]


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """The name of a classic checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class LogListing:
    """One listing of `_delta_log`; with `since` > 0, older versions were not listed."""

    commits: frozenset[int]
    checkpoints: tuple[CheckpointEntry, ...]  # newest first, the preferred of one version first
    compacted: Mapping[int, tuple[int, ...]]  # start -> ends
    since: int = 0

    @classmethod
    def of(cls, names: Iterable[str], since: int = 0) -> LogListing:
        commits: set[int] = set()
        checkpoints: list[CheckpointEntry] = []
        parts: dict[tuple[int, int], dict[int, str]] = {}
        compacted: dict[int, tuple[int, ...]] = {}
        for name in names:
            if match := _COMMIT.fullmatch(name):
                commits.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(name):
                version = int(match[1])
                if match["parts"]:
                    parts.setdefault((version, int(match["parts"])), {})[int(match["part"])] = name
                else:
                    kind = CheckpointKind.CLASSIC if match["classic"] else CheckpointKind.V2
                    checkpoints.append(CheckpointEntry(version, kind, (name,)))
            elif (match := _COMPACTED.fullmatch(name)) and int(match[1]) < int(match[2]):
                start = int(match[1])
                compacted[start] = (*compacted.get(start, ()), int(match[2]))
        checkpoints.extend(_complete_multipart(parts))
        return cls(
            frozenset(version for version in commits if version <= MAX_VERSION),
            tuple(sorted((entry for entry in checkpoints if entry.version <= MAX_VERSION), reverse=True)),
            compacted,
            since,
        )

    @property
    def latest_version(self) -> int | None:
        """The newest version of any file; None if there is no log."""
        newest = max(self.commits, default=-1)
        if self.checkpoints:
            newest = max(newest, self.checkpoints[0].version)
        return newest if newest >= 0 else None

    def first_contiguous(self, version: int) -> int:
        """The oldest commit of the unbroken run that ends at `version` (version + 1 if that commit is missing)."""
        while version in self.commits:
            version -= 1
        return version + 1

    def earliest_version(self, table: str) -> int:
        """The oldest version from which every version up to the latest can be read."""
        latest = self.latest_version
        if latest is None:
            raise ValueError("an empty log has no versions")
        first = self.first_contiguous(latest)
        if first == 0:
            return 0
        bases = [entry.version for entry in self.checkpoints if entry.version >= first - 1]
        return min(bases) if bases else self.segment(latest, table=table).version

    def missing_commit(self, start: int, end: int) -> int | None:
        """The first version from `start` through `end` whose commit is missing."""
        return next((version for version in range(start, end + 1) if version not in self.commits), None)

    def segment(self, version: int, *, table: str, excluded: Collection[str] = ()) -> Segment:
        """The files to replay for `version`, from the newest checkpoint on, without the files in `excluded`."""
        latest = self.latest_version
        if latest is None or version > latest or version < 0:
            extent = "holds no versions" if latest is None else f"ends at version {latest}"
            raise VersionNotFoundError(f"table {table} has no version {version}; its log {extent}")
        bases = [
            entry
            for entry in self.checkpoints
            if entry.version <= version and not any(name in excluded for name in entry.names)
        ]
        first_gap: int | None = None
        for base in (*bases, None):
            entries, gap = self._cover(base.version + 1 if base else 0, version, excluded)
            if gap is None:
                return Segment(version, base, entries)
            first_gap = gap if first_gap is None else first_gap
        later = [entry.version for entry in self.checkpoints if entry.version > version]
        if first_gap == 0 and not bases and later:
            reason = f"its log was cleaned up and starts at version {later[-1]}"
            raise VersionNotFoundError(f"table {table} cannot be read at version {version}: {reason}")
        raise LogGapError(table, first_gap or 0, f"it is needed for version {version}")

    def _cover(self, start: int, end: int, excluded: Collection[str]) -> tuple[tuple[JsonEntry, ...], int | None]:
        """JSON files from `start` through `end`, compacted ones if they exist; or the first missing version."""
        entries: list[JsonEntry] = []
        version = start
        while version <= end:
            longer = [JsonEntry(version, reach) for reach in self.compacted.get(version, ()) if reach <= end]
            usable = [entry for entry in longer if entry.name not in excluded]
            if usable:
                entries.append(max(usable, key=lambda entry: entry.end))
            elif version in self.commits:
                entries.append(JsonEntry(version, version))
            else:
                return (), version
            version = entries[-1].end + 1
        return tuple(entries), None


def is_log_name(name: str) -> bool:
    """Whether a file name alone shows that its folder is a Delta log."""
    return _COMMIT.fullmatch(name) is not None or _CHECKPOINT.fullmatch(name) is not None


def _complete_multipart(parts: Mapping[tuple[int, int], Mapping[int, str]]) -> Iterator[CheckpointEntry]:
    """The multi-part checkpoints of which all parts exist: writers put them one by one."""
    for (version, count), part_names in parts.items():
        if len(part_names) == count and min(part_names) == 1 and max(part_names) == count:
            names = tuple(part_names[part] for part in sorted(part_names))
            yield CheckpointEntry(version, CheckpointKind.MULTIPART, names)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, as listed."""

    name: str
    modified_ms: int
    size: int


class LogFolder:
    """Names are relative to the folder. All failures are MirrorErrors."""

    def __init__(self, storage: Storage, *, table: str, folder: str = LOG_FOLDER, puts: Puts = NO_LOCK) -> None:
        self.storage = storage
        self.location = f"{storage.location}/{folder}"
        self._table, self._folder, self._puts = table, folder, puts

    def __repr__(self) -> str:
        return f"LogFolder({self.location!r})"

    def put(
        self,
        name: str,
        data: bytes,
        *,
        modified_ms: int | None = None,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        step: str = "",
        lasting: bool = True,
        decides: bool = True,
        creates_folder: bool = True,
    ) -> PutResult:
        """Write a file unless one with that name exists; see `Storage.put_if_absent`."""
        with self._failing():
            return self.storage.put_if_absent(
                self._path(name),
                data,
                modified_ms=modified_ms,
                timeout_seconds=timeout_seconds,
                step=step,
                lasting=lasting,
                decides=decides,
                creates_folder=creates_folder,
                puts=self._puts,
            )

    def sync(self) -> None:
        """Make the names of all files durable."""
        with self._failing():
            self.storage.sync_folder(self._folder)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, replacing one with that name; readers see the old or the new file."""
        with self._failing():
            self.storage.replace(self._path(name), data)

    @contextmanager
    def upload(self, name: str) -> Iterator[BinaryIO]:
        """A file to write to; it gets its name when the block ends, and is discarded if the block fails."""
        with self._failing(), self.storage.upload(self._path(name)) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """The file's content; None if it does not exist."""
        try:
            with self._failing():
                return self.storage.get(self._path(name))
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        try:
            with self._failing():
                self.storage.stat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def list(self, subfolder: str = "") -> list[LogFile]:
        """The files directly in the folder, or in a subfolder (which is then part of the names), in no order."""
        with self._failing():
            files = self.storage.list(self._path(subfolder) if subfolder else self._folder).files
        return [LogFile(file.path.removeprefix(self._path("")), file.modified_ms, file.size) for file in files]

    def delete(self, *names: str) -> None:
        """Delete files; a missing one is no error."""
        with self._failing():
            self.storage.delete(*map(self._path, names))

    def delete_temporary(self, before_ms: int) -> tuple[str, ...]:
        """Delete temporary files that dead writers left before then; return their names."""
        with self._failing():
            return self.storage.delete_temporary(self._folder, before_ms=before_ms)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            failure = MirrorError(f"table {redact(self._table)}: {error}")
            failure.uncertain = error.uncertain
            raise failure from error.__cause__
