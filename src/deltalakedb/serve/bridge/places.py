"""Bridge paths: how Spark names a table's files (`dldb:///file/lake/t`), and which table that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import ATTACHED_BY, is_promoted_by_writes, require_table
from deltalakedb.catalog.registration import BY_CREATE
from deltalakedb.exceptions import ConfigError, redact
from deltalakedb.mirror.follow import PromotedError, follow
from deltalakedb.operations.folder import name_of_folders
from deltalakedb.storage.location import Location, parse_location
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.store.registry import TableRow

SCHEME = "dldb"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table, or where one may be created: `table` is None before its first commit."""

    location: str
    table: TableRow | None = None
    name: TableName | None = None
    """The name that a first commit gives the table; None if nothing can be created there."""
    reserved_for: str | None = None
    """The table (uuid) that the location is reserved for."""
    files_owner: str = "user"

    @property
    def shown(self) -> str:
        """The table's name, or its location, for errors."""
        return self.table.full_name if self.table else str(self.name) if self.name else redact(self.location)

    @property
    def table_name(self) -> TableName:
        """The name of the table that is here, or that a first commit creates."""
        if self.table is not None:
            return TableName(self.table.namespace, self.table.name)
        assert self.name is not None
        return self.name


def location_of(path: str) -> str:
    """The normalised location of a bridge path: `/file/lake/t`, `/s3a/bucket/t`."""
    scheme, slash, rest = path.removeprefix("/").partition("/")
    if not path.startswith("/") or not slash or not rest:
        raise ConfigError(
            f"{redact(path)!r} is no path of the bridge: it is {SCHEME}:///file/<path>, or {SCHEME}:///s3a/<bucket>/<key>"
        )
    if scheme == "file":
        return parse_location(f"/{rest}").uri
    # The path is decoded already, so a percent sign is literal.
    return parse_location(f"{scheme}://{rest.replace('%', '%25')}").uri


def given_location(location: str) -> str:
    """The normalised location that a client has given: by a bridge path, or in the usual spelling."""
    plain = location_of(location.removeprefix(f"{SCHEME}://")) if location.startswith(SCHEME) else location
    return location_of(path_of(plain))


def path_of(location: str) -> str:
    """The inverse of `location_of`."""
    return parse_location(location).bridge_path


def bridge_uri(location: str, txn: str = "") -> str:
    """The URI that Spark opens; inside a transaction its id is the authority."""
    return f"{SCHEME}://{txn}{path_of(location)}"  # as Hadoop reads paths: nothing is encoded


def parents(location: str) -> Iterator[str]:
    """The location and every folder above it."""
    place = parse_location(location)
    parts = place.path.strip("/").split("/")
    lead = "/" if place.scheme == "file" else ""
    for count in range(len(parts), 0, -1):
        inside = lead + "/".join(parts[:count])
        yield Location(place.scheme, place.bucket, inside, place.host).uri


def name_in_warehouse(location: str, warehouse: str | None) -> tuple[bool, TableName | None]:
    """Whether a location is in the warehouse, and the name of the table that would be created there."""
    if warehouse is None:
        return False, None
    root = parse_location(warehouse)
    if not location.startswith(root.uri.rstrip("/") + "/"):
        return False, None
    inside = parse_location(location).path.removeprefix(root.path).strip("/").split("/")
    return True, name_of_folders(*inside) if len(inside) == 2 else None


def is_attached(table: TableRow) -> bool:
    """Whether a CREATE has attached the table, and it was not written through the catalog since."""
    return is_promoted_by_writes(table) and table.properties[ATTACHED_BY] == BY_CREATE


def is_written_through(catalog: Catalog, table: TableRow) -> bool:
    """Whether Spark opens a follower through the bridge: its first write there makes it managed."""
    return is_promoted_by_writes(table) and catalog.config.catalog_promote_on_write


def attach_at(catalog: Catalog, name: str, location: str) -> TableRow | None:
    """Attach the Delta table at a location under a free name; None if there is none, or the catalog has it."""
    if not catalog.attach_existing(name, given_location(location)):
        return None
    with catalog.store.read(single=True) as conn:
        return require_table(conn, parse_table_name(name))


def bring_up(catalog: Catalog, table: TableRow) -> None:
    """Before its log is listed: import what others have committed, while its files decide."""
    if not is_written_through(catalog, table):
        return
    with suppress(PromotedError):  # a write made it managed meanwhile: SQL has everything
        follow(
            catalog.store,
            table,
            storage_options=catalog.storage_options_of(table),
            actor=catalog.actor,
            origin=catalog.origin,
        )
