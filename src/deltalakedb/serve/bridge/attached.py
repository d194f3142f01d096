"""Tables that Spark named where a Delta table existed: their files decide until the first write through the catalog."""

from __future__ import annotations

from contextlib import suppress

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import ATTACHED_BY, is_promoted_by_writes, require_table
from deltalakedb.catalog.registration import BY_CREATE
from deltalakedb.mirror.follow import PromotedError, follow
from deltalakedb.serve.bridge.places import given_location
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry import TableRow


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
