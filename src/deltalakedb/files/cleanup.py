"""Decides which files of a log may be deleted (PROTOCOL.md, "Metadata Cleanup"); pure, from names and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deltalakedb.files.log_folder import CheckpointEntry, LogFile, LogListing, commit_name
from deltalakedb.log.protocol.actions import Metadata, Protocol

PROTECTION_FEATURE = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
DAY_MS = 86_400_000
_FOR_EVER_MS = 100 * 366 * DAY_MS

_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKSUM = re.compile(r"([0-9]{20})\.crc")
# Complete or not: the parts of an incomplete multi-part checkpoint are deleted too.
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\..+")
_COMPACTED = re.compile(r"([0-9]{20})\.[0-9]{20}\.compacted\.json")


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """The files that clean-up deleted, and the oldest version that can still be read."""

    removed: tuple[str, ...]
    first_version: int


@dataclass(frozen=True, slots=True)
class Expired:
    """Files that may be deleted. In this order, the log stays readable even if the process dies in between."""

    names: tuple[str, ...]
    first_version: int


def protected_before(protocol: Protocol, metadata: Metadata) -> int:
    """The version before which history is deleted completely or not at all (RFC checkpointProtection); 0 if none."""
    if PROTECTION_FEATURE not in (protocol.writer_features or ()):
        return 0
    text = (metadata.configuration.get(PROTECTED_BEFORE) or "0").strip()
    return int(text) if text.isdecimal() else 0


def retention_ms(read: Callable[[Mapping[str, str], int], int], metadata: Metadata, default_ms: int) -> int:
    """A retention of the table; an unreadable one keeps everything, which can be corrected later."""
    try:
        return read(settings_of(metadata), default_ms)
    except ValueError:
        return _FOR_EVER_MS


def settings_of(metadata: Metadata) -> dict[str, str]:
    """The table's properties that have a value."""
    return {key: value for key, value in metadata.configuration.items() if value is not None}


def find_expired(
    files: Sequence[LogFile], *, cutoff_ms: int, keep_from_version: int | None = None, protected_before: int = 0
) -> Expired:
    """The files older than the newest checkpoint that is not newer than the cutoff, rounded down to midnight UTC.

    That checkpoint is kept, and so is the commit of its version, because checkpoints do not contain its commitInfo.
    """
    listing = LogListing.of(file.name for file in files)
    oldest = min([*listing.commits, *(entry.version for entry in listing.checkpoints)], default=0)
    cut = _cut_commit(listing, files, cutoff_ms // DAY_MS * DAY_MS)
    if cut is not None and keep_from_version is not None:
        cut = min(cut, keep_from_version)
    base = next((entry for entry in listing.checkpoints if cut is not None and entry.version <= cut), None)
    if base is None or base.version < protected_before:
        return Expired((), oldest)
    return Expired(tuple(_before(files, listing, base)), max(base.version, oldest))


def find_expired_by_times(
    files: Sequence[LogFile], *, cutoff_ms: int, keep_from_version: int, protected_before: int = 0
) -> Expired:
    """The files older than the cutoff that are unnecessary because of the newest checkpoint before any younger file.

    Versions from `keep_from_version` on can still be read afterwards.

    This is what `cleanup_metadata` of `deltalake` deletes: by the times of files, to the millisecond. It may delete the
    version that was the newest at the cutoff, which the protocol's own rule keeps for time travel.
    """
    listing = LogListing.of(file.name for file in files)
    versions = [*listing.commits, *(entry.version for entry in listing.checkpoints)]
    young_versions = [
        file_version
        for file in files
        if file.modified_ms >= cutoff_ms and (file_version := _version_of(file.name)) is not None
    ]
    first_kept = min([*young_versions, keep_from_version])
    base = next((entry for entry in listing.checkpoints if entry.version <= first_kept), None)
    oldest = min(versions, default=0)
    if base is None or base.version < protected_before:
        return Expired((), oldest)
    old_files = [file for file in files if file.modified_ms <= cutoff_ms]
    return Expired(
        tuple(_before(old_files, LogListing.of(file.name for file in old_files), base)), max(base.version, oldest)
    )


def _version_of(name: str) -> int | None:
    """The version of a commit or checkpoint, from its name."""
    match = _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
    return None if match is None else int(match[1])


def _cut_commit(listing: LogListing, files: Iterable[LogFile], cutoff_ms: int) -> int | None:
    """The newest commit that is not newer than the cutoff. Times never decrease from one commit to the next."""
    times = {file.name: file.modified_ms for file in files}
    cut: int | None = None
    for version in sorted(listing.commits):
        if times[commit_name(version)] > cutoff_ms:
            break
        cut = version
    return cut


def _before(files: Iterable[LogFile], listing: LogListing, base: CheckpointEntry) -> Iterable[str]:
    """The names to delete: commits before the checkpoints that replace them, older ones first."""
    commits = [commit_name(version) for version in sorted(listing.commits) if version < base.version]
    checksums: list[str] = []
    checkpoints: list[str] = []
    for name in sorted(file.name for file in files):
        if match := _CHECKSUM.fullmatch(name):
            if int(match[1]) < base.version:
                checksums.append(name)
        elif match := _COMPACTED.fullmatch(name):
            if int(match[1]) <= base.version:
                checksums.append(name)
        elif (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) < base.version:
            checkpoints.append(name)
    return [*commits, *checksums, *checkpoints]
