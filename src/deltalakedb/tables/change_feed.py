"""The change data feed of a DeltaTable: which versions it covers, and their changed rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalakedb.catalog.instants import parse_rfc3339, to_epoch_ms
from deltalakedb.exceptions import DeltaError, NegativeVersionError
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.proposal import DEFINITION, WHOLE_TABLE
from deltalakedb.runtime.arguments import check_flag, check_number, check_text, check_texts
from deltalakedb.tables.rows import check_asked_once, explain_missing_in, to_stream, with_notes

if TYPE_CHECKING:
    import arro3.core

    from deltalakedb.tables.reader import TableReader

_ZONED = re.compile(r"\d{2}:\d{2}:\d{2}\S* *([zZ]|UTC|[+-]\d{2}:?\d{2})\s*$")


@dataclass(frozen=True, slots=True)
class Limits:
    """The first and the last version to read, or the times between which they were committed."""

    first: int | None
    last: int | None
    since: str | None
    until: str | None


def load_cdf(
    table: TableReader, limits: Limits, columns: list[str] | None, predicate: str | None, allow_out_of_range: bool
) -> arro3.core.RecordBatchReader:
    """Return the rows that changed within the limits, as a stream."""
    from deltalakedb.operations.cdf import read_changes
    from deltalakedb.tables.streams import with_views

    check_texts(columns)
    for text in (predicate, limits.since, limits.until):
        check_text(text)
    check_flag(allow_out_of_range)
    check_asked_once(table, columns)
    if limits.first is None and limits.since is None:
        raise DeltaError(f"No starting version or timestamp provided for CDC of table {table.name}")
    for version in (limits.first, limits.last):
        if isinstance(version, int) and version < 0:
            raise NegativeVersionError(
                f"can't convert negative int to unsigned: {version} is no version of {table.name}"
            )
        check_number(version)
    start, end = _find_range(table, limits, allow_out_of_range)
    changes = read_changes(
        table._backing.commits(start, end) if start <= end else (),
        table=table.name,
        metadata=table._snapshot.metadata,
        storage=table._storage(),
        columns=columns,
        predicate=predicate,
        values_before=lambda version: _partition_values_before(table, version),
    )
    changes = with_views(with_notes(table, changes), nested=False)
    return to_stream(table, changes.schema, explain_missing_in(table, changes, start), start)


def _find_range(table: TableReader, limits: Limits, allow_out_of_range: bool) -> tuple[int, int]:
    """Return the first and the last version to read; if the last is below the first, there is nothing to read."""
    from deltalakedb.operations.cdf import check_feed

    newest = table._newest()
    first, last, since, until = limits.first, limits.last, limits.since, limits.until
    start = first if since is None or first else _first_since(table, since)
    end = newest.version if last is None and until is None else _last_until(table, last, until, newest.version)
    if end >= newest.version or start is None or start > newest.version:  # later commits would change the answer
        table._note(WHOLE_TABLE | DEFINITION, version=newest.version)
    if start is None or start > newest.version:
        if allow_out_of_range:
            return 0, -1
        if start is not None:
            raise DeltaError(f"Invalid table version: {first}: the newest version of {table.name} is {newest.version}")
        raise DeltaError(
            f"Timestamp {since} is greater than latest commit timestamp: the newest version of {table.name}, "
            f"{newest.version}, is older"
        )
    if start > end:
        if last is None or allow_out_of_range:
            return 0, -1
        raise DeltaError(f"Invalid version. Start version {start} is greater than end version {end} of {table.name}")
    check_feed(table.name, start, table._backing.snapshot(start).metadata)
    return start, end


def _first_since(table: TableReader, since: str) -> int | None:
    since_ms = _to_epoch_ms(since)
    entries = table._backing.history(None, snapshot=table._newest(), since_ms=since_ms, until_ms=None)
    return min((entry.version for entry in entries), default=None)


def _last_until(table: TableReader, last: int | None, until: str | None, newest: int) -> int:
    if last is not None or until is None:
        return newest if last is None else min(last, newest)
    until_ms = _to_epoch_ms(until)
    entries = table._backing.history(1, snapshot=table._newest(), since_ms=None, until_ms=until_ms)
    return next((entry.version for entry in entries), -1)


def _to_epoch_ms(text: str) -> int:
    """Return the epoch milliseconds of a time that limits the feed; it must have a zone, as in `deltalake`."""
    try:
        return to_epoch_ms(parse_rfc3339(text))
    except ValueError:
        if not _ZONED.search(text):
            raise
        return to_epoch_ms(text)


def _partition_values_before(table: TableReader, version: int) -> dict[str, dict[str, str | None]]:
    files = table._backing.snapshot(version - 1).files_table(["path", "partition_values"])
    pairs: Iterator[Sequence[str]] = zip(*(column.to_pylist() for column in files.columns), strict=True)
    return {from_sql_text(path): json.loads(values or "{}") for path, values in pairs}
