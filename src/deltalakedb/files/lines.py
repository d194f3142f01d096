"""Splits a stream of chunks into lines, in memory bounded by the longest line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their line feed. Pieces of a long line are joined once, so a 100 MB line costs linear time."""
    pieces: list[bytes] = []
    for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if pieces:
                pieces.append(line)
                line = b"".join(pieces)
                pieces.clear()
            yield line
        if rest:
            pieces.append(rest)
    if pieces:
        yield b"".join(pieces)
