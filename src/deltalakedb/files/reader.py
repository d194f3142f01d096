"""FileTxnLogReader: reads the transaction log of one table from its `_delta_log` folder."""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from deltalakedb.exceptions import (
    LogGapError,
    MalformedLogError,
    TableNotFoundError,
    VersionNotFoundError,
    redact,
)
from deltalakedb.files.checkpoint_reader import CheckpointContent, read_checkpoint, split_lines
from deltalakedb.files.log_folder import LAST_CHECKPOINT, LOG_FOLDER, JsonEntry, LogListing, Segment, commit_name
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.commit import Commit, iter_actions
from deltalakedb.log.protocol.completion import (
    InCommitTimestamps,
    in_commit_timestamp,
    keeps_in_commit_timestamps,
)
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.storage.interface import FileStream, Storage
from deltalakedb.storage.location import open_storage

_log = logging.getLogger(__name__)

_MAX_LISTINGS = 2


class FileTxnLogReader:
    """Reads `_delta_log` from local disk or an object store; every call sees the log as it is at that time."""

    def __init__(
        self, location: str | os.PathLike[str], options: Mapping[str, str] | None = None, table: str | None = None
    ) -> None:
        self.storage: Storage = open_storage(location, options)
        self.table = redact(table or self.storage.location)
        self._unusable: set[str] = set()  # checkpoint and compaction files that are broken
        self._newest_seen = 0

    @property
    def location(self) -> str:
        """The table's location in canonical form."""
        return self.storage.location

    def __repr__(self) -> str:
        return f"FileTxnLogReader({self.location!r})"

    def latest_version(self) -> int:
        since = self._newest_seen or self._hinted_version() or 0
        if since:
            latest = self._list(since).latest_version
            if latest is not None:
                return self._note_latest(latest)
        return self._note_latest(self.listing().latest_version)

    def earliest_version(self) -> int:
        """The oldest version from which every version up to the latest can be rebuilt."""
        listing = self.listing()
        self._note_latest(listing.latest_version)
        return listing.earliest_version(self.table)

    def commits(self, start: int, end: int | None = None) -> Iterator[Commit]:
        """The commits from `start` through `end` or the latest. A missing one raises LogGapError before any is read."""
        # List from the version before, which exists in an idle log; an empty listing would not tell whether there is a
        # log.
        listing = self._list(start - 1)
        if listing.latest_version is None and self.listing().latest_version is None:
            raise self._not_found()
        latest = listing.latest_version if listing.latest_version is not None else start - 1
        last = latest if end is None else min(end, latest)
        if listing.missing_commit(start, last) is not None:
            # A listing is not atomic: it may show a new commit but not the one before it.
            missing = self._list(start).missing_commit(start, last)
            if missing is not None:
                raise LogGapError(self.table, missing, f"versions {start} to {last} were asked for")
        return self._read_commits(range(start, last + 1))

    def actions(self, version: int) -> Iterator[Action]:
        """The actions of one commit as a stream, for commits too large to hold in memory."""
        entry = JsonEntry(version, version)
        yield from self._replay_file(next(self._open_json((entry,))), entry)

    def has_commit(self, version: int) -> bool:
        """Whether the commit's own file exists, regardless of checkpoints."""
        try:
            self.storage.stat(f"{LOG_FOLDER}/{commit_name(version)}")
        except FileNotFoundError:
            return False
        return True

    def listing(self) -> LogListing:
        """The listing of the whole log."""
        return self._list(0)

    def snapshot(self, version: int | None = None) -> FileSnapshot:
        """The table at `version` or the latest: the newest usable checkpoint and the JSON files after it."""
        listing = self._list_from_hint(version)
        target = self._note_latest(listing.latest_version) if version is None else version
        first_error: MalformedLogError | None = None
        relisted = 0
        # Every round excludes at least one more file or uses up a listing, so this ends.
        while True:
            try:
                return self._load(listing.segment(target, table=self.table, excluded=self._unusable))
            except (LogGapError, VersionNotFoundError) as error:
                # The listing may have started too late, or was outdated by a writer or by clean-up.
                relisted += 1
                if relisted > _MAX_LISTINGS:
                    raise first_error or error from None
                listing = self.listing()
            except _UnusableFileError as error:
                self._unusable.update(error.names)
                first_error = first_error or error.reason
                _log.warning("%s; trying an older checkpoint", error.reason)

    def advance(self, earlier: FileSnapshot) -> FileSnapshot:
        """The newest version; reads only the commits after `earlier` if that is enough."""
        listing = self._list(earlier.version)
        latest = listing.latest_version
        newer_checkpoint = any(entry.version != earlier.checkpoint_version for entry in listing.checkpoints)
        if latest is None or earlier.version not in listing.commits or newer_checkpoint:
            return self.snapshot()
        if latest == self._note_latest(earlier.version):
            return earlier
        if listing.missing_commit(earlier.version + 1, latest) is not None:
            return self.snapshot()
        entries = tuple(JsonEntry(version, version) for version in range(earlier.version + 1, latest + 1))
        tail = earlier.tail_copy()
        for entry, opened in zip(entries, self._open_json(entries), strict=True):
            tail.apply_commit(self._replay_file(opened, entry))
        self._note_latest(latest)
        return earlier.followed_by(entries, tail)

    def _load(self, segment: Segment) -> FileSnapshot:
        checkpoint: CheckpointContent | None = None
        if segment.checkpoint is not None:
            try:
                checkpoint = read_checkpoint(self.storage, segment.checkpoint, table=self.table)
            except MalformedLogError as error:
                raise _UnusableFileError(segment.checkpoint.names, error) from error
        tail = SnapshotState()
        for entry, opened in zip(segment.json, self._open_json(segment.json), strict=True):
            try:
                tail.apply_commit(self._replay_file(opened, entry))
            except MalformedLogError as error:
                if entry.start == entry.end:
                    raise
                raise _UnusableFileError((entry.name,), error) from error
        return FileSnapshot.of(self.storage, self.table, segment, checkpoint, tail, self._unusable)

    def _open_json(self, entries: tuple[JsonEntry, ...]) -> Iterator[FileStream]:
        opened = self.storage.stream_many(f"{LOG_FOLDER}/{entry.name}" for entry in entries)
        for entry in entries:
            try:
                yield next(opened)
            except FileNotFoundError as error:
                raise LogGapError(self.table, entry.start, "it was deleted while the log was being read") from error

    def _replay_file(self, opened: FileStream, entry: JsonEntry) -> Iterator[Action]:
        empty = True
        for action in iter_actions(split_lines(opened.chunks), table=self.table, version=entry.end):
            empty = False
            yield action
        if empty:
            raise MalformedLogError(f"table {self.table}: {LOG_FOLDER}/{entry.name} is empty")

    def _read_commits(self, versions: range) -> Iterator[Commit]:
        timestamps = InCommitTimestamps(lambda: self._metadata_before(versions.start))
        entries = tuple(JsonEntry(version, version) for version in versions)
        for entry, opened in zip(entries, self._open_json(entries), strict=True):
            actions = tuple(self._replay_file(opened, entry))
            timestamp_ms = timestamps.of(entry.end, actions, opened.modified_ms)
            yield Commit(entry.end, timestamp_ms, actions, opened.size)

    def _metadata_before(self, version: int) -> Mapping[str, str | None] | None:
        """The table's configuration just before `version`; None if the log does not reach back that far."""
        try:
            return self.snapshot(version - 1).metadata.configuration if version > 0 else {}
        except (LogGapError, VersionNotFoundError):
            return None

    def _list(self, since: int) -> LogListing:
        # "%020d" sorts directly before every name that starts with it.
        names = self.storage.names(LOG_FOLDER, start_after=f"{since:020d}" if since > 0 else "")
        return LogListing.of(names, since=max(since, 0))

    def _list_from_hint(self, version: int | None) -> LogListing:
        """Names from the newest known checkpoint on, or all of them if the hint is missing, stale or wrong."""
        hint = self._hinted_version()
        if hint and (version is None or hint <= version):
            listing = self._list(hint)
            if any(entry.version == hint for entry in listing.checkpoints):
                return listing
        listing = self.listing()
        if listing.latest_version is None:
            raise self._not_found()
        return listing

    def _hinted_version(self) -> int | None:
        """The version in `_last_checkpoint`; None if it is unreadable, because it is only a hint."""
        try:
            text = self.storage.get(f"{LOG_FOLDER}/{LAST_CHECKPOINT}")
            version = json.loads(text)["version"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return version if isinstance(version, int) and 0 <= version < 10**18 else None

    def _note_latest(self, latest: int | None) -> int:
        if latest is None:
            raise self._not_found()
        self._newest_seen = latest
        return latest

    def _not_found(self) -> TableNotFoundError:
        return TableNotFoundError(
            f"there is no Delta table at {redact(self.location)}: its {LOG_FOLDER} holds no commits"
        )


class _UnusableFileError(Exception):
    """A broken checkpoint or compaction file that other files can replace."""

    def __init__(self, names: tuple[str, ...], reason: MalformedLogError) -> None:
        super().__init__(str(reason))
        self.names = names
        self.reason = reason


def version_at(reader: FileTxnLogReader, configuration: Mapping[str, str | None], at_ms: int) -> int:
    """The newest version committed at or before an instant; the oldest remaining one if all came later.

    `configuration` is the newest one. Uses binary search, so few times are read. If times decrease, as clocks may, the
    result is a nearby version.
    """
    listing = reader.listing()
    latest = listing.latest_version
    if latest is None:
        raise TableNotFoundError(f"there is no Delta table at {reader.table} any more")
    earliest = listing.earliest_version(reader.table)
    versions = sorted(version for version in listing.commits if version >= earliest) or [latest]
    position = bisect_right(versions, at_ms, key=lambda version: commit_time_ms(reader, configuration, version))
    return versions[max(position - 1, 0)]


def commit_time_ms(reader: FileTxnLogReader, configuration: Mapping[str, str | None], version: int) -> int:
    """The time of a commit: its in-commit timestamp if the table has them, else its file's time."""
    if keeps_in_commit_timestamps(configuration, version):
        stamp = in_commit_timestamp(next(reader.actions(version), None))
        if stamp is not None:
            return stamp
    return reader.storage.stat(f"{LOG_FOLDER}/{commit_name(version)}").modified_ms
