"""The times of a log's commits, and the version of a table at an instant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from deltalakedb.exceptions import TableNotFoundError
from deltalakedb.files.listing import LOG_FOLDER, commit_name
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.completion import in_commit_timestamp, keeps_in_commit_timestamps


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
