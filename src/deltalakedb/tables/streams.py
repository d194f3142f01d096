"""The streams that `deltalake` returns: readers of arro3."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

import arro3.core
import pyarrow as pa


def stream(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, begun: bool = False
) -> arro3.core.RecordBatchReader:
    """Return a reader of batches that are produced as it is read.

    The reader turns an error in a batch into a plain Exception with the same message. If `begun`, the first batch is
    produced at once, so that its error keeps its class.
    """

    def generate_batches() -> Iterator[pa.RecordBatch]:
        # Always a Python generator: arro3 holds the GIL while it waits for the next batch.
        yield from batches

    remaining = generate_batches()
    if begun:
        first = next(remaining, None)
        remaining = iter(()) if first is None else chain((first,), remaining)
    return arro3.core.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(schema, remaining))


def with_notes(rows: pa.RecordBatchReader, notes: Mapping[str, Mapping[bytes, bytes]]) -> pa.RecordBatchReader:
    """Return the same rows, in a schema with metadata on columns, by name."""
    schema = note_columns(rows.schema, notes)
    if schema.equals(rows.schema, check_metadata=True):
        return rows
    return pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in rows)
    )


def note_columns(schema: pa.Schema, notes: Mapping[str, Mapping[bytes, bytes]]) -> pa.Schema:
    """Return the schema with metadata on columns, by name."""
    return pa.schema([field.with_metadata(notes[field.name]) if field.name in notes else field for field in schema])


def with_views(rows: pa.RecordBatchReader, *, nested: bool = True, plain: Collection[str] = ()) -> pa.RecordBatchReader:
    """Return the same rows with strings and binaries as views, the types that `deltalake` streams.

    With `nested` this includes those in structs and lists, save those of the columns in `plain`; the change data feed
    of `deltalake` leaves them unchanged.
    """
    schema = pa.schema(
        [field.with_type(_as_view(field.type, nested and field.name not in plain)) for field in rows.schema]
    )
    if schema.equals(rows.schema):
        return rows
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def _as_view(kind: pa.DataType, nested: bool) -> pa.DataType:
    """Return the type with views for strings and binaries; those in maps stay unchanged."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string_view()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary_view()
    if nested and pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_view(field.type, nested)) for field in kind])
    if nested and pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_view(kind.value_type, nested)))
    return kind
