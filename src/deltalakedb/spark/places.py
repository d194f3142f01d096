"""Where Spark finds a table's files: Hadoop's spelling of locations, paths and what `_metadata.file_path` says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from deltalakedb.exceptions import ConfigError, UnsupportedFeatureError
from deltalakedb.files.location import Location, parse_location
from deltalakedb.log.paths import check_path, decode_path, is_absolute

_SCHEMES: Final = {"s3": "s3a", "gs": "gs"}
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
# What java.net.URI leaves as it is in a path; of the characters beyond ASCII it encodes controls and spaces only.
_PLAIN: Final = "/-_.!~*'(),;:$&+=@"
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9/\-_.!~*'(),;:$&+=@]")


def spark_location(location: str) -> str:
    """A table's location as Hadoop spells it, decoded: `file:///a b`, `s3a://bucket/key`."""
    return _of(parse_location(location))


def _of(place: Location, path: str | None = None) -> str:
    at = place.path if path is None else path
    if place.scheme == "file":
        return f"file://{at}"
    if place.scheme == "memory":
        raise ConfigError(f"{place.uri} lives in this process only: Spark cannot reach it")
    if place.scheme == "az" and not place.host:
        raise ConfigError(
            f"{place.uri} does not say its storage account: Spark needs abfss://container@account.dfs.core.windows.net"
        )
    authority = f"abfss://{place.bucket}@{place.host}" if place.host else f"{_SCHEMES[place.scheme]}://{place.bucket}"
    return f"{authority}/{at.lstrip('/')}".rstrip("/")


def data_files(location: str, paths: Iterable[str]) -> list[str]:
    """Data files by their paths in a table's log, as Hadoop spells them, decoded."""
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
        return decode_path(path)  # hdfs: and others that only Spark knows


def reading_path(file: str) -> str:
    """A file's name for `spark.read`, which would take some characters for a pattern."""
    name = file.rpartition("/")[2]
    if name.startswith(".") or (name.startswith("_") and "=" not in name):
        raise UnsupportedFeatureError(
            file, ["a data file whose name begins with '_' or '.'"], purpose="read by Spark's Parquet reader"
        )
    return _GLOB.sub(r"\\\g<0>", file)


def metadata_path(file: str) -> str:
    """What `_metadata.file_path` says of a file: a URI of Hadoop, with one slash for local files."""
    scheme, _, rest = file.partition("://")
    authority, slash, path = rest.partition("/")
    while "//" in path:
        path = path.replace("//", "/")
    encoded = _ESCAPED.sub(lambda match: _encoded(match.group()), f"{slash}{path}")
    return f"{scheme}:{encoded}" if not authority else f"{scheme}://{authority}{encoded}"


def _encoded(char: str) -> str:
    kept = ord(char) > 0x7F and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")
    return char if kept else quote(char, safe=_PLAIN)
