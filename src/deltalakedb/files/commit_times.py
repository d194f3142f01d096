"""When the commits of a log were made, and which version a table had at an instant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from deltalakedb.exceptions import TableNotFoundError
from deltalakedb.files.listing import LOG_FOLDER, commit_name
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.timestamps import in_commit_timestamp, keeps_in_commit_timestamps


def version_at(reader: FileTxnLogReader, configuration: Mapping[str, str | None], at_ms: int) -> int:
    """The newest version committed at or before an instant; the oldest that is left when all came later.

    `configuration` is the newest one. Only so many times are looked up as it takes to halve the log again and again.
    Times that step back, as clocks may, are not seen as such: the answer is then a version close by.
    """
    listing = reader.listing()
    latest = listing.latest_version
    if latest is None:
        raise TableNotFoundError(f"there is no Delta table at {reader.table} any more")
    earliest = listing.earliest_version(reader.table)
    versions = sorted(version for version in listing.commits if version >= earliest) or [latest]
    found = bisect_right(versions, at_ms, key=lambda version: commit_time_ms(reader, configuration, version))
    return versions[max(found - 1, 0)]


def commit_time_ms(reader: FileTxnLogReader, configuration: Mapping[str, str | None], version: int) -> int:
    """The time of a commit: the one inside of it where the table keeps those, else its file's."""
    if keeps_in_commit_timestamps(configuration, version):
        stamp = in_commit_timestamp(next(reader.actions(version), None))
        if stamp is not None:
            return stamp
    return reader.storage.modified_ms(f"{LOG_FOLDER}/{commit_name(version)}")
