"""Writes a `_delta_log` in S3, GCS, Azure or memory: put-if-absent, with a certain outcome for every put."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

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

from deltalakedb.exceptions import MirrorError
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.files.put import PUT_TIMEOUT_SECONDS, Failures, LogFile, PutLock, PutResult, Puts
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.conditional_put import ALLOW_LOCK, PutSupport, find_put_support, warn_of_lock
from deltalakedb.storage.location import Location
from deltalakedb.storage.log_storage import epoch_ms
from deltalakedb.storage.options import Credentials, open_object_store

_T = TypeVar("_T")
_NO_LOCK = Puts()
_NEEDS_CATALOG = "keep the table in a catalog, where a row in SQL keeps its writers apart, or in another store"
_ATTEMPTS = 8
_RETRIES = Backoff(0.05, 4.0, 0.5, 1.5)
# For one request for a small file; the user's option `timeout` takes precedence.
_REQUEST_SECONDS = 10.0
_SMALL_BYTES = 4 * 1024 * 1024
_LARGE_REQUEST_SECONDS = 300.0
# Not retried: the answer would be the same.
_FINAL = (PermissionDeniedError, UnauthenticatedError, NotFoundError, InvalidPathError, NotSupportedError)
_PART_BYTES = 8 * 1024 * 1024
_PARTS_IN_FLIGHT = 4
_DELETE_BATCH = 500


class ObjectFolder:
    """The log of a table in an object store."""

    def __init__(
        self,
        location: Location,
        options: Mapping[str, str],
        *,
        table: str,
        folder: str = LOG_FOLDER,
        puts: Puts = _NO_LOCK,
    ) -> None:
        self.location = f"{location.uri}/{folder}"
        self._prefix = f"{location.path}/{folder}".strip("/")
        self._credentials = Credentials.of(options)
        self._place, self._options, self._folder = location, options, folder
        self._puts = puts
        self._support: PutSupport | None = None
        # obstore's own retries would hide whether an earlier attempt may have succeeded.
        self._single: Any = self._open_single(_REQUEST_SECONDS)
        self._store: Any = open_object_store(location, options, self._credentials)
        self._failures = Failures(table, self.location)

    def __repr__(self) -> str:
        return f"ObjectFolder({self.location!r})"

    def _open_single(self, timeout_seconds: float) -> Any:
        return open_object_store(
            self._place, self._options, self._credentials, retry=False, timeout_seconds=timeout_seconds
        )

    def put(
        self,
        name: str,
        data: bytes,
        *,
        modified_ms: int | None = None,  # noqa: ARG002 an object's time is when it was put
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        step: str = "",
        lasting: bool = True,  # noqa: ARG002 an object that was put is durable
        decides: bool = True,
        creates_folder: bool = True,  # noqa: ARG002 there are none
    ) -> PutResult:
        if self._refuses_to_overwrite(name, timeout_seconds):
            result = self._put(name, data, timeout_seconds, mode="create")
        elif not decides:
            result = self._put(name, data, timeout_seconds)
        else:
            with self._lock(name).hold(timeout_seconds):
                result = self._put(name, data, timeout_seconds)
        if step:
            reached(f"{step}_put")
        return result

    def _refuses_to_overwrite(self, name: str, timeout_seconds: float) -> bool:
        """Whether the store itself decides between two writers."""
        if self._puts.mode == "lock" and self._puts.lock is not None:
            return False
        support = self._find_support(timeout_seconds)
        if support.supported is None:
            unknown = f"whether {support.endpoint} refuses to overwrite objects cannot be found out: {support.reason}"
            raise self._failures.error("write", name, unknown)
        return support.supported

    def _find_support(self, timeout_seconds: float) -> PutSupport:
        if self._support is None or self._support.supported is None:
            self._support = find_put_support(
                self._place, self._options, folder=self._folder, timeout_seconds=timeout_seconds
            )
        return self._support

    def _lock(self, name: str) -> PutLock:
        if self._puts.mode == "lock" and self._puts.lock is not None:
            return self._puts.lock
        support = self._find_support(PUT_TIMEOUT_SECONDS)
        if self._puts.lock is None:
            raise self._failures.error("write", name, support.problem, _NEEDS_CATALOG)
        if self._puts.mode == "required":
            raise self._failures.error("write", name, support.problem, ALLOW_LOCK)
        warn_of_lock(support)
        return self._puts.lock

    def _put(self, name: str, data: bytes, timeout_seconds: float, **condition: str) -> PutResult:
        """Put an object unless it exists: by the store's own condition, else by reading it first."""
        store = self._single if len(data) <= _SMALL_BYTES else self._open_single(_LARGE_REQUEST_SECONDS)
        uncertain = False  # whether a failed attempt may have written the object after all

        def attempt() -> PutResult | None:
            nonlocal uncertain
            if not condition and (there := self._get(name)) is not None:
                return "written" if uncertain and there == data else "exists"
            try:
                store.put(self._key(name), data, use_multipart=False, **condition)
            except (AlreadyExistsError, PreconditionError):
                # 412 and 409 arrive as the same error. S3's 409 only means that another put was in progress.
                there = self._get(name)
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
            return self._retry("write", name, attempt, timeout_seconds)
        except MirrorError as error:
            error.uncertain = uncertain
            raise

    def sync(self) -> None:
        """Does nothing: objects are durable when they are put."""

    def replace(self, name: str, data: bytes) -> None:
        def attempt() -> bool:
            self._single.put(self._key(name), data, use_multipart=False)
            return True

        self._retry("write", name, attempt, PUT_TIMEOUT_SECONDS)

    @contextmanager
    def upload(self, name: str) -> Iterator[BinaryIO]:
        # Spooled to disk first: memory is bounded, parts can be sent again, and nothing is visible if it fails half-
        # way.
        try:
            with tempfile.TemporaryFile(prefix="deltalakedb-") as spool:
                yield spool
                spool.seek(0)
                self._store.put(self._key(name), spool, chunk_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT)
        except BaseError as error:
            raise self._failure("write", name, error) from None
        except OSError as error:
            where = f"while it was kept in {tempfile.gettempdir()}: {error.strerror or error}"
            raise self._failures.error("write", name, where, "make room there, or set TMPDIR") from error

    def read(self, name: str) -> bytes | None:
        # In a tuple, because None means "retry" to `_retry`.
        return self._retry("read", name, lambda: (self._get(name),), PUT_TIMEOUT_SECONDS)[0]

    def modified_ms(self, name: str) -> int | None:
        try:
            return epoch_ms(self._store.head(self._key(name)))
        except (NotFoundError, FileNotFoundError):
            return None
        except BaseError as error:
            raise self._failure("read", name, error) from None

    def list(self, subfolder: str = "") -> Iterator[LogFile]:
        prefix = f"{self._prefix}/{subfolder}/" if subfolder else f"{self._prefix}/"
        try:
            for page in self._store.list(prefix, chunk_size=1000):
                for meta in page:
                    name: str = meta["path"].removeprefix(f"{self._prefix}/")
                    if "/" not in meta["path"].removeprefix(prefix):
                        yield LogFile(name, epoch_ms(meta), int(meta["size"]))
        except BaseError as error:
            raise self._failure("list", subfolder, error) from None

    def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETE_BATCH):
            batch = names[start : start + _DELETE_BATCH]
            try:
                self._store.delete([self._key(name) for name in batch])
            except (NotFoundError, FileNotFoundError):
                continue
            except BaseError as error:
                raise self._failure("delete", batch[0], error) from None

    def sweep(self, before_ms: int) -> tuple[str, ...]:  # noqa: ARG002 an object is whole or not there
        return ()

    def _get(self, name: str) -> bytes | None:
        try:
            return bytes(self._single.get(self._key(name)).bytes())
        except (NotFoundError, FileNotFoundError):
            return None

    def _retry(self, verb: str, name: str, attempt: Callable[[], _T | None], timeout_seconds: float) -> _T:
        """The result of `attempt`; repeats it, a bounded number of times, if it fails or returns None."""

        deadline = time.monotonic() + timeout_seconds
        failure: BaseError | None = None
        for number in range(_ATTEMPTS):
            try:
                result = attempt()
                if result is not None:
                    return result
            except _FINAL as error:
                raise self._failure(verb, name, error) from None
            except BaseError as error:
                failure = error
            wait = _RETRIES.seconds(number)
            if number + 1 == _ATTEMPTS or time.monotonic() + wait > deadline:
                break
            time.sleep(wait)
        if failure is not None:
            raise self._failure(verb, name, failure) from None
        raise self._failures.error(verb, name, "other writers are putting it at the same time", "try again")

    def _failure(self, verb: str, name: str, error: BaseError) -> MirrorError:
        return self._failures.error(verb, name, self._credentials.explain(error))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"
