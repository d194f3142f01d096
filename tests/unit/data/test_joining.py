"""Tiny Parquet files read as one: the rows of all of them in order, or no joining at all."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.joining import join_files
from deltalakedb.log.schema.types import StructType
from tests.data.strategies import tables


def rows(first: int, count: int = 50) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{'x' * (one % 40)}{one}" for one in ids],
            "some": pa.array([None if one % 3 else one * 0.5 for one in ids]),
            "price": pa.array([Decimal(one) / 4 for one in ids], pa.decimal128(12, 2)),
            "tags": [[str(one)] * (one % 4) for one in ids],
            "place": [{"x": one, "y": None if one % 2 else "y"} for one in ids],
        }
    )


def written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def read(content: bytes) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(content)).read()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "use_dictionary": False},
        {"row_group_size": 20, "store_schema": False},
        {"write_page_index": True, "data_page_version": "2.0", "write_page_checksum": True},
        {"use_dictionary": ["name"], "write_statistics": ["id"], "data_page_size": 64},
        {"use_byte_stream_split": ["some"], "use_dictionary": False, "compression": "none"},
    ],
)
def test_the_rows_of_all_files_come_in_their_order(options: dict[str, Any]) -> None:
    parts = [rows(first * 1000) for first in range(40)]
    joined = join_files([written(part, **options) for part in parts])
    assert joined is not None
    assert read(joined).equals(pa.concat_tables(parts))
    footer = pq.read_metadata(pa.BufferReader(joined))
    assert footer.num_rows == sum(footer.row_group(group).num_rows for group in range(footer.num_row_groups)) == 2000


def test_files_of_very_different_sizes_are_joined() -> None:
    parts = [rows(first, count) for first, count in ((0, 5), (10**9, 20_000), (5, 4), (-7, 200))]
    joined = join_files([written(part) for part in parts])
    assert joined is not None
    assert read(joined).equals(pa.concat_tables(parts))


@given(tables(), st.integers(1, 5), st.booleans())
def test_any_data_is_joined_as_it_is_or_not_at_all(
    table: tuple[StructType, pa.Table], count: int, dictionary: bool
) -> None:
    _, data = table
    step = max(1, data.num_rows // count)
    parts = [data.slice(start, step) for start in range(0, data.num_rows, step)] or [data]
    contents = [written(part, use_dictionary=dictionary) for part in parts]
    joined = join_files(contents)
    if joined is not None:
        apart = [read(content) for content in contents]
        assert str(read(joined).to_pylist()) == str(pa.concat_tables(apart).to_pylist())
    assert join_files(contents[:1]) is not None


@pytest.mark.parametrize(
    "other",
    [
        written(rows(0).drop_columns(["id"])),
        written(rows(0).rename_columns(["ID", "name", "some", "price", "tags", "place"])),
        written(rows(0), row_group_size=10),
        written(rows(0), use_dictionary=False),
        written(rows(0).replace_schema_metadata({"owner": "me"})),
        written(rows(0))[:-1],
        written(rows(0))[:-4] + b"PARE",
        b"",
        b"PAR1",
    ],
    ids=["columns", "names", "row groups", "encoding", "metadata", "cut off", "encrypted", "empty", "short"],
)
def test_what_is_not_alike_is_not_joined(other: bytes) -> None:
    assert join_files([written(rows(0)), written(rows(50))]) is not None
    assert join_files([written(rows(0)), other, written(rows(50))]) is None


@given(st.data())
def test_a_footer_that_makes_no_sense_is_not_joined_or_read_as_it_says(data: st.DataObject) -> None:
    content = bytearray(written(rows(0, 5)))
    size = int.from_bytes(content[-8:-4], "little")
    place = data.draw(st.integers(len(content) - 8 - size, len(content) - 9))
    content[place] = data.draw(st.integers(0, 255))
    joined = join_files([bytes(content)] * 2)
    assert joined is None or joined[-4:] == b"PAR1"


def test_a_chunk_that_would_go_on_into_the_next_file_is_not_joined() -> None:
    content = written(rows(0).select(["id"]), compression="none")
    size = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(0).total_compressed_size * 2
    assert 0x80 <= size < 0x4000
    said, more = (bytes([0x16, one & 0x7F | 0x80, one >> 7]) for one in (size, 2 * 8000))
    assert said in content
    assert join_files([content, content]) is not None
    assert join_files([content.replace(said, more), content]) is None
