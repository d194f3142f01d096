"""Reads and writes deletion vectors: in the log itself, in a file of the table, or in a file elsewhere."""

from __future__ import annotations

import struct
import uuid
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from deltalakedb.exceptions import MalformedLogError, redact
from deltalakedb.log.protocol.actions import DeletionVector
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import open_logged

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {char: place for place, char in enumerate(_Z85)}
_UUID_CHARS: Final = 20
_KEPT_FILES: Final = 8
_FORMAT_VERSION: Final = b"\x01"
MAX_ROWS: Final = 2**28
"""How many deleted rows of a data file are read at most: they take 2 GiB of memory."""


class DeletionVectors:
    """Reads the vectors of a table; caches the last few files, because one holds the vectors of many data files."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: OrderedDict[str, bytes] = OrderedDict()

    def rows(self, vector: DeletionVector) -> Rows:
        """The numbers of the deleted rows, in order."""
        try:
            return decode_bitmap(self.bitmap(vector), vector.cardinality)
        except MalformedLogError as error:
            raise MalformedLogError(redact(f"table {self._storage.location}: {error}")) from None

    def bitmap(self, vector: DeletionVector) -> bytes:
        """The RoaringBitmapArray of a vector, with its magic number."""
        text = vector.path_or_inline_dv
        if vector.storage_type == "i":
            return decode_z85(text)[: vector.size_in_bytes]
        path = vector_file(vector)
        assert path is not None
        return self._slice(vector, path)

    def _slice(self, vector: DeletionVector, path: str) -> bytes:
        """The bitmap in a file, between its size and checksum (PROTOCOL.md, "Deletion Vector File Storage Format")."""
        content = self._read(path)
        start = vector.offset if vector.offset is not None else 1
        try:
            (size,) = struct.unpack_from(">i", content, start)
            bitmap = content[start + 4 : start + 4 + size]
            (checksum,) = struct.unpack_from(">I", content, start + 4 + size)
        except struct.error as error:
            raise _malformed(vector, f"{path} ends too early") from error
        if size != vector.size_in_bytes or zlib.crc32(bitmap) != checksum:
            raise _malformed(vector, f"{path} is damaged: size or checksum differ")
        return bitmap

    def _read(self, path: str) -> bytes:
        if path not in self._files:
            with open_logged(self._storage, path) as file:
                self._files[path] = file.read()
            while len(self._files) > _KEPT_FILES:
                self._files.popitem(last=False)
        self._files.move_to_end(path)
        return self._files[path]


def vector_file(vector: DeletionVector) -> str | None:
    """The file of a vector, by its path as in the log; None for an inline vector."""
    text = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return None
    if vector.storage_type == "p":
        return text
    if vector.storage_type != "u":
        raise _malformed(vector, f"the storage type {vector.storage_type!r} is not known")
    if len(text) < _UUID_CHARS:
        raise _malformed(vector, "its name is too short")
    prefix, name = text[:-_UUID_CHARS], uuid.UUID(bytes=decode_z85(text[-_UUID_CHARS:]))
    return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"


def write_vectors(storage: Storage, rows: Sequence[Rows], folder: str = "") -> tuple[list[DeletionVector], str]:
    """Write the deleted rows of many data files into one file; return their vectors and the file's path.

    The row numbers of each data file are sorted and unique.
    """
    name = uuid.uuid4()
    path = f"{folder}/deletion_vector_{name}.bin".lstrip("/")
    vectors: list[DeletionVector] = []
    file = storage.create(path)
    try:
        file.sink.write(_FORMAT_VERSION)
        offset = len(_FORMAT_VERSION)
        for numbers in rows:
            bitmap = encode_bitmap(numbers)
            file.sink.write(struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap)))
            vectors.append(DeletionVector("u", folder + encode_z85(name.bytes), len(bitmap), len(numbers), offset))
            offset += len(bitmap) + 8
        file.finish()
    except BaseException:
        file.abandon()
        raise
    storage.sync([path])
    return vectors, path


def _malformed(vector: DeletionVector, detail: str) -> MalformedLogError:
    return MalformedLogError(f"the deletion vector {vector.unique_id[:200]} cannot be read: {detail}")


def decode_z85(text: str) -> bytes:
    """Decode Z85 text (rfc.zeromq.org/spec/32), five characters for four bytes."""
    try:
        digits = np.array([_VALUES[char] for char in text], np.uint64).reshape(-1, 5)
    except (KeyError, ValueError) as error:
        raise MalformedLogError(f"{text[:40]!r} is no Z85 text, which a deletion vector has") from error
    powers = np.array([85**4, 85**3, 85**2, 85, 1], np.uint64)
    return bytes((digits * powers).sum(axis=1).astype(">u4").tobytes())


def encode_z85(data: bytes) -> str:
    """Encode bytes as Z85 text; their number must be a multiple of four."""
    numbers = np.frombuffer(data, ">u4").astype(np.uint64)
    powers = np.array([85**4, 85**3, 85**2, 85, 1], np.uint64)
    digits = numbers[:, None] // powers % np.uint64(85)
    return "".join(_Z85[digit] for digit in digits.ravel().tolist())


Rows: TypeAlias = npt.NDArray[np.uint64]

_MAGIC: Final = struct.pack("<i", 1681511377)


def decode_bitmap(data: bytes, cardinality: int | None = None, *, source: str = "the log") -> Rows:
    """The row numbers in a RoaringBitmapArray, in order; MalformedLogError if they are not as many as expected.

    They are counted before they are listed: a few bytes can stand for billions of rows.
    """
    if data[:4] != _MAGIC:
        raise MalformedLogError(f"a deletion vector begins with {data[:4]!r}, which is no format we know")
    try:
        bitmap = BitMap64.deserialize(data[4:])
    except (ValueError, IndexError) as error:
        raise MalformedLogError(f"a deletion vector's bitmap cannot be read: {error}") from error
    if cardinality is not None and len(bitmap) != cardinality:
        raise MalformedLogError(f"a deletion vector holds {len(bitmap)} rows, {source} says {cardinality}")
    if len(bitmap) > MAX_ROWS:
        raise MalformedLogError(f"a deletion vector holds {len(bitmap)} rows; at most {MAX_ROWS} are read")
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
