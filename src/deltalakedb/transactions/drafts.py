"""Drafts: the tables of a transaction by name: those of the pinned cut, and what the transaction changed."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from deltalakedb.catalog.entries import dropped_rows, is_promoted_by_writes, not_among, not_dropped
from deltalakedb.catalog.storage_options import as_properties
from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.paths import decode_path, is_absolute
from deltalakedb.log.protocol.proposal import NOTHING_READ
from deltalakedb.operations.folder import refuse_existing_log, refuse_missing_files
from deltalakedb.rights import Access, Right, SecuredObject, current_access
from deltalakedb.storage.location import canonical_location
from deltalakedb.store import locations, registry
from deltalakedb.store.connection import Row
from deltalakedb.store.iceberg import VersionCache
from deltalakedb.store.locations import Claimant, LocationRow
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.store.proposals import NEW_TABLE
from deltalakedb.store.registry import Head, TableRow, to_table_row
from deltalakedb.store.snapshot import SqlSnapshot, pin_all, pin_some, to_pinned
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.places import release_places, reserve_place

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.operations.creation import NewTable
    from deltalakedb.runtime.config import Config

logger = logging.getLogger(__name__)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """How statements on Iceberg tables and views reach files."""

    limits: Config | None
    """The settings that limit the locations which a client may name; None if the client is in this process."""
    options: Mapping[str, str] | None = field(default=None, repr=False)
    """Storage options for all tables of the statements."""
    cache: VersionCache | None = field(default=None, repr=False, compare=False)
    """Metadata that need not be read again."""


class Drafts:
    """A cut of the catalog, pinned in one read, with the transaction's own changes."""

    def __init__(self, catalog: Catalog, only: Sequence[TableName] | None, pinned: Sequence[Row] | None = None) -> None:
        """`pinned`: the rows of a cut that was made before, of a transaction which another process began."""
        self.catalog = catalog
        self._only = only
        store = catalog.store
        if pinned is None:
            pinned = pin_all(store) if only is None else pin_some(store, [(name.namespace, name.name) for name in only])
        self._pins: dict[Key, Row] = {TableName(row["namespace"], row["name"]).key: row for row in pinned}
        self._pinned_keys = frozenset(self._pins)
        self._hide_from(current_access())
        self._pinned_at: dict[str, Key] | None = None
        self._named: dict[Key, TableDraft] = {}
        self._absent: set[Key] = set()
        self._is_listed = False
        self.reserved: list[str] = []
        """The uuids of new tables whose locations this transaction reserved."""
        self.used: list[TableDraft] = []
        """Every table that the transaction used, in the order of first use."""
        self.iceberg_files = IcebergFiles(catalog.config)

    def pinned_rows(self) -> list[Row]:
        """Return the rows of the tables that the transaction has not used yet."""
        return list(self._pins.values())

    def _hide_from(self, access: Access) -> None:
        """Take the tables that the caller must not know of out of the cut."""
        if not access.is_trusted:
            self._pins = {key: row for key, row in self._pins.items() if access.sees(to_table_row(row))}

    def require_create(self, name: TableName) -> None:
        """Raise NotPermittedError unless the caller may give a table this name."""
        access = current_access()
        if not access.is_trusted:
            with self.catalog.store.read(single=True) as conn:
                holder = registry.resolve_table(conn, name.namespace, name.name)
            access.require_create(name, holder)

    # -- what the transaction saw of the registry

    def names(self) -> list[str]:
        """Return all names as the transaction sees them; this counts as a read."""
        return [row.full_name for row in self.rows()]

    def rows(self) -> list[TableRow]:
        """Return the registry rows of all tables as the transaction sees them; this counts as a read of the names."""
        if self._only is None:
            self._is_listed = True
        else:
            self._note_absent(*self._only)
        return self._all_rows()

    def _all_rows(self) -> list[TableRow]:
        pinned = {key: to_table_row(row) for key, row in self._pins.items()}
        own = {key: draft.row for key, draft in self._named.items()}
        return [row for _, row in sorted({**pinned, **own}.items(), key=itemgetter(0))]

    @property
    def absent(self) -> frozenset[Key]:
        """Names that the transaction looked up and found free, without those that it takes itself."""
        if not self._absent:
            return frozenset()
        return frozenset(self._absent - {draft.row.key for draft in self.used if draft.takes_name})

    @property
    def listed(self) -> frozenset[Key] | None:
        """The names at the start of the transaction, if it listed them."""
        return self._pinned_keys if self._is_listed else None

    # -- tables

    def mode_of(self, name: TableName) -> str | None:
        """Return the mode of a table as the transaction sees it, or None; this does not count as a read."""
        row, draft = self._pins.get(name.key), self._named.get(name.key)
        return row["mode"] if row is not None else None if draft is None else draft.row.mode

    def find(self, name: TableName) -> TableDraft | None:
        """Return the table of this name as the transaction sees it, or None; either answer counts as a read."""
        if self._only is not None and all(name.key != allowed.key for allowed in self._only):
            allowed_names = ", ".join(map(str, self._only))
            raise DeltaError(
                f"the transaction was begun for {allowed_names} only; begin it without tables= to use {name} too"
            )
        draft = self._find(name.key)
        if draft is not None:
            if not (draft.is_new or current_access().sees(draft.pinned)):
                return None  # revoked since the transaction began
            draft.is_named = True
        else:
            self._note_absent(name)
        return draft

    def _note_absent(self, *names: TableName) -> None:
        """Remember free names; not where the caller sees no tables: a conflict would tell of those that come to be."""
        access = current_access()
        for name in names:
            if name.key not in self._pinned_keys and access.allows(
                Right.DISCOVER, SecuredObject.of_namespace(name.namespace)
            ):
                self._absent.add(name.key)

    def identify(self, name: TableName, table_id: int) -> bool:
        """Return whether a name belongs to the table with this id; if so, others may rename it from now on."""
        draft = self.find(name)
        if draft is None or draft.pinned.table_id != table_id:
            return False
        draft.by_id = True
        return True

    def _find(self, key: Key) -> TableDraft | None:
        row = self._pins.pop(key, None)
        if row is not None:
            store = self.catalog.store
            table, head, base = to_pinned(store, row)
            options = self.catalog.storage_options_of(table)
            self.add(TableDraft(store, table, base, table, head, options=options))
        return self._named.get(key)

    def find_at(self, location: str) -> TableDraft | None:
        """Return the table at a location, as the transaction sees it."""
        sees = current_access().sees
        for draft in self.used:
            if draft.row.location == location and not draft.dropped and (draft.is_new or sees(draft.pinned)):
                return draft
        if self._pinned_at is None:
            self._pinned_at = {row["location"]: key for key, row in self._pins.items()}
        key = self._pinned_at.get(location)
        return self._find(key) if key is not None and key in self._pins else None

    def get(self, name: str) -> TableDraft:
        target = parse_table_name(name)
        draft = self.find(target)
        if draft is None:
            # the other names are only a hint in the message, not a read
            raise not_among([row.full_name for row in self._all_rows()], target)
        return draft

    def get_writable(self, name: str) -> TableDraft:
        draft = self.get(name)
        self.make_writable(draft)
        return draft

    def make_writable(self, draft: TableDraft) -> None:
        """Raise unless the table can be written; one that was attached implicitly is promoted by its first write.

        The promotion takes effect at once and stays, even if the transaction fails: the files must be fenced first.
        """
        if not draft.is_new:
            current_access().require(Right.WRITE, draft.pinned)
        promotes = self.catalog.config.catalog_promote_on_write
        if draft.pinned.mode == "follower" and promotes and is_promoted_by_writes(draft.pinned):
            _promote(self.catalog, draft)
        draft.check_writable()

    def repeat_promotion(self, location: str, version: int) -> None:
        """Repeat what `make_writable` did in another process: it promoted the table, and moved on to this version."""
        draft = self.find_at(location)
        if draft is None or draft.head is None:
            return
        with self.catalog.store.read() as conn:
            head = registry.read_head(conn, draft.pinned.table_id) or draft.head
            row = conn.one("select_version", table_id=draft.pinned.table_id, version=version)
        committed_ms = head.last_commit_ms if row is None else row["committed_at_ms"]
        _move(self.catalog, draft, replace(head, current_version=version, last_commit_ms=committed_ms))

    def add(self, draft: TableDraft) -> None:
        self.used.append(draft)
        self._named[draft.row.key] = draft

    def rename(self, draft: TableDraft, row: TableRow) -> None:
        self.hide(draft)
        draft.row = row
        self._named[row.key] = draft

    def hide(self, draft: TableDraft) -> None:
        """Make the table's name free again."""
        del self._named[draft.row.key]

    def new(
        self,
        name: TableName,
        definition: NewTable,
        location: str | os.PathLike[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> tuple[TableDraft, tuple[Protocol, Metadata]]:
        """Return a draft of a table that does not exist yet, and its protocol and metadata; the draft is not added."""
        first = definition.first(str(name), None)
        return self.new_at(name, location, options), first

    def new_at(
        self,
        name: TableName,
        location: str | os.PathLike[str] | None,
        options: Mapping[str, str] | None = None,
        *,
        mode: str = "managed",
        staged_uuid: str | None = None,
    ) -> TableDraft:
        """Return a draft of a table that does not exist yet, without a first commit; its location is reserved.

        With `staged_uuid` an earlier reservation of the location for that uuid is used, if there is one.
        """
        self.require_create(name)
        staged = None if location is None or staged_uuid is None else self._staged(location, staged_uuid)
        if staged is not None:
            return self.adopt(name, staged.location, staged.table_uuid, staged.files_owner, options, mode)
        table_uuid = str(uuid.uuid4())
        dropped_again = [draft.row.table_uuid for draft in self.used if draft.is_new and draft.dropped]
        reserved_location = reserve_place(
            self.catalog,
            name,
            table_uuid,
            location,
            options,
            instead_of=dropped_again,
            is_iceberg=mode == registry.ICEBERG,
        )
        self.reserved.append(table_uuid)
        files_owner = "catalog" if location is None else "user"
        return self.adopt(name, reserved_location, table_uuid, files_owner, options, mode)

    def _staged(self, location: str | os.PathLike[str], table_uuid: str) -> LocationRow | None:
        """Return the reservation of a location for a table that was staged before."""
        with self.catalog.store.read(single=True) as conn:
            row = locations.find_location(conn, canonical_location(location))
        is_staged = row is not None and (row.table_uuid, row.state) == (table_uuid, locations.RESERVED)
        return row if is_staged else None

    def join(self, name: TableName, location: str) -> TableDraft:
        """Return a draft of a new table that others may be creating at the same location, under the same name."""
        self.require_create(name)
        refuse_existing_log(location, None, table=str(name))
        claimant = Claimant(str(uuid.uuid4()), str(name), "user")
        with self.catalog.store.write() as conn:
            table_uuid = locations.join(conn, location, claimant, now_ms=conn.now_ms())
        return self.adopt(name, location, table_uuid, "user")

    def adopt(
        self,
        name: TableName,
        location: str,
        table_uuid: str,
        files_owner: str,
        options: Mapping[str, str] | None = None,
        mode: str = "managed",
    ) -> TableDraft:
        """Return a draft of a table that does not exist yet, at a location that is reserved for it."""
        stored_options = as_properties(options)
        row = TableRow(
            NEW_TABLE, table_uuid, name.namespace, name.name, location, mode, "live", stored_options, files_owner
        )
        return TableDraft(
            self.catalog.store, row, None, row, options=dict(options) if options else None, is_reserved=True
        )

    def release_reserved(self, txn_id: str, *, is_committed: bool) -> None:
        """Release the locations of new tables that were not created. If the database is unreachable, they expire."""
        created = {draft.row.table_uuid for draft in self.used if not draft.dropped} if is_committed else set()
        try:
            release_places(self.catalog, [table_uuid for table_uuid in self.reserved if table_uuid not in created])
        except DeltaError as error:
            logger.warning("reserved locations of transaction %s are left to expire: %s", txn_id, redact(str(error)))

    def undrop(self, name: TableName, new: TableName | None) -> TableDraft:
        """Return a draft of a dropped table that can be brought back: the one last dropped under this name."""
        for draft in reversed(self.used):
            if draft.dropped and not draft.is_new and draft.row.key == name.key:
                raise DeltaError(f"{name} is dropped by this transaction itself; leave the drop out instead")
        self.catalog.mirror.write_marks()
        with self.catalog.store.read() as conn:
            undropped_ids = {draft.pinned.table_id for draft in self.used if draft.undropped}
            rows = [(row, on) for row, on in dropped_rows(conn) if row["table_id"] not in undropped_ids]
            candidates = [(row, on) for row, on in rows if parse_table_name(row["table_name"]).key == name.key]
            if not candidates:
                raise not_dropped((row["table_name"] for row, _ in rows), name)
            dropped, secured = candidates[0]
            current_access().require_object(Right.MANAGE, secured, str(name))
            table = to_table_row(dropped)
            head = registry.read_head(conn, table.table_id)
            file = conn.one("select_live_file", table_id=table.table_id)
        assert head is not None, "a dropped table keeps its head until it is purged"
        store = self.catalog.store
        snapshot = SqlSnapshot(store, table, head.current_version, head.last_commit_ms)
        options = self.catalog.storage_options_of(table)
        path = None if file is None else from_sql_text(file["path"])
        refuse_missing_files(
            table.location,
            options,
            table=str(name),
            is_mirrored=head.mirrored_version >= 0,
            data_file=None if path is None or is_absolute(path) else decode_path(path),
        )
        new_name = new or parse_table_name(dropped["table_name"])
        self.require_create(new_name)
        row = replace(table, namespace=new_name.namespace, name=new_name.name)
        draft = TableDraft(store, table, snapshot, row, head, options=options, undropped=True)
        self.add(draft)
        return draft


def _promote(catalog: Catalog, draft: TableDraft) -> None:
    """Make the table managed; a draft that has read nothing moves to the newest version, which has the fence."""
    from deltalakedb.mirror.promote import promote

    promotion = promote(
        catalog.store,
        draft.pinned,
        storage_options=draft.options,
        conditional_put=catalog.config.mirror_conditional_put,
        actor=catalog.actor,
        origin=catalog.origin,
    )
    if not promotion.already_managed:
        logger.warning(
            "table %s is managed by this catalog from now on, because it is written through it: other writers meet a "
            "fence in its files at version %d. `dl detach %s` gives it back; catalog.promote_on_write=0 keeps tables "
            "that were attached by the way from being promoted",
            promotion.table.full_name,
            promotion.version,
            promotion.table.full_name,
        )
    if draft.read == NOTHING_READ and not draft.commits:
        with catalog.store.read(single=True) as conn:
            head = registry.read_head(conn, draft.pinned.table_id)
        assert head is not None, "a promoted table has a head"
        _move(catalog, draft, head)
    else:
        _move(catalog, draft, None)


def _move(catalog: Catalog, draft: TableDraft, head: Head | None) -> None:
    """The table is managed for the transaction from now on, and read at this head, if there is one."""
    draft.pinned = replace(draft.pinned, mode="managed")
    draft.row = replace(draft.row, mode="managed")
    if head is not None:
        draft.head = head
        draft.base = SqlSnapshot(catalog.store, draft.pinned, head.current_version, head.last_commit_ms)
