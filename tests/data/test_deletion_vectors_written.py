"""Deletion vectors that we write: read back by ourselves, and held against the format's specification."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.deletion_vectors import (
    DeletionVectors,
    Rows,
    decode_bitmap,
    decode_z85,
    encode_bitmap,
    encode_z85,
    write_vectors,
)
from deltalakedb.storage.location import open_storage
from tests.unit.data.test_roaring import encode

SPANS = st.lists(
    st.tuples(st.integers(0, 1 << 34), st.integers(1, 9000), st.integers(1, 3)),
    max_size=5,
)


def numbers(values: list[int] | range) -> Rows:
    return np.array(sorted(set(values)), np.uint64)


@given(SPANS)
def test_every_set_of_rows_is_read_back(spans: list[tuple[int, int, int]]) -> None:
    rows = numbers([row for start, count, step in spans for row in range(start, start + count * step, step)])
    assert np.array_equal(decode_bitmap(encode_bitmap(rows)), rows)


@pytest.mark.parametrize(
    "values",
    [range(0, 9000, 2), [0, 5, 65535, 65536], [1 << 33, 7], range(0, 400_000, 3), []],
    ids=["bitmap", "arrays", "two halves", "many containers", "none"],
)
def test_without_runs_the_bytes_are_those_of_the_specification(values: list[int] | range) -> None:
    assert encode_bitmap(numbers(values)) == encode(set(values), runs=False)


def test_rows_side_by_side_take_little_room() -> None:
    assert len(encode_bitmap(numbers(range(1_000_000)))) < 300


@given(st.binary(min_size=16, max_size=16))
def test_z85_is_read_back(data: bytes) -> None:
    assert decode_z85(encode_z85(data)) == data


def test_many_vectors_lie_in_one_file(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), None)
    sets = [numbers(range(0, 100, 7)), numbers([3]), numbers(range(70_000))]
    vectors, path = write_vectors(storage, sets)
    assert [vector.cardinality for vector in vectors] == [15, 1, 70_000]
    known = DeletionVectors(storage)
    assert all(np.array_equal(known.rows(vector), rows) for vector, rows in zip(vectors, sets, strict=True))
    content = (tmp_path / path).read_bytes()
    assert content[0] == 1
    for vector in vectors:
        assert vector.offset is not None
        (size,) = struct.unpack_from(">i", content, vector.offset)
        bitmap = content[vector.offset + 4 : vector.offset + 4 + size]
        assert size == vector.size_in_bytes
        assert struct.unpack_from(">I", content, vector.offset + 4 + size) == (zlib.crc32(bitmap),)
