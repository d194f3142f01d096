"""Large bodies of requests and answers: read while they arrive, sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deltalakedb.exceptions import InvalidCommitError

SMALL_BYTES = 1024 * 1024
"""Buffer bodies up to this size before taking a worker thread, so slow clients do not hold one."""
CHUNK_BYTES = 256 * 1024
LONGEST_LINE = 256 * 1024 * 1024
READ_SECONDS = 60.0
"""How long the next piece of a body is waited for."""
LEAST_RATE = 256 * 1024
"""The bytes that must arrive in each second that a body is waited for, after the first `READ_SECONDS`: a large body
holds a worker thread until it is there."""


async def body_chunks(request: Request, longest: int) -> Iterator[bytes]:
    """The body in pieces, for a worker thread: buffered if it is small, otherwise as it arrives.

    InvalidCommitError, here or when the pieces are read, if it has more than `longest` bytes.
    """
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 18 or int(announced) > longest):
        raise _too_long(longest)
    stream = _bounded(_in_time(request.stream()), longest)
    first: list[bytes] = []
    size = 0
    async for chunk in stream:
        first.append(chunk)
        size += len(chunk)
        if size > SMALL_BYTES:
            return _arriving(first, stream, asyncio.get_running_loop())
    return iter(first)


async def read_body(request: Request, longest: int) -> bytes | None:
    """The whole body; None if it has more than `longest` bytes."""
    parts: list[bytes] = []
    size = 0
    async for chunk in _in_time(request.stream()):
        parts.append(chunk)
        size += len(chunk)
        if size > longest:
            return None
    return b"".join(parts)


async def _in_time(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a body; a client that sends nothing for too long, or hardly anything, is sent away."""
    clock = asyncio.get_running_loop().time
    waited, size = 0.0, 0
    while True:
        began = clock()
        try:
            async with asyncio.timeout(READ_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise _silent() from None
        if chunk is None:
            return
        waited += clock() - began
        size += len(chunk)
        if waited > READ_SECONDS + size / LEAST_RATE:
            raise InvalidCommitError(
                f"{size} bytes of the body arrived in {waited:.0f} seconds, which is too slow; nothing was committed: "
                "send it again"
            )
        yield chunk


async def _bounded(stream: AsyncIterator[bytes], longest: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > longest:
            raise _too_long(longest)
        yield chunk


def _too_long(longest: int) -> InvalidCommitError:
    return InvalidCommitError(
        f"the body has more than {longest} bytes (serve.max_commit_bytes); nothing was committed: make several commits"
    )


def _silent() -> InvalidCommitError:
    return InvalidCommitError(
        f"nothing of the body arrived for {READ_SECONDS:g} seconds; nothing was committed: send it again"
    )


def _arriving(first: list[bytes], stream: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    async def next_chunk() -> bytes | None:
        return await anext(stream, None)

    yield from first
    first.clear()
    while True:
        # It ends in time by itself (`_in_time`), unless the event loop has stopped.
        future = asyncio.run_coroutine_threadsafe(next_chunk(), loop)
        try:
            chunk = future.result(2 * READ_SECONDS)
        except TimeoutError:
            future.cancel()
            raise _silent() from None
        if chunk is None:
            return
        yield chunk


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a text that comes in pieces, without empty ones."""
    rest: list[bytes] = []
    held = 0
    for chunk in chunks:
        head, newline, tail = chunk.partition(b"\n")
        rest.append(head)
        held += len(head)
        if held > LONGEST_LINE:
            raise InvalidCommitError(f"a line of the commit has more than {LONGEST_LINE} bytes; nothing was committed")
        if not newline:
            continue
        *whole, last = tail.split(b"\n")
        yield from filter(bytes.strip, (b"".join(rest), *whole))
        rest, held = [last], len(last)
    yield from filter(bytes.strip, (b"".join(rest),))


def bytes_answer(data: bytes, headers: dict[str, str], media_type: str) -> Response:
    """An answer of bytes; a large one is sent in pieces, each when the client has taken the one before."""
    if len(data) <= SMALL_BYTES:
        return Response(data, headers=headers, media_type=media_type)

    async def pieces() -> AsyncIterator[memoryview]:
        view = memoryview(data)
        for start in range(0, len(data), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]

    return StreamingResponse(pieces(), headers={**headers, "Content-Length": str(len(data))}, media_type=media_type)
