"""Joins tiny Parquet files into one: their bytes one after the other, and a footer with the row groups of all.

Opening a reader takes longer than decoding a hundred rows, so reading a thousand joined files is several times as fast.
Files of one writer have footers of the same shape (Thrift's compact protocol), so all footers are walked at once, with
an array of the position in each. Only offsets change; all else is copied. Files whose footers differ are not joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
"""One number for each footer."""

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8  # the length of the footer, and the magic
_PADDING: Final = bytes(32)
_OFFSET_BYTES: Final = 5
_MAX_BYTES: Final = 2**30
_MAX_DEPTH: Final = 32

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
# The relevant fields of Parquet's structs, by number.
_NUM_ROWS: Final = 3
_ROW_GROUPS_HEADER: Final = 0x10 | _LIST  # the header of the field after it
_GROUP_COLUMNS, _GROUP_OFFSET = 1, 5
_CHUNK_META = 3
_CHUNK_OFFSETS: Final = (2, 4, 6)
_CHUNK_REFUSED: Final = (1, 8, 9)  # in another file, or encrypted
_META_SIZE: Final = 7
_META_PAGES: Final = (9, 11)  # of data, and of a dictionary before it
_META_OFFSETS: Final = (10, 14)  # of an index, and of a bloom filter


class _UnlikeError(Exception):
    """The footers differ in shape, or have something that cannot be moved."""


def join_files(contents: Sequence[bytes]) -> bytes | None:
    """One Parquet file with the row groups of all of these, in order; None if their footers differ in shape."""
    try:
        return _join(contents)
    except (_UnlikeError, IndexError):
        return None


def _join(contents: Sequence[bytes]) -> bytes:
    footers = [_footer(content) for content in contents]
    sizes = np.array([len(content) for content in contents], np.int64)
    if sizes.sum() >= _MAX_BYTES:
        raise _UnlikeError
    head = _head(footers[0], sizes[:1])
    if not all(footer.startswith(head) for footer in footers):
        raise _UnlikeError
    walk = _Walk(footers, len(head), sizes)
    num_rows = int(walk.number().sum())
    if walk.common_byte() != _ROW_GROUPS_HEADER:
        raise _UnlikeError
    count, kind = walk.list_header()
    if not count or kind != _STRUCT:
        raise _UnlikeError
    begin = walk.at.copy()
    for _ in range(count):
        _walk_row_group(walk)
    groups = walk.moved(begin, np.cumsum(sizes) - sizes)
    after = footers[0][walk.place(0) :]
    if any(footer[walk.place(number) :] != after for number, footer in enumerate(footers)):
        raise _UnlikeError
    total = _varint(count * len(contents))
    start = [head, _varint(num_rows << 1), bytes([_ROW_GROUPS_HEADER, 0xF0 | _STRUCT]), total]
    footer = b"".join([*start, *groups, after])
    return b"".join([*contents, footer, struct.pack("<I", len(footer)), _MAGIC])


def _footer(content: bytes) -> bytes:
    size = int.from_bytes(content[-_TAIL_BYTES:-4], "little")
    if content[-4:] != _MAGIC or size + _TAIL_BYTES > len(content):
        raise _UnlikeError
    return content[-_TAIL_BYTES - size : -_TAIL_BYTES]


def _head(footer: bytes, size: Numbers) -> bytes:
    """The schema and everything else before the number of rows."""
    walk = _Walk([footer], 0, size)
    for field, kind in walk.fields():
        if field == _NUM_ROWS and kind == _I64:
            return footer[: walk.place(0)]
        walk.skip(kind)
    raise _UnlikeError


def _walk_row_group(walk: _Walk) -> None:
    for field, kind in walk.fields():
        if field == _GROUP_COLUMNS and kind == _LIST:
            count, _ = walk.list_header()
            for _ in range(count):
                _walk_chunk(walk)
        elif field == _GROUP_OFFSET:
            walk.note_offset(kind)
        else:
            walk.skip(kind)


def _walk_chunk(walk: _Walk) -> None:
    for field, kind in walk.fields():
        if field in _CHUNK_REFUSED:
            raise _UnlikeError
        if field in _CHUNK_OFFSETS:
            walk.note_offset(kind)
        elif field == _CHUNK_META and kind == _STRUCT:
            _walk_chunk_meta(walk)
        else:
            walk.skip(kind)


def _walk_chunk_meta(walk: _Walk) -> None:
    size, pages = np.zeros_like(walk.at), list[Numbers]()
    for field, kind in walk.fields():
        if field == _META_SIZE and kind == _I64:
            size = walk.number()
        elif field in _META_PAGES:
            pages.append(walk.note_offset(kind))
        elif field in _META_OFFSETS:
            walk.note_offset(kind)
        else:
            walk.skip(kind)
    # In a broken file, a chunk must not extend into the next file.
    if not pages or (_first(pages) + size > walk.sizes).any():
        raise _UnlikeError


def _first(pages: Sequence[Numbers]) -> Numbers:
    """Where a chunk begins: at its dictionary, if there is one."""
    data, *dictionary = pages
    return np.where((dictionary[0] > 0) & (dictionary[0] < data), dictionary[0], data) if dictionary else data


class _Walk:
    """A position in each of the footers, which advance together; _UnlikeError where they differ in shape."""

    def __init__(self, footers: Sequence[bytes], start: int, sizes: Numbers) -> None:
        lengths = np.array([len(footer) for footer in footers], np.int64)
        self.sizes = sizes
        """The sizes of the files."""
        self._footers = footers
        self._bytes = np.frombuffer(b"".join([*footers, _PADDING]), np.uint8)
        self._starts = np.cumsum(lengths) - lengths
        self._offsets: list[tuple[Numbers, Numbers, Numbers]] = []  # start, end, and the value
        self.at: Numbers = self._starts + start

    def place(self, number: int) -> int:
        """The position in one of the footers."""
        return int(self.at[number] - self._starts[number])

    def common_byte(self) -> int:
        values = self._bytes[self.at]
        first = int(values[0])
        if (values != first).any():
            raise _UnlikeError
        self.at = self.at + 1
        return first

    def unsigned(self) -> Numbers:
        octets = self._bytes[self.at].astype(np.int64)
        self.at = self.at + 1
        value = octets & 0x7F
        continues = octets >= 0x80
        for shift in range(7, 63, 7):
            if not continues.any():
                return value
            octets = self._bytes[self.at].astype(np.int64)
            value |= np.where(continues, (octets & 0x7F) << shift, 0)
            self.at = self.at + continues
            continues = continues & (octets >= 0x80)
        raise _UnlikeError

    def number(self) -> Numbers:
        """Read a non-negative number."""
        encoded = self.unsigned()
        if (encoded & 1).any():
            raise _UnlikeError
        return encoded >> 1

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; the caller must read or skip each value."""
        field = 0
        while (header := self.common_byte()) != 0:
            if not header >> 4:
                raise _UnlikeError  # a field number far from the last one: Parquet has none
            field += header >> 4
            yield field, header & 0x0F

    def list_header(self) -> tuple[int, int]:
        """The number of elements, and their type."""
        header = self.common_byte()
        count = header >> 4
        if count == 15:
            counts = self.unsigned()
            count = int(counts[0])
            if (counts != count).any():
                raise _UnlikeError
        return count, header & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value."""
        if depth > _MAX_DEPTH:
            raise _UnlikeError
        if kind in (_I16, _I32, _I64):
            self.unsigned()
        elif kind == _BINARY:
            length = self.unsigned()
            self.at = self.at + length
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (_LIST, _SET):
            count, inner = self.list_header()
            if inner in (_TRUE, _FALSE):
                self.at = self.at + count
            else:
                for _ in range(count):
                    self.skip(inner, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self.at = self.at + (1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):  # booleans are in the field's header
            raise _UnlikeError

    def note_offset(self, kind: int) -> Numbers:
        """Read a value that depends on where the file begins, and record its position."""
        if kind != _I64:
            raise _UnlikeError
        begin = self.at
        value = self.number()
        self._offsets.append((begin, self.at, value))
        return value

    def moved(self, begin: Numbers, shifts: Numbers) -> list[bytes]:
        """The bytes of each footer from `begin` to here with offsets moved; an offset of 0 means that there is none."""
        cuts = np.stack([begin, *(cut for start, end, _ in self._offsets for cut in (start, end)), self.at], axis=1)
        positions = (cuts - self._starts[:, None]).tolist()
        texts = [_padded(np.where(value > 0, value + shifts, 0)) for _, _, value in self._offsets]
        moved = []
        for number, (footer, ends) in enumerate(zip(self._footers, positions, strict=True)):
            parts = [footer[ends[0] : ends[1]]]
            for index, text in enumerate(texts):
                parts += (text[number], footer[ends[2 * index + 2] : ends[2 * index + 3]])
            moved.append(b"".join(parts))
        return moved


def _padded(values: Numbers) -> list[bytes]:
    """Numbers as varints of the same length, that of the largest possible one."""
    encoded = values << 1
    digits = np.stack([(encoded >> (7 * index)) & 0x7F for index in range(_OFFSET_BYTES)], axis=1).astype(np.uint8)
    digits[:, :-1] |= 0x80
    text = digits.tobytes()
    return [text[index : index + _OFFSET_BYTES] for index in range(0, len(text), _OFFSET_BYTES)]


def _varint(value: int) -> bytes:
    text = bytearray()
    while value >= 0x80:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    text.append(value)
    return bytes(text)
