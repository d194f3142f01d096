"""Deletion vectors made by hand, inline or in a file, from the text of PROTOCOL.md alone."""

import base64
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path

from deltalakedb.log.protocol.actions import DeletionVector

_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def inline(rows: Sequence[int]) -> DeletionVector:
    bitmap = _bitmap(rows)
    padded = bitmap + b"\0" * (-len(bitmap) % 4)
    return DeletionVector("i", _z85(padded), len(bitmap), len(rows))


def in_file(table: Path, rows: Sequence[int]) -> DeletionVector:
    """A file in the table's folder that holds one vector."""
    unique, bitmap = uuid.uuid4(), _bitmap(rows)
    body = struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    (table / f"deletion_vector_{unique}.bin").write_bytes(b"\1" + body)
    return DeletionVector("u", _z85(unique.bytes), len(bitmap), len(rows), offset=1)


def _bitmap(rows: Sequence[int]) -> bytes:
    """A RoaringBitmapArray with one bitmap of one array container."""
    values = sorted(rows)
    assert values[-1] < 1 << 16
    assert len(values) <= 4096
    container = struct.pack(f"<{len(values)}H", *values)
    roaring = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1, 16) + container
    return struct.pack("<iQI", 1681511377, 1, 0) + roaring


def _z85(content: bytes) -> str:
    return base64.b85encode(content).translate(bytes.maketrans(_B85, _Z85)).decode()
