"""An object as a file: reading it in ranges, and writing it in parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from obstore.exceptions import BaseError

from deltalakedb.exceptions import StorageError
from deltalakedb.storage.interface import Written


class RangeReader:
    """Each read requests exactly its bytes, as `fetch(start, length)`; Parquet reads whole column chunks."""

    closed = False

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0

    def read(self, count: int = -1) -> bytes:
        end = self._size if count < 0 else min(self._position + count, self._size)
        if end <= self._position:
            return b""
        data = self._fetch(self._position, end - self._position)
        self._position = end
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True


class ObjectFile:
    """An upload: one put if small, else in parts. Without `finish` no object is created."""

    def __init__(self, writer: Any, failure: Callable[[BaseException], StorageError]) -> None:
        self._upload = _Upload(writer)
        self._failure = failure
        self.sink: pa.NativeFile = pa.PythonFile(self._upload, mode="w")

    def finish(self) -> Written:
        try:
            self._upload.writer.close()
        except BaseError as error:
            raise self._failure(error) from None
        return Written(self._upload.size, time.time_ns() // 1_000_000)

    def abandon(self) -> None:
        """Do nothing: sent parts are never assembled; the bucket's rule for incomplete uploads deletes them."""


class _Upload:
    """The file interface for pyarrow; `close` does not end the upload, because pyarrow closes abandoned files too."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        # pyarrow's buffers have signed bytes, which an object store's writer refuses.
        octets = memoryview(data).cast("B")
        self.writer.write(octets)
        self.size += len(octets)
        return len(octets)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True
