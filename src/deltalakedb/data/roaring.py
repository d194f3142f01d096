"""Encodes and decodes a deletion vector's bitmap: row numbers as Delta's RoaringBitmapArray (PROTOCOL.md, appendix).

A 64-bit bitmap is a list of 32-bit ones, each in the portable format of github.com/RoaringBitmap/RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from deltalakedb.exceptions import MalformedLogError

Rows: TypeAlias = npt.NDArray[np.uint64]

_MAGIC: Final = 1681511377
_COOKIE: Final = 12347  # with run containers
_COOKIE_NO_RUNS: Final = 12346
_NO_OFFSETS_BELOW: Final = 4
_ARRAY_LIMIT: Final = 4096  # a container with more values is a bitmap
_BITMAP_BYTES: Final = 8192


def decode_bitmap(data: bytes) -> Rows:
    """The row numbers in a RoaringBitmapArray, in order."""
    try:
        magic, count = struct.unpack_from("<iQ", data)
        if magic != _MAGIC:
            raise MalformedLogError(f"a deletion vector begins with {magic}, which is no format we know")
        position = 12
        parts = []
        for _ in range(count):
            (high,) = struct.unpack_from("<I", data, position)
            values, position = _decode_32(data, position + 4)
            parts.append(values | np.uint64(high << 32))
    except (struct.error, ValueError, IndexError) as error:
        raise MalformedLogError(f"a deletion vector's bitmap cannot be read: {error}") from error
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _decode_32(data: bytes, start: int) -> tuple[Rows, int]:
    """One 32-bit bitmap, and the position of its end."""
    (cookie,) = struct.unpack_from("<I", data, start)
    position = start + 4
    if cookie & 0xFFFF == _COOKIE:
        count = (cookie >> 16) + 1
        flags = np.unpackbits(_numbers(data, np.uint8, (count + 7) // 8, position), bitorder="little")
        position += (count + 7) // 8
        has_offsets = count >= _NO_OFFSETS_BELOW
    elif cookie == _COOKIE_NO_RUNS:
        (count,) = struct.unpack_from("<I", data, position)
        position += 4
        flags = np.zeros(count, np.uint8)
        has_offsets = True
    else:
        raise ValueError(f"unknown cookie {cookie}")
    heads = _numbers(data, np.uint16, 2 * count, position).reshape(-1, 2).astype(np.int64)
    position += 4 * count + (4 * count if has_offsets else 0)
    parts = []
    for (key, cardinality), is_run in zip(heads.tolist(), flags.tolist(), strict=False):
        values, position = _container(data, position, cardinality + 1, bool(is_run))
        parts.append(values.astype(np.uint64) | np.uint64(key << 16))
    return (np.concatenate(parts) if parts else np.empty(0, np.uint64)), position


def _container(data: bytes, position: int, cardinality: int, is_run: bool) -> tuple[Any, int]:
    if is_run:
        (runs,) = struct.unpack_from("<H", data, position)
        pairs = _numbers(data, np.uint16, 2 * runs, position + 2).reshape(-1, 2).astype(np.int64)
        starts, lengths = pairs[:, 0], pairs[:, 1] + 1
        first = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        return first + np.arange(int(lengths.sum())), position + 2 + 4 * runs
    if cardinality > _ARRAY_LIMIT:
        bits = np.unpackbits(_numbers(data, np.uint8, _BITMAP_BYTES, position), bitorder="little")
        return np.flatnonzero(bits), position + _BITMAP_BYTES
    return _numbers(data, np.uint16, cardinality, position), position + 2 * cardinality


def _numbers(data: bytes, kind: type[np.uint8 | np.uint16], count: int, position: int) -> Any:
    return np.frombuffer(data, np.dtype(kind).newbyteorder("<"), count, position)


def encode_bitmap(rows: Rows) -> bytes:
    """A RoaringBitmapArray of these row numbers, which must be sorted and unique."""
    highs, starts = np.unique(rows >> np.uint64(32), return_index=True)
    parts = [struct.pack("<iQ", _MAGIC, len(highs))]
    if not len(rows):
        return parts[0]
    for high, low in zip(highs.tolist(), np.split(rows, starts[1:]), strict=True):
        parts += [struct.pack("<I", high), _encode_32((low & np.uint64(0xFFFFFFFF)).astype(np.uint32))]
    return b"".join(parts)


def _encode_32(values: npt.NDArray[np.uint32]) -> bytes:
    keys, starts = np.unique(values >> np.uint32(16), return_index=True)
    lows = [part.astype(np.uint16) for part in np.split(values, starts[1:])]
    encoded = [_encode_container(part) for part in lows]
    count, flags = len(keys), np.array([is_run for _, is_run in encoded], np.uint8)
    heads = np.array([keys, [len(part) - 1 for part in lows]], "<u2").T.tobytes()
    if flags.any():
        start = struct.pack("<I", _COOKIE | (count - 1) << 16) + np.packbits(flags, bitorder="little").tobytes()
        has_offsets = count >= _NO_OFFSETS_BELOW
    else:
        start, has_offsets = struct.pack("<II", _COOKIE_NO_RUNS, count), True
    first = len(start) + len(heads) + (4 * count if has_offsets else 0)
    sizes = [len(data) for data, _ in encoded]
    offsets = (first + np.concatenate(([0], np.cumsum(sizes)[:-1]))).astype("<u4").tobytes() if has_offsets else b""
    return b"".join([start, heads, offsets, *(data for data, _ in encoded)])


def _encode_container(values: npt.NDArray[np.uint16]) -> tuple[bytes, bool]:
    """The shortest form of one container, and whether it consists of runs."""
    wide = values.astype(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(wide) != 1) + 1))
    plain_bytes = 2 * len(values) if len(values) <= _ARRAY_LIMIT else _BITMAP_BYTES
    if 2 + 4 * len(starts) < plain_bytes:
        lengths = np.diff(np.concatenate((starts, [len(values)])))
        pairs = np.array([wide[starts], lengths - 1], "<u2").T.tobytes()
        return struct.pack("<H", len(starts)) + pairs, True
    if len(values) <= _ARRAY_LIMIT:
        return values.astype("<u2").tobytes(), False
    bits = np.zeros(_BITMAP_BYTES * 8, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes(), False
