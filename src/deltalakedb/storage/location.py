"""Parses table locations, gives each one canonical form, whatever the user typed, and opens their storage."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalakedb.exceptions import ConfigError, MalformedLogError, MissingFileError, UnknownLocationError, redact
from deltalakedb.log.protocol.paths import check_path, decode_path, is_absolute, local_path
from deltalakedb.storage.interface import Storage

if TYPE_CHECKING:
    import pyarrow as pa

# Every spelling of a scheme, and the canonical one.
_SCHEMES = {
    "file": "file",
    "fs": "file",
    "opendal+fs": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "az",
    "abfss": "az",
    "memory": "memory",
}
# Hadoop's name for the file system of a scheme, if it differs.
_HADOOP = {"s3": "s3a", "az": "abfss"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
# `deltalake` opens these through OpenDAL: they have no host, and the option `opendal.root` is their root folder.
_ROOTED = frozenset({"fs", "opendal+fs"})
_ACCOUNT_OPTIONS = ("azure_storage_account_name", "account_name")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location: `path` is decoded, without slashes at the ends; on local disk it is an absolute path."""

    scheme: str
    bucket: str
    path: str
    host: str = ""  # Azure only: account.dfs.core.windows.net, or OneLake's

    @property
    def account(self) -> str:
        return self.host.partition(".")[0]

    @property
    def uri(self) -> str:
        """The canonical form: percent-encoded on local disk, the key itself elsewhere (only `%` is encoded)."""
        if self.scheme == "file":
            return Path(self.path).as_uri()
        path = "/" + self.path.replace("%", "%25") if self.path else ""
        if self.host:
            return f"abfss://{self.bucket}@{self.host}{path}"
        return f"{self.scheme}://{self.bucket}{path}"

    @property
    def bridge_path(self) -> str:
        """The path in the Spark bridge: `/file/lake/t`, `/s3a/bucket/t`."""
        if self.scheme == "file":
            return f"/file{self.path}"
        authority = f"{self.bucket}@{self.host}" if self.host else self.bucket
        return f"/{_HADOOP.get(self.scheme, self.scheme)}/{authority}/{self.path}".rstrip("/")


def parse_location(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
    """Parse a path or a URI; `options` may have what the URI omits: the Azure account, the root of `fs://`."""
    text = os.fspath(location)
    match = _SCHEME.match(text)
    if match is None:
        return _local(text)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        schemes = ", ".join(f"{name}://" for name in _SCHEMES)
        raise UnknownLocationError(
            f"cannot open {redact(text)!r}: Unknown scheme: {match[1]}. Known schemes: {schemes}, or a path"
        )
    rest = text[match.end() :]
    if match[1].lower() in _ROOTED:
        return _below_root(rest, (options or {}).get("opendal.root", "/"))
    if scheme == "file":
        return _local_uri(rest, text)
    return _remote(scheme, rest, text, options or {})


def canonical_location(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> str:
    """The canonical form of a location: `s3a://` is `s3://`, local paths are `file:///` with links resolved."""
    return parse_location(location, options).uri


def _local(path: str) -> Location:
    if not path or "\0" in path:
        raise UnknownLocationError("a table location must be a path or a URI, and not empty")
    return Location("file", "", os.path.realpath(os.path.expanduser(path)))


def _local_uri(rest: str, text: str) -> Location:
    # file:/a (Hadoop), file:///a and file://localhost/a are the same file.
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise ConfigError(f"{redact(text)!r} names the host {host!r}; a local table is file:///path")
        rest = slash + tail
    return _local(unquote(rest) or "/")


def _below_root(rest: str, root: str) -> Location:
    path = rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return _local(os.path.join(root, unquote(path).lstrip("/")))


def _remote(scheme: str, rest: str, text: str, options: Mapping[str, str]) -> Location:
    if not rest.startswith("//"):
        raise ConfigError(f"{redact(text)!r} must start with {scheme}://")
    authority, _, tail = rest[2:].partition("/")
    parts = [part for part in unquote(tail).split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ConfigError(f"{redact(text)!r} contains '.' or '..'; name the folder itself")
    host = ""
    if scheme == "az":
        authority, host = _azure_host(authority, options)
    elif "@" in authority:
        raise ConfigError(
            f"credentials for {scheme}:// belong in storage options or the environment, not in the location"
        )
    if not authority and scheme != "memory":
        raise ConfigError(f"{redact(text)!r} names no bucket")
    return Location(scheme, authority, "/".join(parts), host)


def _azure_host(authority: str, options: Mapping[str, str]) -> tuple[str, str]:
    """Container and host; abfss://container@account.dfs.core.windows.net has its account, az://container does not."""
    container, separator, host = authority.partition("@")
    if separator:
        return container, host.lower().replace(".blob.", ".dfs.", 1)
    options_by_name = {key.lower(): value for key, value in options.items()}
    accounts = [options_by_name[name] for name in _ACCOUNT_OPTIONS if options_by_name.get(name)]
    account = accounts[0] if accounts else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return container, f"{account}.dfs.core.windows.net" if account else ""


def open_storage(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """The storage with the root `location`. `options` are those of `deltalake`; the environment supplies the rest.

    The same location and options return the same object, so that many small requests share connections.
    """
    place = parse_location(location, options)
    if place.scheme == "file":
        return _open_local(place)
    from deltalakedb.storage.options import check_process, cloud_environment

    check_process()
    return _open_remote(place, tuple(sorted((options or {}).items())), tuple(sorted(cloud_environment().items())))


@lru_cache(maxsize=256)
def _open_local(place: Location) -> Storage:
    from deltalakedb.storage.local import LocalStorage

    return LocalStorage(place)


@lru_cache(maxsize=64)
def _open_remote(place: Location, options: tuple[tuple[str, str], ...], _environment: tuple[Any, ...]) -> Storage:
    from deltalakedb.storage.object_store import ObjectStorage

    return ObjectStorage(place, dict(options))


def open_named(storage: Storage, path: str, size: int | None = None) -> pa.NativeFile:
    """Open a file by its path in an action: encoded, relative to the table, or absolute, as in clones."""
    if not is_absolute(path):
        check_path(path, where=storage.location)
        return storage.open(decode_path(path), size)
    if path.startswith("/"):
        folder, _, name = decode_path(path).rpartition("/")
    else:
        folder, _, name = path.rpartition("/")
        name = decode_path(name)
    if storage.is_remote and local_path(path) is not None:
        # The log of a table in a bucket is written by whoever may write the bucket: they get no files of this machine.
        raise MalformedLogError(f"table {storage.location} names the file {redact(path)}, which is on a local disk")
    return open_storage(folder or "/", storage.options).open(name, size)


def open_logged(storage: Storage, path: str, size: int | None = None) -> pa.NativeFile:
    """Open a data file that a version names, by its path in the action; MissingFileError if it does not exist."""
    try:
        return open_named(storage, path, size)
    except FileNotFoundError:
        raise MissingFileError(
            f"Object at location {storage.location}/{redact(path)} not found: the log names this data file, and it was "
            "deleted or vacuumed",
            path=path,
            advice="a newer version of the table may not need it",
        ) from None
