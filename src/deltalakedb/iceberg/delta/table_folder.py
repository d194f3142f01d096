"""TableFolder: a Delta table's folder, and files in it by the paths that Iceberg clients name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.exceptions import BadIcebergRequestError, ConfigError, StorageError, redact
from deltalakedb.iceberg.delta.delta_snapshots import FOLDER
from deltalakedb.iceberg.locations import from_iceberg
from deltalakedb.iceberg.planning.avro import MAX_FILE_BYTES
from deltalakedb.log.protocol.paths import is_absolute
from deltalakedb.storage.location import open_storage, parse_location

if TYPE_CHECKING:
    from deltalakedb.storage.interface import ListedFile

MAX_PATH_BYTES: Final = 2_000
_SAFE: Final = "/!$&'()*,;=:@~-._"
"""What Delta's paths do not escape. A plus is escaped, because some readers take it for a space."""

_NOT_FOR_DATA: Final = frozenset({"_delta_log", "_change_data", FOLDER})


class TableFolder:
    """Opens the files of a table that a client names. Nothing outside of the folder is ever read."""

    def __init__(self, table: str, location: str, options: Mapping[str, str] | None) -> None:
        self.table = table
        self._root = parse_location(location, options)
        self._options = options
        self.storage = open_storage(location, options)

    def path_of(self, path: str, what: str) -> str:
        """Return the path below the folder, with links resolved; BadIcebergRequestError if it is not in there."""
        name = redact(path)
        if not is_absolute(path) or "\0" in path or len(path.encode("utf-8", "replace")) > MAX_PATH_BYTES:
            raise BadIcebergRequestError(f"{self.table}: the path of {what} {name[:200]!r} is relative or too long")
        parts = path.partition(":/")[2].lstrip("/") if ":/" in path else path.lstrip("/")
        if any(part in ("", ".", "..") for part in parts.split("/")):
            raise BadIcebergRequestError(
                f"{self.table}: the path of {what} {name} has the parts . or .. or an empty one"
            )
        try:
            place = parse_location(from_iceberg(path), self._options)
        except ConfigError as error:
            raise BadIcebergRequestError(f"{self.table}: {what} {name} cannot be opened: {error}") from None
        root = self._root
        is_same_store = (place.scheme, place.bucket, place.host) == (root.scheme, root.bucket, root.host)
        prefix = f"{root.path.rstrip('/')}/" if root.path else ""
        if not (is_same_store and place.path.startswith(prefix)):
            raise BadIcebergRequestError(f"{self.table}: {what} {name} is outside of the table's folder")
        return place.path[len(prefix) :]

    def data_path(self, path: str) -> str:
        """Return the path of a data file below the folder."""
        relative = self.path_of(path, "the file")
        if relative.partition("/")[0].lower() in _NOT_FOR_DATA:
            raise BadIcebergRequestError(f"{self.table}: the file {redact(path)} is in a folder that has no data files")
        return relative

    def read(self, path: str, what: str) -> bytes:
        """Return the content of a metadata file."""
        relative = self.path_of(path, what)
        try:
            size = self.storage.stat(relative).size
            if size > MAX_FILE_BYTES:
                raise BadIcebergRequestError(
                    f"{self.table}: {what} {redact(path)} is larger than {MAX_FILE_BYTES} bytes"
                )
            return self.storage.get(relative)
        except (FileNotFoundError, IsADirectoryError):
            raise self._missing(path, what) from None

    def open_parquet(self, relative: str) -> tuple[ListedFile, pq.ParquetFile]:
        """Open a data file; BadIcebergRequestError if there is none, or if it is not Parquet."""
        try:
            file = self.storage.stat(relative)
            return file, pq.ParquetFile(self.storage.open(relative, file.size))
        except (FileNotFoundError, IsADirectoryError):
            raise self._missing(relative, "the file") from None
        except StorageError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(relative, error) from error

    def unreadable(self, relative: str, error: Exception) -> BadIcebergRequestError:
        """Return the error for a file that is not Parquet."""
        detail = str(error).partition("\n")[0]
        return BadIcebergRequestError(f"{self.table}: the file {relative} cannot be read as Parquet: {detail}")

    def _missing(self, path: str, what: str) -> BadIcebergRequestError:
        return BadIcebergRequestError(f"{self.table}: {what} {redact(path)} does not exist")


def encode(relative: str) -> str:
    """Return a path below a table's folder as Delta's log spells it."""
    folder, slash, rest = quote(relative, safe=_SAFE).partition("/")
    return f"{folder.replace(':', '%3A')}{slash}{rest}"  # what comes before a colon would be a scheme
