"""Combines small batches, because most work on a batch costs the same for one row as for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

BATCH_ROWS: Final = 128 * 1024


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about BATCH_ROWS or more; batches without rows are omitted at the end."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()
            pending, rows = [], 0
    if rows:
        yield from pa.Table.from_batches(pending).combine_chunks().to_batches()
