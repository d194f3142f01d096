"""Writes Avro files: numbers and texts as bytes, and the container around records that are encoded already."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Any, Final

BLOCK_RECORDS: Final = 1_000
_MAGIC: Final = b"Obj\x01"
_LEVEL: Final = 3
"""Higher levels of deflate take several times as long, and save a few bytes."""

NULL: Final = b"\0"
"""The first branch of a union, which is null in all of Iceberg's schemas."""

PRESENT: Final = b"\2"
"""The second branch; the value follows."""


@lru_cache(maxsize=16_384)
def avro_long(value: int) -> bytes:
    """An int or a long."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def avro_bytes(value: bytes) -> bytes:
    return avro_long(len(value)) + value


def avro_text(value: str) -> bytes:
    return avro_bytes(value.encode())


def avro_optional(encoded: bytes | None) -> bytes:
    """A value of a union with null, from its encoding; None is null."""
    return NULL if encoded is None else PRESENT + encoded


def avro_file(schema: Mapping[str, Any], header: Mapping[str, str], records: Sequence[bytes]) -> bytes:
    """A file of encoded records; the same records give the same file."""
    fields = {"avro.schema": json.dumps(schema, separators=(",", ":")), "avro.codec": "deflate", **header}
    pairs = b"".join(avro_text(key) + avro_text(value) for key, value in fields.items())
    head = _MAGIC + avro_long(len(fields)) + pairs + b"\0"
    marker = md5(head, usedforsecurity=False).digest()
    parts = [head, marker]
    for start in range(0, len(records), BLOCK_RECORDS):
        block = records[start : start + BLOCK_RECORDS]
        packed = _deflate(b"".join(block))
        parts += (avro_long(len(block)), avro_long(len(packed)), packed, marker)
    return b"".join(parts)


def _deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()
