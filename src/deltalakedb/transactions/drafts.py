"""The tables of a transaction by name: those of the pinned cut, and what the transaction made of them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltalakedb.definitions.folder import default_location, refuse_existing_log
from deltalakedb.definitions.table import PropertyValue, new_table
from deltalakedb.exceptions import DeltaError, TableExistsError, redact
from deltalakedb.files.location import canonical_location
from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.log.types import StructType
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.registered import not_among
from deltalakedb.storage_options import as_properties
from deltalakedb.store import registry
from deltalakedb.store.connection import Row
from deltalakedb.store.cuts import pin_all, pin_some, to_pin
from deltalakedb.store.proposals import NEW_TABLE
from deltalakedb.store.registry import TableRow
from deltalakedb.transactions.draft import TableDraft

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog

Key = tuple[str, str]


class Drafts:
    """A cut through the catalog, pinned in one read, and the transaction's own view of it."""

    def __init__(self, catalog: Catalog, only: Sequence[TableName] | None) -> None:
        self._catalog = catalog
        self._only = only
        store = catalog.store
        found = pin_all(store) if only is None else pin_some(store, [(name.namespace, name.name) for name in only])
        self._pins: dict[Key, Row] = {TableName(row["namespace"], row["name"]).key: row for row in found}
        self._pinned_at: dict[str, Key] | None = None
        self._named: dict[Key, TableDraft] = {}
        self.used: list[TableDraft] = []
        """Every table the transaction has touched, in the order of first use."""

    def names(self) -> list[str]:
        pinned = {key: str(TableName(row["namespace"], row["name"])) for key, row in self._pins.items()}
        own = {key: draft.row.full_name for key, draft in self._named.items()}
        return [name for _, name in sorted({**pinned, **own}.items())]

    def find(self, name: TableName) -> TableDraft | None:
        """The table of this name, as the transaction sees it."""
        if self._only is not None and all(name.key != one.key for one in self._only):
            listed = ", ".join(map(str, self._only))
            raise DeltaError(f"the transaction was begun for {listed} only; begin it without tables= to use {name} too")
        found = self._pins.pop(name.key, None)
        if found is not None:
            pin = to_pin(found)
            store, row = self._catalog.store, pin.table
            options = self._catalog.storage_options_of(row)
            self.add(TableDraft(store, row, pin.snapshot(store), row, pin.head, options=options))
        return self._named.get(name.key)

    def find_at(self, location: str) -> TableDraft | None:
        """The table whose files lie there, as the transaction sees it."""
        for draft in self.used:
            if draft.row.location == location and not draft.dropped:
                return draft
        if self._pinned_at is None:
            self._pinned_at = {row["location"]: key for key, row in self._pins.items()}
        key = self._pinned_at.get(location)
        row = self._pins.get(key) if key is not None else None
        return None if row is None else self.find(TableName(row["namespace"], row["name"]))

    def get(self, name: str) -> TableDraft:
        target = parse_table_name(name)
        draft = self.find(target)
        if draft is None:
            raise not_among(self.names(), target)
        return draft

    def get_writable(self, name: str) -> TableDraft:
        draft = self.get(name)
        draft.check_writable()
        return draft

    def add(self, draft: TableDraft) -> None:
        self.used.append(draft)
        self._named[_key_of(draft.row)] = draft

    def rename(self, draft: TableDraft, row: TableRow) -> None:
        self.hide(draft)
        draft.row = row
        self._named[_key_of(row)] = draft

    def hide(self, draft: TableDraft) -> None:
        """The name is free again."""
        del self._named[_key_of(draft.row)]

    def new(
        self,
        name: TableName,
        schema: StructType,
        *,
        partition_by: Sequence[str] | str,
        location: str | os.PathLike[str] | None,
        properties: Mapping[str, PropertyValue],
        description: str | None,
        options: Mapping[str, str] | None,
        called: str | None = None,
    ) -> tuple[TableDraft, tuple[Protocol, Metadata]]:
        """A table that does not exist yet, and what its first version must carry; it is not added yet.

        `called` is the name in its metadata, when that is not to be the catalog's.
        """
        first = new_table(
            schema,
            partition_by,
            properties,
            table=str(name),
            name=called or name.name,
            description=description,
            created_ms=time.time_ns() // 1_000_000,
        )
        return self.new_at(name, location, options), first

    def new_at(
        self, name: TableName, location: str | os.PathLike[str] | None, options: Mapping[str, str] | None = None
    ) -> TableDraft:
        """A table that does not exist yet, without its first commit."""
        table_uuid = str(uuid.uuid4())
        at = self._location(name, location, options, table_uuid)
        refuse_existing_log(at, options, table=str(name))
        row = TableRow(NEW_TABLE, table_uuid, name.namespace, name.name, at, "managed", "live", as_properties(options))
        return TableDraft(self._catalog.store, row, None, row, options=dict(options) if options else None)

    def location_of_new(self, name: TableName) -> str:
        """Where the files of a table of this name would go."""
        return self._location(name, None, None, str(uuid.uuid4()))

    def refuse_tables_inside(self, draft: TableDraft) -> None:
        """Deleting a folder must not take another table with it."""
        with self._catalog.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        inside = [row.full_name for row in rows if row.location.startswith(draft.row.location.rstrip("/") + "/")]
        if inside:
            raise DeltaError(
                f"{draft.row.full_name} cannot be purged: {', '.join(inside)} lies in its folder "
                f"{redact(draft.row.location)}; drop it without purge"
            )

    def _location(
        self,
        name: TableName,
        given: str | os.PathLike[str] | None,
        options: Mapping[str, str] | None,
        table_uuid: str,
    ) -> str:
        if given is not None:
            at = canonical_location(given, options)
            self._refuse_taken(name, at)
            return at
        at = default_location(self._catalog.config.warehouse, name)
        # A table that was renamed keeps its folder, so the name's own folder may be another table's.
        return (
            at
            if self._owner(at) is None
            else default_location(self._catalog.config.warehouse, name, suffix=table_uuid[:8])
        )

    def _refuse_taken(self, name: TableName, at: str) -> None:
        owner = self._owner(at)
        if owner is not None:
            raise TableExistsError(
                f"{name} cannot be created at {redact(at)}: {owner} is there; a location has one owner"
            )

    def _owner(self, location: str) -> str | None:
        for draft in self.used:
            if draft.row.location == location and not draft.dropped:
                return draft.row.full_name
        with self._catalog.store.read(single=True) as conn:
            row = registry.table_by_location(conn, location)
        gone = row is not None and any(d.pinned.table_id == row.table_id and d.dropped for d in self.used)
        return None if row is None or gone else row.full_name


def _key_of(row: TableRow) -> Key:
    return TableName(row.namespace, row.name).key
