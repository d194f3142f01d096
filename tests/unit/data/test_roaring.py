"""Bitmaps of deletion vectors, in every kind of container that the format has."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.deletion_vectors import decode_bitmap, decode_z85
from deltalakedb.exceptions import MalformedLogError

MAGIC = 1681511377


def encode(rows: set[int], *, runs: bool) -> bytes:
    """The format's specification, written down the other way round."""
    highs = sorted({row >> 32 for row in rows})
    parts = [struct.pack("<iQ", MAGIC, len(highs))]
    for high in highs:
        lows = sorted(row & 0xFFFFFFFF for row in rows if row >> 32 == high)
        parts.append(struct.pack("<I", high) + encode_32(lows, runs=runs))
    return b"".join(parts)


def encode_32(values: list[int], *, runs: bool) -> bytes:
    containers: dict[int, list[int]] = {}
    for value in values:
        containers.setdefault(value >> 16, []).append(value & 0xFFFF)
    count = len(containers)
    flags = [runs and place % 2 == 0 for place in range(count)]
    if runs:
        bits = np.packbits(np.array(flags, np.uint8), bitorder="little").tobytes()
        head = struct.pack("<I", 12347 | (count - 1) << 16) + bits
    else:
        head = struct.pack("<II", 12346, count)
    pairs = b"".join(struct.pack("<HH", key, len(found) - 1) for key, found in containers.items())
    bodies = [container(found, flag) for found, flag in zip(containers.values(), flags, strict=True)]
    offsets = b""
    if not runs or count >= 4:
        start = len(head) + len(pairs) + 4 * count
        for body in bodies:
            offsets += struct.pack("<I", start)
            start += len(body)
    return head + pairs + offsets + b"".join(bodies)


def container(values: list[int], is_run: bool) -> bytes:
    if is_run:
        starts = [value for place, value in enumerate(values) if not place or values[place - 1] != value - 1]
        lengths = [next(n for n in range(len(values) + 1) if start + n not in set(values)) - 1 for start in starts]
        pairs = [number for pair in zip(starts, lengths, strict=True) for number in pair]
        return struct.pack(f"<H{len(pairs)}H", len(starts), *pairs)
    if len(values) > 4096:
        bits = np.zeros(65536, np.uint8)
        bits[values] = 1
        return np.packbits(bits, bitorder="little").tobytes()
    return struct.pack(f"<{len(values)}H", *values)


numbers = st.integers(0, 200) | st.integers(0, 2**20) | st.integers(0, 2**34)


@given(st.sets(numbers, max_size=60), st.booleans())
def test_row_numbers_come_back_in_order(rows: set[int], runs: bool) -> None:
    assert decode_bitmap(encode(rows, runs=runs)).tolist() == sorted(rows)


@pytest.mark.parametrize("runs", [True, False])
def test_a_full_container_and_one_of_many_values(runs: bool) -> None:
    rows = set(range(65536)) | set(range(65536, 2 * 65536, 3)) | {5 * 65536 + 1}
    if runs:
        rows = set(range(100)) | set(range(65536, 2 * 65536, 3)) | {5 * 65536 + 1, 6 * 65536, 7 * 65536}
    assert decode_bitmap(encode(rows, runs=runs)).tolist() == sorted(rows)


@pytest.mark.parametrize(
    "data",
    [b"", struct.pack("<iQ", 7, 0), encode({1, 2, 3}, runs=False)[:-1], encode(set(range(9)), runs=True)[:-1]],
)
def test_damaged_bitmaps_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedLogError, match="deletion vector"):
        decode_bitmap(data)


def test_z85_reads_the_example_of_its_specification() -> None:
    assert decode_z85("HelloWorld") == bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B])
    with pytest.raises(MalformedLogError, match="no Z85 text"):
        decode_z85("Hello\u00e9")
    with pytest.raises(MalformedLogError, match="no Z85 text"):
        decode_z85("abc")
