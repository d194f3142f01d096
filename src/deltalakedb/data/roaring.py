"""Encodes and decodes a deletion vector's bitmap: row numbers as Delta's RoaringBitmapArray (PROTOCOL.md, appendix).

After its magic number that is the portable 64-bit format of github.com/RoaringBitmap/RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from deltalakedb.exceptions import MalformedLogError

Rows: TypeAlias = npt.NDArray[np.uint64]

_MAGIC: Final = struct.pack("<i", 1681511377)


def decode_bitmap(data: bytes) -> Rows:
    """The row numbers in a RoaringBitmapArray, in order."""
    if data[:4] != _MAGIC:
        raise MalformedLogError(f"a deletion vector begins with {data[:4]!r}, which is no format we know")
    try:
        bitmap = BitMap64.deserialize(data[4:])
    except (ValueError, IndexError) as error:
        raise MalformedLogError(f"a deletion vector's bitmap cannot be read: {error}") from error
    return np.frombuffer(bitmap.to_array(), np.uint64)


def encode_bitmap(rows: Rows) -> bytes:
    """A RoaringBitmapArray of these row numbers, which must be sorted and unique."""
    highs, starts = np.unique(rows >> np.uint64(32), return_index=True)
    parts = [_MAGIC, struct.pack("<Q", len(highs))]
    # One 32-bit bitmap after the other: of many rows, BitMap64 makes a bitmap in twice the time.
    for high, low in zip(highs.tolist(), np.split(rows, starts[1:]), strict=False):
        bitmap = BitMap(array("I", low.astype(np.uint32).tobytes()))
        bitmap.run_optimize()
        parts += [struct.pack("<I", high), bitmap.serialize()]
    return b"".join(parts)
