"""ObjectStorage: files in S3, GCS, Azure or memory, through obstore; every put has a certain outcome."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from deltalakedb.exceptions import SigningNotSupportedError, StorageError
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.conditional_put import ALLOW_LOCK, PutSupport, find_put_support, warn_of_lock
from deltalakedb.storage.interface import (
    NO_LOCK,
    PUT_TIMEOUT_SECONDS,
    SIGNED_SECONDS,
    FileStream,
    Folder,
    ListedFile,
    Method,
    NewFile,
    PutLock,
    PutResult,
    Puts,
)
from deltalakedb.storage.location import Location
from deltalakedb.storage.object_files import ObjectFile, RangeReader
from deltalakedb.storage.options import Credentials, StorageOptions, open_object_store

_T = TypeVar("_T")
_NEEDS_CATALOG: Final = "keep the table in a catalog, where a row in SQL keeps its writers apart, or in another store"
_MISSING: Final = (NotFoundError, FileNotFoundError)
# Not retried: the answer would be the same.
_FINAL: Final = (PermissionDeniedError, UnauthenticatedError, NotFoundError, InvalidPathError, NotSupportedError)
_ATTEMPTS: Final = 8
_RETRIES = Backoff(0.05, 4.0, 0.5, 1.5)
# For one request for a small file; the user's option `timeout` takes precedence.
_REQUEST_SECONDS: Final = 10.0
_SMALL_PUT_BYTES = 4 * 1024 * 1024
_LARGE_REQUEST_SECONDS: Final = 300.0
CHUNK_BYTES = 4 * 1024 * 1024
# Data files up to this size are fetched with one request.
_SMALL_BYTES: Final = 16 * 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
_PARTS_IN_FLIGHT: Final = 4
_PREFETCH_REQUESTS: Final = 16
_PAGE: Final = 1_000
_DELETE_BATCH: Final = 500
_MAX_LISTINGS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class ObjectStorage:
    """The objects below a prefix of a bucket."""

    is_remote = True

    def __init__(self, place: Location, options: Mapping[str, str]) -> None:
        self.location = place.uri
        self.options = StorageOptions(options)
        self._place = place
        self._support: PutSupport | None = None
        self._prefix = f"{place.path}/" if place.path else ""
        self._credentials = Credentials.of(options)
        self._store: Any = open_object_store(place, options, self._credentials)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.location!r})"

    @cached_property
    def _single(self) -> Any:
        """The store without retries: obstore's would hide whether an earlier attempt may have succeeded."""
        return self._open_single(_REQUEST_SECONDS)

    def _open_single(self, timeout_seconds: float) -> Any:
        return open_object_store(
            self._place, self.options, self._credentials, retry=False, timeout_seconds=timeout_seconds
        )

    # -- reading

    def get(self, path: str) -> bytes:
        # In a tuple, because None means "retry" to `_retry`.
        content = self._retry("read", path, lambda: (self._get(path),), PUT_TIMEOUT_SECONDS)[0]
        if content is None:
            raise FileNotFoundError(f"Object at location {self.location}/{path} not found")
        return content

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._failing("read", path):
            return bytes(self._store.get_range(self._key(path), start=start, length=length))

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        with self._failing("read", path):
            if size is not None and size <= _SMALL_BYTES:
                return pa.BufferReader(self._store.get(self._key(path)).bytes())
            object_size: int = self._store.head(self._key(path))["size"] if size is None else size
        return pa.PythonFile(RangeReader(lambda at, count: self.get_range(path, at, count), object_size), mode="r")

    def stream(self, path: str) -> FileStream:
        with self._failing("read", path):
            result = self._store.get(self._key(path))
            size = result.meta["size"]
            chunks = iter([bytes(result.bytes())]) if size <= CHUNK_BYTES else self._chunks(path, size)
            return FileStream(size, self._listed(result.meta).modified_ms, chunks)

    def _chunks(self, path: str, size: int) -> Iterator[bytes]:
        # Separate requests, because one long response would time out while a slow consumer holds it up.
        for start in range(0, size, CHUNK_BYTES):
            yield self.get_range(path, start, min(CHUNK_BYTES, size - start))

    def stream_many(self, paths: Iterable[str]) -> Iterator[FileStream]:
        # Requests to an object store take tens of milliseconds, so a window of them is in flight; each fetches at most
        # one chunk ahead.
        with ThreadPoolExecutor(_PREFETCH_REQUESTS, thread_name_prefix="deltalakedb-fetch") as pool:
            window: deque[Future[FileStream]] = deque()
            try:
                for path in paths:
                    window.append(pool.submit(self.stream, path))
                    if len(window) >= _PREFETCH_REQUESTS:
                        yield window.popleft().result()
                while window:
                    yield window.popleft().result()
            finally:
                for future in window:
                    future.cancel()

    def stat(self, path: str) -> ListedFile:
        with self._failing("read", path):
            return self._listed(self._store.head(self._key(path)))

    # -- listing

    def names(self, folder: str, *, start_after: str = "") -> Iterator[str]:
        prefix = self._key(folder) + "/"
        offset = prefix + start_after if start_after else None
        with self._failing("list", folder):
            for page in self._store.list(prefix, offset=offset, chunk_size=_PAGE):
                for meta in page:
                    name: str = meta["path"].removeprefix(prefix)
                    if "/" not in name:
                        yield name

    def folders(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self.list(folder).folders]

    def list(self, folder: str) -> Folder:
        with self._failing("list", folder):
            result = self._store.list_with_delimiter(self._key(folder).rstrip("/") or None)
        folders = tuple(path.rstrip("/").removeprefix(self._prefix) for path in result["common_prefixes"])
        return Folder(tuple(self._listed(meta) for meta in result["objects"]), folders)

    def walk(self, folder: str = "") -> Iterator[ListedFile]:
        prefix = f"{self._key(folder)}/" if folder else self._prefix
        with self._failing("list", folder):
            for page in self._store.list(prefix or None, chunk_size=_PAGE):
                yield from map(self._listed, page)

    def newest_ms(self, folder: str) -> int:
        return max((file.modified_ms for file in self.walk(folder)), default=0)

    # -- writing

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        modified_ms: int | None = None,  # noqa: ARG002 an object's time is when it was put
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        step: str = "",
        lasting: bool = True,  # noqa: ARG002 an object that was put is durable
        decides: bool = True,
        creates_folder: bool = True,  # noqa: ARG002 there are none
        puts: Puts = NO_LOCK,
    ) -> PutResult:
        support = None if puts.mode == "lock" and puts.lock is not None else self._find_support(path, timeout_seconds)
        if support is not None and support.supported:
            result = self._put(path, data, timeout_seconds, mode="create")
        elif not decides:
            result = self._put(path, data, timeout_seconds)
        else:
            with self._lock(path, puts, support).hold(timeout_seconds):
                result = self._put(path, data, timeout_seconds)
        if step:
            reached(f"{step}_put")
        return result

    def _find_support(self, path: str, timeout_seconds: float) -> PutSupport:
        """Whether the store itself decides between two writers; an error if that cannot be found out."""
        if self._support is None:
            support = find_put_support(
                self._place, self.options, folder=path.rpartition("/")[0], timeout_seconds=timeout_seconds
            )
            if support.supported is None:
                reason = (
                    f"whether {support.endpoint} refuses to overwrite objects cannot be found out: {support.reason}"
                )
                raise self._error("write", path, reason)
            self._support = support
        return self._support

    def _lock(self, path: str, puts: Puts, support: PutSupport | None) -> PutLock:
        if support is None:
            assert puts.lock is not None
            return puts.lock
        if puts.lock is None or puts.mode == "required":
            raise self._error("write", path, support.problem, _NEEDS_CATALOG if puts.lock is None else ALLOW_LOCK)
        warn_of_lock(support)
        return puts.lock

    def _put(self, path: str, data: bytes, timeout_seconds: float, **condition: str) -> PutResult:
        """Put an object unless it exists: by the store's own condition, else by reading it first."""
        store = self._single if len(data) <= _SMALL_PUT_BYTES else self._open_single(_LARGE_REQUEST_SECONDS)
        uncertain = False  # whether a failed attempt may have written the object after all

        def attempt() -> PutResult | None:
            nonlocal uncertain
            if not condition and (there := self._get(path)) is not None:
                return "written" if uncertain and there == data else "exists"
            try:
                store.put(self._key(path), data, use_multipart=False, **condition)
            except (AlreadyExistsError, PreconditionError):
                # 412 and 409 arrive as the same error. S3's 409 only means that another put was in progress.
                there = self._get(path)
                if there is None:
                    return None
                return "written" if uncertain and there == data else "exists"
            except _FINAL:
                raise
            except BaseError:
                uncertain = True
                raise
            return "written"

        try:
            return self._retry("write", path, attempt, timeout_seconds)
        except StorageError as error:
            error.uncertain = uncertain
            raise

    def put(self, path: str, data: bytes) -> None:
        self.replace(path, data)

    def replace(self, path: str, data: bytes) -> None:
        def attempt() -> bool:
            self._single.put(self._key(path), data, use_multipart=False)
            return True

        self._retry("write", path, attempt, PUT_TIMEOUT_SECONDS)

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        # Spooled to disk first: memory is bounded, parts can be sent again, and nothing is visible if it fails half-
        # way.
        try:
            with tempfile.TemporaryFile(prefix="deltalakedb-") as spool:
                yield spool
                spool.seek(0)
                self._store.put(self._key(path), spool, chunk_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT)
        except BaseError as error:
            raise self._failure("write", path, error) from None
        except StorageError:  # of the file that is read to be uploaded
            raise
        except OSError as error:
            where = f"while it was kept in {tempfile.gettempdir()}: {error.strerror or error}"
            raise self._error("write", path, where, "make room there, or set TMPDIR") from error

    def create(self, path: str, *, part_bytes: int | None = None) -> NewFile:
        writer = obstore.open_writer(self._store, self._key(path), buffer_size=part_bytes or _PART_BYTES)
        return ObjectFile(writer, lambda error: self._failure("write", path, error))

    def sync(self, paths: Sequence[str]) -> None:
        """Does nothing: an object is durable when its put returns."""

    def sync_folder(self, folder: str) -> None:
        """Does nothing: an object is durable when its put returns."""

    def copy(self, source: str, target: str) -> None:
        with self._failing("copy", source):
            self._store.copy(self._key(source), self._key(target))

    def rename(self, source: str, target: str) -> None:
        with self._failing("rename", source):
            self._store.rename(self._key(source), self._key(target))

    # -- deleting

    def delete(self, *paths: str, with_checksums: bool = True) -> None:  # noqa: ARG002  only disks have them
        for start in range(0, len(paths), _DELETE_BATCH):
            batch = paths[start : start + _DELETE_BATCH]
            try:
                self._store.delete(self._key(batch[0]) if len(batch) == 1 else [self._key(path) for path in batch])
            except _MISSING:
                if len(batch) > 1:  # some stores stop at the first object that is missing
                    for path in batch:
                        self.delete(path)
            except BaseError as error:
                raise self._failure("delete", batch[0], error) from None

    def delete_folder(self, folder: str, *, keep: str = "") -> None:
        kept = f"{folder}/{keep}/".lstrip("/")
        # Listed again until nothing is left: a listing may skip objects after deletions.
        for _ in range(_MAX_LISTINGS):
            paths: list[str] = []
            deleted = False
            for file in self.walk(folder):
                if not (keep and file.path.startswith(kept)):
                    paths.append(file.path)
                if len(paths) == _DELETE_BATCH:
                    self.delete(*paths)
                    paths, deleted = [], True
            self.delete(*paths)
            if not (paths or deleted):
                return

    def delete_empty_folders(self) -> None:
        """Does nothing: there are no folders."""

    def delete_temporary(self, folder: str, *, before_ms: int) -> tuple[str, ...]:  # noqa: ARG002
        """Does nothing: an object is whole or not there."""
        return ()

    def sign(self, path: str, method: Method = "GET", *, expires_seconds: int = SIGNED_SECONDS) -> str:
        if self._place.scheme == "memory":
            raise SigningNotSupportedError(f"{self.location}/{path} has no signed URL: it is in this process's memory")
        with self._failing("sign", path):
            url: str = obstore.sign(self._store, method, self._key(path), timedelta(seconds=expires_seconds))
        return url

    # -- parts of the above

    def _get(self, path: str) -> bytes | None:
        try:
            return bytes(self._single.get(self._key(path)).bytes())
        except _MISSING:
            return None

    def _retry(self, verb: str, path: str, attempt: Callable[[], _T | None], timeout_seconds: float) -> _T:
        """The result of `attempt`; repeats it, a bounded number of times, if it fails or returns None."""
        deadline = time.monotonic() + timeout_seconds
        failure: BaseError | None = None
        for number in range(_ATTEMPTS):
            try:
                result = attempt()
                if result is not None:
                    return result
            except _FINAL as error:
                raise self._failure(verb, path, error) from None
            except BaseError as error:
                failure = error
            wait = _RETRIES.seconds(number)
            if number + 1 == _ATTEMPTS or time.monotonic() + wait > deadline:
                break
            time.sleep(wait)
        if failure is not None:
            raise self._failure(verb, path, failure) from None
        raise self._error(verb, path, "other writers are putting it at the same time", "try again")

    @contextmanager
    def _failing(self, verb: str, path: str) -> Iterator[None]:
        """Word the errors of a request."""
        try:
            yield
        except _MISSING as error:
            if verb == "list":  # the bucket is missing
                raise self._failure(verb, path, error) from None
            raise FileNotFoundError(f"Object at location {self.location}/{path} not found") from None
        except BaseError as error:
            raise self._failure(verb, path, error) from None

    def _failure(self, verb: str, path: str, error: BaseException) -> StorageError:
        return self._error(verb, path, self._credentials.explain(error))

    def _error(self, verb: str, path: str, reason: str, advice: str = "") -> StorageError:
        target = f"{self.location}/{path}" if path else self.location
        return StorageError(f"cannot {verb} {target}: {reason}", advice)

    def _key(self, path: str) -> str:
        return self._prefix + path if path else self._place.path

    def _listed(self, meta: Mapping[str, Any]) -> ListedFile:
        # Without a float, which would lose digits.
        modified_ns = (meta["last_modified"] - _EPOCH) // _MICROSECOND * 1_000
        return ListedFile(meta["path"].removeprefix(self._prefix), meta["size"], modified_ns)
