"""Opens obstore stores from `deltalake`'s storage options, and keeps their secrets out of all messages."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from deltalakedb.exceptions import ConfigError, DeltaError, redact
from deltalakedb.runtime import forks
from deltalakedb.storage.location import Location

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_log = logging.getLogger(__name__)

_SECRET = re.compile(r"(?i)key|secret|token|password|sas|credential|service_account")
_UNKNOWN_KEY = re.compile(r"Configuration key: '([^']*)'")
# Options for `deltalake`'s writers or its own client; they have no meaning here.
_WRITER_OPTIONS = re.compile(
    r"(?i)(aws_s3_|delta_|dynamo|mount_|allow_unsafe|object_store_|max_retries|retry_timeout|backoff|copy_if)"
)
_RETRIES: RetryConfig = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
# One in-process store per name, so that everyone who opens `memory://name/...` gets the same store.
_memory_stores: dict[str, MemoryStore] = {}


_process: list[int] = []
"""The fork generation of the process that first opened a store: its threads make all requests; a fork has none."""


def check_process() -> None:
    """Raise an error in a child that was forked after its parent opened a store: a request would never be answered."""
    if not _process:
        _process.append(forks.generation)
    if _process[0] != forks.generation:
        raise DeltaError(
            "this process was forked off after its parent had opened an object store, whose threads it does not have; "
            "start processes that use object stores with the method spawn or forkserver"
        )


class _OfOneProcess:
    """An object store client that may only be used in the process that opened it."""

    def __getattribute__(self, name: str) -> Any:
        check_process()
        return super().__getattribute__(name)


class _S3Store(_OfOneProcess, S3Store):
    pass


class _GCSStore(_OfOneProcess, GCSStore):
    pass


class _AzureStore(_OfOneProcess, AzureStore):
    pass


def cloud_environment() -> dict[str, str]:
    """The environment variables from which obstore takes options that are not given."""
    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}


class StorageOptions(dict[str, str]):
    """Storage options whose repr shows no values: some are credentials."""

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self))})"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Secret values that must never be shown."""

    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Credentials:
        settings = [*options.items(), *cloud_environment().items()]
        secrets = {str(value) for key, value in settings if _SECRET.search(key) and len(str(value)) >= 4}
        return cls(tuple(sorted(secrets, key=len, reverse=True)))

    def explain(self, error: BaseException) -> str:
        """The first line of a driver's message, without secrets; the rest is a dump of its internals."""
        text = str(error).strip().partition("\n")[0]
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return redact(text)


def open_object_store(
    location: Location,
    options: Mapping[str, str],
    credentials: Credentials,
    *,
    retry: bool = True,
    timeout_seconds: float | None = None,
) -> Any:
    """The obstore store of the location: a bucket or a container.

    With `retry=False` the caller retries, because it must know the outcome of every request. `timeout_seconds` is for
    one request; the user's option `timeout` takes precedence.
    """
    check_process()
    if location.scheme == "memory":
        return _memory_stores.setdefault(location.bucket, MemoryStore())
    config = {key: _text(value) for key, value in options.items() if not _WRITER_OPTIONS.match(key)}
    if timeout_seconds is not None and not any(key.lower() == "timeout" for key in config):
        config["timeout"] = f"{round(timeout_seconds * 1000)}ms"
    retries: RetryConfig = _RETRIES if retry else {"max_retries": 0}
    # Each pass drops one key that this kind of store does not know.
    for _ in range(len(config) + 1):
        try:
            return _build(location, config, retries)
        except UnknownConfigurationKeyError as error:
            unknown = _UNKNOWN_KEY.search(str(error))
            dropped_keys = [key for key in config if unknown and key.lower() == unknown[1].lower()]
            if not dropped_keys:
                raise ConfigError(f"cannot open {location.uri}: {credentials.explain(error)}") from None
            for key in dropped_keys:
                _log.warning("storage option %s is not known for %s:// and is ignored", key, location.scheme)
                del config[key]
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"cannot open {location.uri}: {credentials.explain(error)}") from None
    raise ConfigError(f"cannot open {location.uri}: no storage option is understood")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _build(location: Location, config: Mapping[str, str], retries: RetryConfig) -> Any:
    arguments: Any = dict(config)
    if location.scheme == "s3":
        return _S3Store(location.bucket, config=arguments, retry_config=retries)
    if location.scheme == "gs":
        return _GCSStore(location.bucket, config=arguments, retry_config=retries)
    if location.account and not any(key.lower() in ("account_name", "azure_storage_account_name") for key in arguments):
        arguments["account_name"] = location.account
    if location.host.endswith(".fabric.microsoft.com"):
        arguments.setdefault("use_fabric_endpoint", "true")
    return _AzureStore(location.bucket, config=arguments, retry_config=retries)
