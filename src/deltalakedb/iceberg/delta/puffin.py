"""Writes Puffin files: deletion vectors in the frame that Iceberg's readers know."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = b"PFA1"
_VECTOR: Final = "deletion-vector-v1"
_ROW_POSITION: Final = 2_147_483_645
"""The reserved field id of a row's position in its file."""


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """The vector of one data file; the bitmap is a RoaringBitmapArray with its magic number, as in Delta."""

    data_file: str
    bitmap: bytes
    cardinality: int


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Where a vector is in its Puffin file, with its frame."""

    offset: int
    length: int


def puffin_file(blobs: Sequence[VectorBlob]) -> tuple[bytes, list[BlobPlace]]:
    """The content of a Puffin file with these vectors, and where each of them is."""
    parts = [_MAGIC]
    places: list[BlobPlace] = []
    offset = len(_MAGIC)
    for blob in blobs:
        framed = struct.pack(">i", len(blob.bitmap)) + blob.bitmap + struct.pack(">I", zlib.crc32(blob.bitmap))
        places.append(BlobPlace(offset, len(framed)))
        parts.append(framed)
        offset += len(framed)
    payload = json.dumps(_footer(blobs, places)).encode()
    # The last four bytes before the magic number are flags: the footer is not compressed.
    parts += [_MAGIC, payload, struct.pack("<i", len(payload)), bytes(4), _MAGIC]
    return b"".join(parts), places


def _footer(blobs: Sequence[VectorBlob], places: Sequence[BlobPlace]) -> dict[str, object]:
    return {
        "blobs": [
            {
                "type": _VECTOR,
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": place.offset,
                "length": place.length,
                "properties": {"referenced-data-file": blob.data_file, "cardinality": str(blob.cardinality)},
            }
            for blob, place in zip(blobs, places, strict=True)
        ],
        "properties": {"created-by": "deltalakedb"},
    }
