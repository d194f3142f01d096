"""Metadata files of Iceberg tables and views: where they are put, and which locations clients may name."""

from __future__ import annotations

import gzip
import logging
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os.path import dirname
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import BadIcebergRequestError, ConfigError, DeltaError, UnknownLocationError, redact
from deltalakedb.iceberg.locations import from_iceberg, open_file
from deltalakedb.operations.target import WrittenFiles
from deltalakedb.runtime.config import Config
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import Location, canonical_location, parse_location
from deltalakedb.store.locations import owner_around

if TYPE_CHECKING:
    from deltalakedb.storage.interface import Storage
    from deltalakedb.store.connection import Store
    from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

MAX_METADATA_BYTES = 128 * 1024 * 1024
"""Larger metadata files are refused, before and after they are decompressed."""

MAX_PATH_BYTES, MAX_NAME_BYTES = 3_500, 255
"""Limits of paths on a local disk; names of files are added to them."""

MAX_KEY_BYTES = 800
"""The limit of a table's part of a key in an object store, which has 1,024 bytes in all."""

_GZIP_MAGIC = b"\x1f\x8b"


def metadata_folder(metadata: Mapping[str, Any]) -> str:
    """Return the folder of a table's metadata files: `write.metadata.path`, or `metadata` in its location."""
    own_folder = metadata.get("properties", {}).get("write.metadata.path")
    return str(own_folder).rstrip("/") if own_folder else f"{metadata['location'].rstrip('/')}/metadata"


def write_metadata_file(
    metadata: Mapping[str, Any],
    data: bytes,
    *,
    version: int,
    options: Mapping[str, str] | None,
    config: Config | None,
    written: WrittenFiles,
    folders: dict[str, Storage],
) -> str:
    """Write a metadata file under a name of its own; return its location.

    It is durable once `written` is synced, and is deleted if the commit fails. `folders` are those that the transaction
    has checked and opened for the table.
    """
    folder = metadata_folder(metadata)
    if folder not in folders:
        folders[folder] = _open_folder(folder, config, options)
    is_compressed = metadata.get("properties", {}).get("write.metadata.compression-codec") == "gzip"
    name = f"{version:05d}-{uuid.uuid4()}{'.gz' if is_compressed else ''}.metadata.json"
    written.write_path(folders[folder], name, gzip.compress(data, mtime=0) if is_compressed else data)
    reached("iceberg.metadata_written")
    return f"{folder}/{name}"


def _open_folder(folder: str, config: Config | None, options: Mapping[str, str] | None) -> Storage:
    check_location(folder, config, options, what="the folder of metadata files")
    storage, _ = open_file(f"{folder}/", options)
    return storage


def read_metadata_file(location: str, config: Config | None, options: Mapping[str, str] | None = None) -> bytes:
    """Read a metadata file that a client names; it must be at an allowed location."""
    check_location(dirname(location), config, options, what="the metadata file")
    try:
        storage, name = open_file(location, options)
        size = storage.stat(name).size
        if size > MAX_METADATA_BYTES:
            raise BadIcebergRequestError(f"the metadata file {redact(location)} has {size} bytes; that is too large")
        data = storage.get(name)
    except (FileNotFoundError, IsADirectoryError):
        raise BadIcebergRequestError(f"there is no metadata file {redact(location)}") from None
    return _decompressed(data, location) if data.startswith(_GZIP_MAGIC) else data


def _decompressed(data: bytes, location: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, MAX_METADATA_BYTES)
    except zlib.error as error:
        raise BadIcebergRequestError(f"the metadata file {redact(location)} is not valid gzip: {error}") from None
    if unpacker.unconsumed_tail:
        raise BadIcebergRequestError(f"the metadata file {redact(location)} is too large when it is decompressed")
    return text


def delete_old_files(locations: Iterable[str], options: Mapping[str, str] | None) -> None:
    """Delete metadata files that a table no longer names; what cannot be deleted only takes up space."""
    for location in locations:
        try:
            storage, name = open_file(location, options)
            storage.delete(name)
        except (DeltaError, OSError) as error:
            logger.warning("an old metadata file is left behind: %s", redact(str(error)))


