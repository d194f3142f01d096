"""Streams the files and tombstones of a version in pages, so that a table of any size is read in bounded memory.

Each page is its own transaction: a slow reader holds nothing open, and on DuckDB does not block writers. A version
never changes, so pages read at different times fit together. Only `dl gc` can remove a version, and it removes the
version's row first, so the row is checked after the last page.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.log.protocol.txnlog import TOMBSTONES_SCHEMA
from deltalakedb.store.connection import Store, select_columns
from deltalakedb.store.kept_versions import check_kept
from deltalakedb.store.registry import TableRow, read_head

FIRST_PAGE_ROWS = 8_192
MOST_PAGE_ROWS = 65_536
LARGE_PAGE = 20_000
"""From this many rows on, an engine's bulk path is worth its set-up."""

PAGE_BYTES = 16 * 1024 * 1024
DAY_MS = 86_400_000
_BEFORE_ALL = -1

_PLACE = np.dtype([("version", np.int64), ("ordinal", np.int64)])


def iter_file_pages(store: Store, table: TableRow, version: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the version's files in the order of their ids; within a page, files removed since then come last."""
    ids = {"table_id": table.table_id, "version": version}
    last_id, rows = _BEFORE_ALL, FIRST_PAGE_ROWS
    while True:
        with store.read() as conn:
            end = conn.one("select_page_end", **ids, after_file_id=last_id, max_files=rows)
            if end is None or end["last_file_id"] is None:
                break
            head = read_head(conn, table.table_id)
            at_head = head is not None and head.current_version == version
            id_range = {"first_file_id": last_id + 1, "last_file_id": end["last_file_id"]}
            page = conn.file_page(schema.names, **ids, **id_range, at_head=at_head)
        last_id = end["last_file_id"]
        yield from _batches(page, schema)
        rows = _next_rows(page)
    check_kept(store, table, version)


def iter_tombstone_pages(
    store: Store, table: TableRow, version: int, deleted_after_ms: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the files removed up to a version and not live at it, each key once with its newest removal."""
    ids = {"table_id": table.table_id, "version": version}
    with store.read() as conn:
        since = None
        if deleted_after_ms is not None:
            # A file gets its deletion timestamp before its commit; a day allows for clocks that differ.
            since = conn.one("select_first_version_after", table_id=table.table_id, at_ms=deleted_after_ms - DAY_MS)
        tombstones = conn.arrow(
            "select_tombstone_places",
            **ids,
            since_version=since["version"] if since and since["version"] is not None else 0,
            deleted_after_ms=deleted_after_ms if deleted_after_ms is not None else -(2**62),
        )
    places = _places(tombstones)
    start, rows = 0, FIRST_PAGE_ROWS
    while start < len(places):
        first_version, first_ordinal = places[start].tolist()
        with store.read() as conn:
            text = select_columns(["version", "ordinal", *TOMBSTONES_SCHEMA.names], "select_removes_from")
            fetch = conn.sql_large if rows >= LARGE_PAGE else conn.sql_arrow
            page = fetch(text, **ids, first_version=first_version, first_ordinal=first_ordinal, max_rows=rows)
        if not page.num_rows:
            break
        # Superseded removals lie between the wanted ones; both lists are in order.
        page_places = _places(page)
        stop = start + int(np.searchsorted(places[start:], page_places[-1], side="right"))
        if len(page_places) != stop - start:
            page = page.filter(pa.array(np.isin(page_places, places[start:stop])))
        yield from _batches(page.select(TOMBSTONES_SCHEMA.names), TOMBSTONES_SCHEMA)
        start, rows = stop, _next_rows(page)
    check_kept(store, table, version)


def _places(rows: pa.Table) -> npt.NDArray[np.void]:
    """Version and ordinal of each row, as values that compare by both."""
    places = np.empty(rows.num_rows, _PLACE)
    for name in ("version", "ordinal"):
        places[name] = rows.column(name).to_numpy()
    return places


def _batches(page: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields a page as one batch, so that a reader that is one batch ahead is one page ahead."""
    whole = page if page.schema.equals(schema) else page.cast(schema)
    yield from whole.combine_chunks().to_batches()


def _next_rows(page: pa.Table) -> int:
    """How many rows fit into a page of PAGE_BYTES, if the next rows are as large as these."""
    if not page.num_rows:
        return FIRST_PAGE_ROWS
    return int(min(max(PAGE_BYTES * page.num_rows // max(page.nbytes, 1), 256), MOST_PAGE_ROWS))
