"""Owns the streams that `deltalake` returns: readers of arro3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import arro3.core
import pyarrow as pa


def stream(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, begun: bool = False
) -> arro3.core.RecordBatchReader:
    """A reader over batches that are made while it is read.

    It turns what they raise into a plain Exception with the message. If they are `begun`, the first is made at once:
    what it raises keeps its class.
    """

    def made() -> Iterator[pa.RecordBatch]:
        # A generator of Python's, whatever the batches come from: arro3 holds the GIL while it waits for the next one.
        yield from batches

    waiting = made()
    if begun:
        first = next(waiting, None)
        waiting = iter(()) if first is None else chain((first,), waiting)
    return arro3.core.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, waiting))
