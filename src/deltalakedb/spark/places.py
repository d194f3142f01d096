"""Hadoop's spelling of a table's location and files, and of `_metadata.file_path`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from deltalakedb.exceptions import ConfigError, UnsupportedFeatureError
from deltalakedb.log.protocol.paths import check_path, decode_path, is_absolute
from deltalakedb.storage.location import Location, parse_location

_SCHEMES: Final = {"s3": "s3a", "gs": "gs"}
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
# Characters that java.net.URI leaves unchanged in a path; beyond ASCII it encodes only controls and spaces.
_PLAIN: Final = "/-_.!~*'(),;:$&+=@"
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9/\-_.!~*'(),;:$&+=@]")


def spark_location(location: str) -> str:
    """A table's location in Hadoop's spelling, decoded: `file:///a b`, `s3a://bucket/key`."""
    return _of(parse_location(location))


def _of(place: Location, path: str | None = None) -> str:
    full_path = place.path if path is None else path
    if place.scheme == "file":
        return f"file://{full_path}"
    if place.scheme == "memory":
        raise ConfigError(f"{place.uri} lives in this process only: Spark cannot reach it")
    if place.scheme == "az" and not place.host:
        raise ConfigError(
            f"{place.uri} does not say its storage account: Spark needs abfss://container@account.dfs.core.windows.net"
        )
    authority = f"abfss://{place.bucket}@{place.host}" if place.host else f"{_SCHEMES[place.scheme]}://{place.bucket}"
    return f"{authority}/{full_path.lstrip('/')}".rstrip("/")


def data_files(location: str, paths: Iterable[str]) -> list[str]:
    """Data files by their paths in a table's log, in Hadoop's spelling, decoded."""
    root = spark_location(location)
    return [_data_file(location, root, path) for path in paths]


def _data_file(location: str, root: str, path: str) -> str:
    if not is_absolute(path):
        check_path(path, where=location)
        return f"{root}/{decode_path(path)}"
    if path.startswith("/"):  # on the file system of its table, as in Spark
        return _of(parse_location(location), decode_path(path))
    try:
        return _of(parse_location(path))
    except ConfigError:
        return decode_path(path)  # hdfs: and others that only Spark supports


def is_hidden(name: str) -> bool:
    """Whether Spark ignores files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def reading_path(file: str) -> str:
    """A file's name for `spark.read`, with the characters of glob patterns escaped."""
    name = file.rpartition("/")[2]
    if is_hidden(name):
        raise UnsupportedFeatureError(
            file, ["a data file whose name begins with '_' or '.'"], purpose="read by Spark's Parquet reader"
        )
    return _GLOB.sub(r"\\\g<0>", file)


def metadata_path(file: str) -> str:
    """The value of `_metadata.file_path` for a file: a URI of Hadoop, with one slash for local files."""
    scheme, _, rest = file.partition("://")
    authority, slash, path = rest.partition("/")
    while "//" in path:
        path = path.replace("//", "/")
    encoded = _ESCAPED.sub(lambda match: _encoded(match.group()), f"{slash}{path}")
    return f"{scheme}:{encoded}" if not authority else f"{scheme}://{authority}{encoded}"


def _encoded(char: str) -> str:
    is_plain = ord(char) > 0x7F and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")
    return char if is_plain else quote(char, safe=_PLAIN)
