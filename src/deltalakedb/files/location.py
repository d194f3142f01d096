"""One spelling for the place where a table lives, whatever the user typed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deltalakedb.exceptions import ConfigError, UnknownLocationError, redact

# Every way to write a scheme, and the one that is kept.
_SCHEMES = {
    "file": "file",
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
# Hadoop's name for the file system of a scheme, where it is another one.
_HADOOP = {"s3": "s3a", "az": "abfss"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_ACCOUNT_OPTIONS = ("azure_storage_account_name", "account_name")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location: `path` is decoded and has no slash at either end, except on local disk (an absolute path)."""

    scheme: str
    bucket: str
    path: str
    host: str = ""  # Azure only: account.dfs.core.windows.net, or OneLake's

    @property
    def account(self) -> str:
        return self.host.partition(".")[0]

    @property
    def uri(self) -> str:
        """The canonical spelling: percent-encoded on local disk, the key itself elsewhere (only `%` stays encoded)."""
        if self.scheme == "file":
            return Path(self.path).as_uri()
        path = "/" + self.path.replace("%", "%25") if self.path else ""
        if self.host:
            return f"abfss://{self.bucket}@{self.host}{path}"
        return f"{self.scheme}://{self.bucket}{path}"

    @property
    def bridge_path(self) -> str:
        """How the Spark bridge spells it: `/file/lake/t`, `/s3a/bucket/t`."""
        if self.scheme == "file":
            return f"/file{self.path}"
        authority = f"{self.bucket}@{self.host}" if self.host else self.bucket
        return f"/{_HADOOP.get(self.scheme, self.scheme)}/{authority}/{self.path}".rstrip("/")


def parse_location(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
    """Read a plain path or a URI; `options` may name the Azure account that the URI leaves out."""
    text = os.fspath(location)
    match = _SCHEME.match(text)
    if match is None:
        return _local(text)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise UnknownLocationError(
            f"cannot open {redact(text)!r}: unknown scheme {match[1]!r}; give a path or one of {known}"
        )
    rest = text[match.end() :]
    if scheme == "file":
        return _local_uri(rest, text)
    return _remote(scheme, rest, text, options or {})


def canonical_location(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> str:
    """The one spelling of a location: `s3a://` is `s3://`, local paths are `file:///` with symbolic links resolved."""
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
    """abfss://container@account.dfs.core.windows.net carries its account, az://container does not."""
    container, at, host = authority.partition("@")
    if at:
        return container, host.lower().replace(".blob.", ".dfs.", 1)
    lowered = {key.lower(): value for key, value in options.items()}
    accounts = [lowered[name] for name in _ACCOUNT_OPTIONS if lowered.get(name)]
    account = accounts[0] if accounts else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return container, f"{account}.dfs.core.windows.net" if account else ""
