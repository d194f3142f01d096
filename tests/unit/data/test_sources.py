"""Whatever carries Arrow data, or can be turned into it, is one stream of batches."""

import importlib
from collections.abc import Iterator
from typing import Any

import arro3.core
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from deltalakedb.data.sources import prepare_data, with_delta_errors
from deltalakedb.exceptions import DeltaError

pd: Any = importlib.import_module("pandas")  # it brings no types
TABLE = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})


class OnlyStream:
    """Nothing but the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class OnlyArray:
    """Nothing but the Arrow C array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_reader(),
        TABLE.to_batches()[0],
        TABLE.to_batches(max_chunksize=1),
        tuple(TABLE.to_batches(max_chunksize=2)),
        iter(TABLE.to_batches(max_chunksize=2)),
        [TABLE.slice(0, 1), TABLE.slice(1)],
        ds.dataset(TABLE),
        ds.dataset(TABLE).scanner(),
        arro3.core.Table.from_arrow(TABLE),
        arro3.core.RecordBatchReader.from_arrow(TABLE),
        pl.from_arrow(TABLE),
        TABLE.to_pandas(),
        duckdb.sql("select * from (values (1, 'x'), (2, null), (3, 'z')) t(a, b)"),
        OnlyStream(),
        OnlyArray(),
    ],
    ids=lambda data: f"{type(data).__module__}.{type(data).__name__}",
)
def test_all_kinds_of_data_have_the_same_rows(data: Any) -> None:
    assert prepare_data(data).read_all().to_pylist() == TABLE.to_pylist()


def test_an_index_of_pandas_is_a_column_unless_it_only_numbers_the_rows() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert prepare_data(frame).schema.names == ["a"]
    assert set(prepare_data(frame.set_index(pd.Index([7, 9, 8], name="key"))).schema.names) == {"key", "a"}


def test_batches_are_taken_one_at_a_time() -> None:
    given = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in TABLE.to_batches(max_chunksize=1):
            given.append(batch)
            yield batch

    reader = prepare_data(batches())
    assert len(given) == 1, "the first one, for its schema"
    reader.read_next_batch()
    reader.read_next_batch()
    assert len(given) == 2


@pytest.mark.parametrize("data", [7, "text", b"bytes", {"a": [1]}, [{"a": 1}], object()])
def test_other_things_are_refused(data: Any) -> None:
    with pytest.raises(TypeError, match="give Arrow, pandas or polars data"):
        prepare_data(data)


def test_a_lazy_frame_is_told_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"call \.collect\(\) first"):
        prepare_data(pl.LazyFrame({"a": [1]}))


def test_no_batches_are_no_data() -> None:
    with pytest.raises(ValueError, match="an empty sequence has no schema"):
        prepare_data([])


def test_a_stream_that_fails_while_it_is_read_tells_why_as_a_delta_error() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise KeyError("gone")

    rows = with_delta_errors(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    with pytest.raises(DeltaError, match="KeyError: 'gone'") as caught:
        rows.read_all()
    assert isinstance(caught.value.__cause__, KeyError)
    assert with_delta_errors(TABLE) is TABLE
