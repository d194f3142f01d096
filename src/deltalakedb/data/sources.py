"""Converts data of every accepted kind to one stream of record batches, and combines small batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import DeltaError


def prepare_data(data: Any) -> pa.RecordBatchReader:
    """A stream over pyarrow, pandas or polars data, anything with an Arrow C stream, or a sequence of batches.

    Streams are not read ahead, and nothing is copied unless Arrow has to.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if _is_pandas(data):
        return pa.Table.from_pandas(data).to_reader()  # an index becomes a column, unless it only numbers the rows
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return prepare_data(pa.record_batch(data))
    if hasattr(data, "to_reader"):  # a scanner of pyarrow.dataset
        return data.to_reader()
    if hasattr(data, "scanner"):  # a pyarrow.dataset
        return data.scanner().to_reader()
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        return _from_batches(iter(data))
    raise _refused(data)


def with_delta_errors(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """The same rows; what is raised while a stream is read is a DeltaError, as in `deltalake`."""
    if isinstance(rows, pa.Table):
        return rows

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except DeltaError:
            raise
        except Exception as error:  # the caller's own stream may raise anything
            message = f"the data cannot be read to its end: {type(error).__name__}: {error}; nothing was written"
            raise DeltaError(message) from error

    return pa.RecordBatchReader.from_batches(rows.schema, read())


def _is_pandas(data: Any) -> bool:
    return _module(data).partition(".")[0] == "pandas" and hasattr(data, "columns")


def _module(data: Any) -> str:
    return str(getattr(type(data), "__module__", ""))  # a class made at run time may have none


def _from_batches(items: Iterator[Any]) -> pa.RecordBatchReader:
    try:
        first = next(items)
    except StopIteration:
        raise ValueError("no data: an empty sequence has no schema; give an empty Arrow table instead") from None
    if isinstance(first, dict):
        raise _refused([first])
    head = prepare_data(first)
    rest = (batch for item in items for batch in prepare_data(item))
    return pa.RecordBatchReader.from_batches(head.schema, chain(head, rest))


def _refused(data: Any) -> TypeError:
    kind = f"{_module(data)}.{type(data).__qualname__}".removeprefix("builtins.")
    hint = "; call .collect() first" if kind.endswith("LazyFrame") else ""
    return TypeError(
        "Expected object with __arrow_c_array__ or __arrow_c_stream__ method: cannot take data from "
        f"{kind}; give Arrow, pandas or polars data, or batches of it{hint}"
    )


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
