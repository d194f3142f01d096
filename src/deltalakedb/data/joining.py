"""Owns tiny Parquet files seen as one: their bytes one after the other, and a footer with the row groups of all.

Opening a reader takes longer than decoding a hundred rows, so a thousand files are read several times as fast through
one. Files of one writer have footers of one shape (Thrift's compact protocol): all of them are walked at the same time,
an array holding the place in each. Only offsets change; all else is taken over as it is. What is not alike stays apart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
"""One for each footer."""

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8  # the length of the footer, and the magic
_PADDING: Final = bytes(32)
_OFFSET_BYTES: Final = 5
_MAX_BYTES: Final = 2**30
_MAX_DEPTH: Final = 32

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
# Parquet's structs: the fields that matter, by their numbers.
_NUM_ROWS: Final = 3
_ROW_GROUPS_HEADER: Final = 0x10 | _LIST  # the field after it
_GROUP_COLUMNS, _GROUP_OFFSET = 1, 5
_CHUNK_META = 3
_CHUNK_OFFSETS: Final = (2, 4, 6)
_CHUNK_REFUSED: Final = (1, 8, 9)  # in another file, or encrypted
_META_SIZE: Final = 7
_META_PAGES: Final = (9, 11)  # of data, and of a dictionary before it
_META_OFFSETS: Final = (10, 14)  # of an index, and of a bloom filter


class _UnlikeError(Exception):
    """The footers are not of one shape, or hold what cannot be moved."""


def join_files(contents: Sequence[bytes]) -> bytes | None:
    """One Parquet file with the row groups of all of these, in their order; None when their footers are not alike."""
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
    """The schema and what else is before the number of rows."""
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
    # Where its file is broken a chunk must not go on into the next one.
    if not pages or (_first(pages) + size > walk.sizes).any():
        raise _UnlikeError


def _first(pages: Sequence[Numbers]) -> Numbers:
    """Where a chunk begins: at its dictionary, if there is one."""
    data, *dictionary = pages
    return np.where((dictionary[0] > 0) & (dictionary[0] < data), dictionary[0], data) if dictionary else data


class _Walk:
    """A place in each of the footers, which go on together; it ends where they differ in shape."""

    def __init__(self, footers: Sequence[bytes], start: int, sizes: Numbers) -> None:
        lengths = np.array([len(footer) for footer in footers], np.int64)
        self.sizes = sizes
        """Of the files."""
        self._footers = footers
        self._bytes = np.frombuffer(b"".join([*footers, _PADDING]), np.uint8)
        self._starts = np.cumsum(lengths) - lengths
        self._offsets: list[tuple[Numbers, Numbers, Numbers]] = []  # from, to, and the value that is there
        self.at: Numbers = self._starts + start

    def place(self, number: int) -> int:
        """Where we are in one of the footers."""
        return int(self.at[number] - self._starts[number])

    def common_byte(self) -> int:
        found = self._bytes[self.at]
        first = int(found[0])
        if (found != first).any():
            raise _UnlikeError
        self.at = self.at + 1
        return first

    def unsigned(self) -> Numbers:
        found = self._bytes[self.at].astype(np.int64)
        self.at = self.at + 1
        value = found & 0x7F
        going = found >= 0x80
        for shift in range(7, 63, 7):
            if not going.any():
                return value
            found = self._bytes[self.at].astype(np.int64)
            value |= np.where(going, (found & 0x7F) << shift, 0)
            self.at = self.at + going
            going = going & (found >= 0x80)
        raise _UnlikeError

    def number(self) -> Numbers:
        """A number that is not negative."""
        found = self.unsigned()
        if (found & 1).any():
            raise _UnlikeError
        return found >> 1

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; whoever asks for the next one has passed its value."""
        field = 0
        while (header := self.common_byte()) != 0:
            if not header >> 4:
                raise _UnlikeError  # a number far from the last one: none of Parquet's
            field += header >> 4
            yield field, header & 0x0F

    def list_header(self) -> tuple[int, int]:
        """How many elements, and their type."""
        header = self.common_byte()
        count = header >> 4
        if count == 15:
            counts = self.unsigned()
            count = int(counts[0])
            if (counts != count).any():
                raise _UnlikeError
        return count, header & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass a value."""
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
        elif kind not in (_TRUE, _FALSE):  # those are in the field's header
            raise _UnlikeError

    def note_offset(self, kind: int) -> Numbers:
        """Pass a value that depends on where the file begins."""
        if kind != _I64:
            raise _UnlikeError
        begin = self.at
        value = self.number()
        self._offsets.append((begin, self.at, value))
        return value

    def moved(self, begin: Numbers, shifts: Numbers) -> list[bytes]:
        """The bytes of each footer from `begin` to here, its offsets moved; 0 says that there is no such page."""
        cuts = np.stack([begin, *(one for start, end, _ in self._offsets for one in (start, end)), self.at], axis=1)
        places = (cuts - self._starts[:, None]).tolist()
        texts = [_padded(np.where(value > 0, value + shifts, 0)) for _, _, value in self._offsets]
        moved = []
        for number, (footer, ends) in enumerate(zip(self._footers, places, strict=True)):
            parts = [footer[ends[0] : ends[1]]]
            for place, text in enumerate(texts):
                parts += (text[number], footer[ends[2 * place + 2] : ends[2 * place + 3]])
            moved.append(b"".join(parts))
        return moved


def _padded(values: Numbers) -> list[bytes]:
    """Numbers in as many bytes each as the largest one may need."""
    left = values << 1
    digits = np.stack([(left >> (7 * place)) & 0x7F for place in range(_OFFSET_BYTES)], axis=1).astype(np.uint8)
    digits[:, :-1] |= 0x80
    text = digits.tobytes()
    return [text[place : place + _OFFSET_BYTES] for place in range(0, len(text), _OFFSET_BYTES)]


def _varint(value: int) -> bytes:
    text = bytearray()
    while value >= 0x80:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    text.append(value)
    return bytes(text)