def check_location(
    location: object, config: Config | None, options: Mapping[str, str] | None = None, *, what: str
) -> str:
    """Return a location that a client named, without a trailing slash; refuse one outside of the allowed places.

    Allowed are the warehouse and the locations in the setting `serve.iceberg_locations`; without settings, all.
    """
    if not isinstance(location, str) or not location:
        raise BadIcebergRequestError(f"{what}: the location must be a text")
    text = location.rstrip("/")
    if any(part in (".", "..") for part in text.split("/")):
        raise BadIcebergRequestError(f"{what} cannot be at {redact(text)!r}: a location has no . or .. in it")
    try:
        place = parse_location(from_iceberg(text), options)
    except (ConfigError, UnknownLocationError) as error:
        raise BadIcebergRequestError(f"{what}: {error}") from None
    problem = _problem_of(text, place)
    if problem:
        raise BadIcebergRequestError(f"{what} cannot be at {redact(text[:200])!r}: {problem}")
    canonical = place.uri
    if config is None:
        return text
    if not is_allowed(canonical, config):
        raise BadIcebergRequestError(
            f"{what} cannot be at {redact(text)}: it is outside of the warehouse and of the locations that the setting "
            "serve.iceberg_locations allows"
        )
    return text


def _problem_of(text: str, place: Location) -> str | None:
    """Why clients or the storage would not find files at a location; None if they would."""
    if place.scheme == "file":
        if not text.startswith(("/", "file:/")):
            return "it is a relative path, which would mean another folder to each client"
        if len(place.path.encode()) > MAX_PATH_BYTES or any(
            len(part.encode()) > MAX_NAME_BYTES for part in place.path.split("/")
        ):
            return f"the path has more than {MAX_PATH_BYTES} bytes, or a name in it more than {MAX_NAME_BYTES}"
        return None
    key = text.partition("://")[2]
    if "//" in key or "?" in key or "#" in key:
        return "clients read //, ? and # in it in different ways"
    return "it has too many bytes for a key" if len(key.encode()) > MAX_KEY_BYTES else None


def is_allowed(canonical: str, config: Config) -> bool:
    """Return whether clients may name a canonical location: it is in the warehouse, or the settings allow it."""
    allowed = [*([config.warehouse] if config.warehouse else []), *(config.serve_iceberg_locations or ())]
    return any(f"{canonical}/".startswith(f"{canonical_location(root).rstrip('/')}/") for root in allowed)


def is_own_or_free(
    folder: str, table: TableRow, store: Store, options: Mapping[str, str] | None, config: Config | None
) -> bool:
    """Return whether a folder that a table's metadata names is the table's, or an allowed one that is no other table's.

    A client could have named any file of somebody else.
    """
    try:
        canonical = canonical_location(from_iceberg(folder), options)
    except DeltaError:
        return False
    if ".." in folder.split("/"):
        return False
    if f"{canonical}/".startswith(f"{table.location.rstrip('/')}/"):
        return True
    with store.read() as conn:
        owner = owner_around(conn, canonical, now_ms=conn.now_ms())
    return owner is None and config is not None and is_allowed(canonical, config)


def make_folders(location: str) -> None:
    """Create the folders of a table on a local disk, where some clients write without creating them."""
    place = parse_location(from_iceberg(location))
    if place.scheme == "file":
        for folder in ("data", "metadata"):
            Path(place.path, folder).mkdir(parents=True, exist_ok=True)


def remove_empty_folders(location: str) -> None:
    """Remove the folders of a table that was not created, on a local disk; those that have files stay."""
    place = parse_location(from_iceberg(location))
    if place.scheme == "file":
        for folder in (Path(place.path, "data"), Path(place.path, "metadata"), Path(place.path)):
            with suppress(OSError):
                folder.rmdir()
