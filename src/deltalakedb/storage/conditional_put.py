"""Finds out whether an object store refuses to overwrite an object (put-if-absent), on which a log relies.

The clouds' own stores do. For any other endpoint it is tested once per process and bucket: a small object is put twice,
and the second put must be refused. Some stores reject the condition as unknown; some ignore it and overwrite.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from deltalakedb.exceptions import redact
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.storage.location import Location
from deltalakedb.storage.options import Credentials, open_object_store

logger = logging.getLogger(__name__)

PROBE_PREFIX: Final = ".deltalakedb-probe-"
"""The prefix of a probe's objects: log readers ignore names that begin with a dot."""

_ENVIRONMENT: Final = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_OPTION_PREFIXES: Final = ("aws_", "google_", "azure_storage_", "azure_")
_ENDPOINTS: Final = ("endpoint_url_s3", "endpoint_url", "endpoint", "base_url")
_CLOUDS: Final = {
    "s3": (".amazonaws.com", ".amazonaws.com.cn"),
    "gs": (".googleapis.com",),
    "az": (".core.windows.net", ".fabric.microsoft.com"),
}
_STATUS: Final = re.compile(r"status code: (\d{3})")
_UNKNOWN_CONDITION: Final = frozenset({"400", "405", "501"})
_FINAL: Final = (PermissionDeniedError, UnauthenticatedError, NotFoundError)
_ATTEMPTS: Final = 6
_RETRIES: Final = Backoff(0.05, 4.0, 0.5, 1.5)
_REQUEST_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class PutSupport:
    """Whether a store refuses to overwrite; None if unknown. `reason` says why it is unknown, or how it is known."""

    supported: bool | None
    endpoint: str
    """The store as messages name it, without credentials."""
    reason: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with a store that does not refuse."""
        return (
            f"{self.endpoint} does not refuse to overwrite an object (put-if-absent): {self.reason}; two writers could "
            "overwrite each other's commits"
        )


ALLOW_LOCK: Final = (
    "use another store, or let a row in SQL keep the writers of this catalog apart: set mirror.conditional_put to auto "
    "or lock"
)
_Key = tuple[str, ...]
_proven: dict[_Key, PutSupport] = {}
_proving: dict[_Key, threading.Lock] = {}
_warned: set[str] = set()


def find_put_support(
    location: Location,
    options: Mapping[str, str],
    *,
    folder: str = "",
    timeout_seconds: float,
    asks_again: bool = True,
) -> PutSupport:
    """Whether the store of a location refuses to overwrite; `folder` is below it and takes the probe's object.

    A result is cached for the life of the process; an unknown one is asked for again, unless `asks_again` is False.
    """
    settings = _settings(location, options)
    endpoint = next((settings[name] for name in _ENDPOINTS if settings.get(name)), "")
    description = redact(f"{location.scheme}://{location.bucket}") + (f" at {redact(endpoint)}" if endpoint else "")
    condition = settings.get("conditional_put", "")
    if not condition and _is_known_to_refuse(location, settings, endpoint):
        return PutSupport(True, description, "it is known to")
    key = (location.scheme, location.bucket, location.host, endpoint, condition)
    proving = _proving.setdefault(key, threading.Lock())
    if not proving.acquire(timeout=max(timeout_seconds, 0.0)):
        return PutSupport(None, description, "another thread waits for its answer")
    try:
        support = _proven.get(key)
        if support is None or (support.supported is None and asks_again):
            support = _proven[key] = _prove(location, options, folder, description, timeout_seconds)
        return support
    finally:
        proving.release()


def warn_of_lock(support: PutSupport) -> None:
    """Warn once per process and store that commits are put under a lock in SQL, and what the lock does not cover."""
    if support.endpoint not in _warned:
        _warned.add(support.endpoint)
        logger.warning(
            "%s. A row in SQL keeps the writers of this catalog apart instead; nothing keeps other writers of these "
            "tables from overwriting a commit",
            support.problem,
        )


def _is_known_to_refuse(location: Location, settings: Mapping[str, str], endpoint: str) -> bool:
    """Whether it is a cloud's own store with its own protocol; S3 on Outposts lacks parts of it."""
    if location.scheme in ("file", "memory"):
        return True
    if not endpoint:
        return not settings.get("use_emulator")
    host = urlsplit(endpoint).hostname or ""
    return host.endswith(_CLOUDS.get(location.scheme, ())) and "outposts" not in host


def _settings(location: Location, options: Mapping[str, str]) -> dict[str, str]:
    """The effective options by their short names; given options override the environment."""
    prefix = _ENVIRONMENT.get(location.scheme, "")
    settings = {}
    for key, value in [
        *(item for item in os.environ.items() if prefix and item[0].startswith(prefix)),
        *options.items(),
    ]:
        name = key.lower()
        for start in _OPTION_PREFIXES:
            name = name.removeprefix(start)
        settings[name] = str(value)
    return settings


def _prove(
    location: Location, options: Mapping[str, str], folder: str, shown: str, timeout_seconds: float
) -> PutSupport:
    credentials = Credentials.of(options)
    store = open_object_store(
        location, options, credentials, retry=False, timeout_seconds=min(_REQUEST_SECONDS, max(timeout_seconds, 0.1))
    )
    name = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    key = "/".join(part for part in (location.path, folder, name) if part)
    probe = _Probe(store, key, time.monotonic() + timeout_seconds)
    try:
        supported, reason = probe.run()
    except BaseError as error:
        supported, reason = None, credentials.explain(error)
    finally:
        probe.clean_up()
    return PutSupport(supported, shown, reason)


class _Probe:
    """Puts one object twice. A response that does not answer the question is raised as a BaseError."""

    def __init__(self, store: Any, key: str, deadline: float) -> None:
        self._store, self._key, self._deadline = store, key, deadline
        self._may_exist = False

    def run(self) -> tuple[bool, str]:
        try:
            if not self._is_written(mode="create"):
                return True, "a put was refused"  # an attempt of ours that seemed to fail had succeeded
            if not self._is_written(mode="create"):
                return True, "a second put was refused"
        except NotImplementedError:
            return False, "its storage options turn conditional puts off (conditional_put)"
        except BaseError as error:
            status = _STATUS.search(str(error))
            if status is None or status[1] not in _UNKNOWN_CONDITION:
                raise
            self._is_written()  # without the condition: raises if something else is wrong
            return False, f"it answers a conditional put with {status[1]}"
        return False, "it overwrites: a second put of the same object was not refused"

    def _is_written(self, **condition: str) -> bool:
        """Put the object; return False if the store refuses because it exists. Retries transient failures."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._may_exist = True
                self._store.put(self._key, b"deltalakedb", use_multipart=False, **condition)
            except (AlreadyExistsError, PreconditionError):
                return False
            except _FINAL:
                raise
            except BaseError as error:
                status = _STATUS.search(str(error))
                is_unknown_condition = status is not None and status[1] in _UNKNOWN_CONDITION
                wait = _RETRIES.seconds(attempt - 1)
                if is_unknown_condition or attempt == _ATTEMPTS or time.monotonic() + wait > self._deadline:
                    raise
                time.sleep(wait)
            else:
                return True
        raise AssertionError("the loop ends by a result or an error")

    def clean_up(self) -> None:
        """Delete the object; if that is not allowed, or the store does not respond, it stays."""
        if self._may_exist and time.monotonic() < self._deadline:
            with suppress(BaseError, FileNotFoundError):
                self._store.delete(self._key)


def _forget_locks() -> None:
    """Reset the locks in a forked child, which must not wait for its parent's probe."""
    _proving.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
