"""Bridge paths: how Spark names a table's files (`dldb:///file/lake/t`), and which table that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalakedb.definitions.folder import name_of_folders
from deltalakedb.exceptions import ConfigError, redact
from deltalakedb.files.location import Location, parse_location
from deltalakedb.names import TableName
from deltalakedb.store.registry import TableRow

SCHEME = "dldb"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table of ours is, or may be created: `table` is None before its first commit."""

    location: str
    table: TableRow | None = None
    name: TableName | None = None
    """What a first commit there calls the table; None: nothing can be created there."""
    reserved_for: str | None = None
    """The table (uuid) that the location is reserved for."""
    files_owner: str = "user"

    @property
    def shown(self) -> str:
        """The table's name, or where it is, for an error."""
        return self.table.full_name if self.table else str(self.name) if self.name else redact(self.location)


def location_of(path: str) -> str:
    """The location, in its one spelling, that a bridge path stands for: `/file/lake/t`, `/s3a/bucket/t`."""
    scheme, slash, rest = path.removeprefix("/").partition("/")
    if not path.startswith("/") or not slash or not rest:
        raise ConfigError(
            f"{redact(path)!r} is no path of the bridge: it is {SCHEME}:///file/<path>, or {SCHEME}:///s3a/<bucket>/<key>"
        )
    if scheme == "file":
        return parse_location(f"/{rest}").uri
    # The path is decoded already; a percent sign in it is one.
    return parse_location(f"{scheme}://{rest.replace('%', '%25')}").uri


def given_location(location: str) -> str:
    """The location, in its one spelling, that a client has named: by a bridge path, or as anybody writes it."""
    given = location_of(location.removeprefix(f"{SCHEME}://")) if location.startswith(SCHEME) else location
    return location_of(path_of(given))


def path_of(location: str) -> str:
    """The inverse of `location_of`."""
    return parse_location(location).bridge_path


def bridge_uri(location: str, txn: str = "") -> str:
    """What Spark is told to open; inside a transaction its id is the authority."""
    return f"{SCHEME}://{txn}{path_of(location)}"  # as Hadoop reads paths: nothing is encoded


def parents(location: str) -> Iterator[str]:
    """The location and every folder around it."""
    place = parse_location(location)
    parts = place.path.strip("/").split("/")
    lead = "/" if place.scheme == "file" else ""
    for count in range(len(parts), 0, -1):
        inside = lead + "/".join(parts[:count])
        yield Location(place.scheme, place.bucket, inside, place.host).uri


def name_in_warehouse(location: str, warehouse: str | None) -> tuple[bool, TableName | None]:
    """Whether a location lies in the warehouse; and the name of the table that would be created there."""
    if warehouse is None:
        return False, None
    root = parse_location(warehouse)
    if not location.startswith(root.uri.rstrip("/") + "/"):
        return False, None
    inside = parse_location(location).path.removeprefix(root.path).strip("/").split("/")
    return True, name_of_folders(*inside) if len(inside) == 2 else None
