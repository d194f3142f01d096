"""TableDraft: one table in a transaction: what was pinned and read of it, and what is proposed so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import NotWritableError
from deltalakedb.log.protocol.actions import AddCDCFile, AddFile, AppTransaction
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.paths import decode_path, is_absolute
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.operations.target import Target, WrittenFiles
from deltalakedb.store import Store
from deltalakedb.store.overlay import OverlaySnapshot
from deltalakedb.store.proposals import NEW_TABLE, IcebergCommit, TableProposal
from deltalakedb.store.registry import Head, TableRow, not_delta
from deltalakedb.store.snapshot import SqlSnapshot

if TYPE_CHECKING:
    from deltalakedb.storage.interface import Storage

Snapshot = SqlSnapshot | OverlaySnapshot

_LIVE = frozenset({"live"})
_ANY_STATE = frozenset({"live", "frozen", "detaching"})


@dataclass(slots=True)
class TableDraft:
    """Changes of one table, collected until the commit. `base` is None for a table that the transaction creates."""

    store: Store
    pinned: TableRow
    base: SqlSnapshot | None
    row: TableRow
    """The registry row as the transaction sees it, with the new name if the transaction renames the table."""
    head: Head | None = None
    """The pinned head; None for a table that the transaction creates."""
    commits: list[ProposedCommit] = field(default_factory=list)
    read: ReadSet = NOTHING_READ
    is_named: bool = False
    """Whether the transaction found the table by name, not by location."""
    by_id: bool = False
    """Whether the transaction identifies the table by id: then others may rename it."""
    is_reserved: bool = False
    """Whether the location of a new table is reserved for it."""
    dropped: bool = False
    purge: bool = False
    kept_ms: int = 0
    """How long the table can be undropped, if it is dropped."""
    undropped: bool = False
    """Whether this transaction brings a dropped table back."""
    options: dict[str, str] | None = None
    exactly: bool = False
    """Whether the commits must become the versions directly after the pinned one."""
    app_transactions: dict[str, AppTransaction] = field(default_factory=dict)
    """The versions that this transaction records for applications, by app id."""
    iceberg: list[IcebergCommit] = field(default_factory=list)
    """The versions that this transaction makes of an Iceberg table or view."""
    iceberg_metadata: Mapping[str, Any] | None = None
    """The metadata of an Iceberg table or view as the transaction sees it, once it was read."""
    iceberg_file: str = ""
    """Its metadata file, once it was read."""
    iceberg_folders: dict[str, Storage] = field(default_factory=dict)
    """The folders of its metadata files that this transaction has checked and opened."""

    @property
    def is_new(self) -> bool:
        return self.pinned.table_id == NEW_TABLE

    @property
    def is_changed(self) -> bool:
        """Whether the commit has anything to write for this table."""
        created_and_dropped = self.is_new and self.dropped
        return not created_and_dropped and bool(
            self.proposed() or self.iceberg or self.dropped or self.undropped or self.row != self.pinned
        )

    @property
    def is_read(self) -> bool:
        """Whether the commit must check anything else than what it writes: rows that were read, or the name."""
        return not self.is_new and (self.read != NOTHING_READ or (self.is_named and not self.by_id))

    @property
    def is_handed_over(self) -> bool:
        """Whether the transaction drops a managed table whose files stay with their user."""
        return self.dropped and not (self.is_new or self.purge or self.kept_ms) and self.pinned.mode == "managed"

    @property
    def takes_name(self) -> bool:
        """Whether the transaction gives the table the name it now has."""
        is_renamed = (self.row.namespace, self.row.name) != (self.pinned.namespace, self.pinned.name)
        return not self.dropped and (self.is_new or self.undropped or is_renamed)

    def snapshot(self) -> Snapshot:
        """Return the table with the transaction's own changes so far; later changes do not alter the snapshot."""
        if not self.row.is_delta:
            raise not_delta(self.row)
        if self.base is not None and not self.commits:
            return self.base
        return OverlaySnapshot(self.store, self.row, self.base, [commit.actions for commit in self.commits])

    def to_target(self, written: WrittenFiles) -> Target:
        """Return the table as the transaction sees it now, as the target of a verb."""
        snapshot = self.snapshot()
        return Target(
            name=self.row.full_name,
            location=self.row.location,
            options=self.options,
            snapshot=snapshot,
            plan=lambda predicate: snapshot.plan(predicate).files,
            written=written.for_table(self.row.table_uuid),
        )

    def note_read(self, read: ReadSet) -> None:
        # No other transaction can change a table that does not exist yet.
        if not self.is_new:
            self.read |= read

    def use_options(self, given: Mapping[str, str] | None) -> None:
        """Use storage options for the rest of the transaction."""
        if given and not given.items() <= (self.options or {}).items():
            self.options = {**(self.options or {}), **given}
            self.iceberg_folders = {}

    def go_on_from(self, snapshot: SqlSnapshot) -> None:
        """Base the changes on an older version; ignored for a table that is not managed yet."""
        is_older = self.base is not None and snapshot.version < self.base.version
        if is_older and self.pinned.mode == "managed":
            self.base = snapshot

    def proposed(self) -> tuple[ProposedCommit, ...]:
        """Return the commits to make. `txn` actions go into the last one, or into one of their own if there is none."""
        txn_actions = tuple(self.app_transactions.values())
        if not txn_actions:
            return tuple(self.commits)
        if not self.commits:
            return (ProposedCommit(txn_actions, "STREAMING UPDATE", {"appIds": to_json(list(self.app_transactions))}),)
        last = self.commits[-1]
        other_actions = (
            a for a in last.actions if not (isinstance(a, AppTransaction) and a.app_id in self.app_transactions)
        )
        return (*self.commits[:-1], replace(last, actions=(*other_actions, *txn_actions)))

    def named_files(self) -> Iterator[tuple[str, str]]:
        """Yield the location and path of every file that the proposed commits add."""
        for commit in self.commits:
            for action in commit.actions:
                if isinstance(action, AddFile | AddCDCFile) and not is_absolute(action.path):
                    yield self.row.location, decode_path(action.path)

    def save(self) -> Callable[[], None]:
        """Return a function that undoes the changes which are made from now on."""
        saved = replace(
            self,
            commits=list(self.commits),
            app_transactions=dict(self.app_transactions),
            iceberg=list(self.iceberg),
        )

        def restore() -> None:
            for one in fields(self):
                setattr(self, one.name, getattr(saved, one.name))

        return restore

    def check_writable(self) -> None:
        """Raise, at the statement, what the commit would raise: only managed, live tables can be written."""
        name, row = self.row.full_name, self.pinned
        if not row.is_delta:
            raise not_delta(self.row)
        if row.mode == "follower":
            raise NotWritableError(
                f"table {name} is a follower: its `_delta_log` is written by others, and read here; "
                f"`dl promote {name}` makes this catalog its writer"
            )
        if row.mode == "detached" or row.state == "detached":
            raise NotWritableError(
                f"table {name} is detached: its `_delta_log` decides again; write to it with any Delta writer, "
                f"or `dl promote {name}` to bring it back"
            )
        if row.state != "live":
            hint = (
                "`dl mirror resolve` ends that" if row.state == "frozen" else "`dl mirror status` shows how far it is"
            )
            raise NotWritableError(f"table {name} is {row.state} and takes no commits; {hint}")

    def to_proposal(self) -> TableProposal:
        read_version = -1 if self.head is None else self.head.current_version
        if self.base is not None:
            read_version = self.base.version
        return TableProposal(
            table=self.row if self.is_new else self.pinned,
            read_version=read_version,
            commits=self.proposed(),
            also_read=self.read,
            protocol=None if self.base is None else self.base.protocol,
            metadata=None if self.base is None else self.base.metadata,
            changes={} if self.is_new or self.row == self.pinned else self._changes(),
            is_named=self.is_named and not self.by_id,
            is_reserved=self.is_reserved,
            drop=self.dropped,
            purge=self.purge,
            kept_ms=self.kept_ms,
            undrop=self.undropped,
            # A drop without a commit is allowed in every state: a frozen table can be dropped too.
            allowed_states=_ANY_STATE if self.dropped and not self.proposed() else _LIVE,
            vacuum_count=None if self.head is None else self.head.vacuum_count,
            exactly=self.exactly or bool(self.iceberg) or (not self.row.is_delta and self.read != NOTHING_READ),
            iceberg=tuple(self.iceberg),
        )

    def _changes(self) -> dict[str, str]:
        """Return the columns of the registry row that the transaction changes; it may drop a table it has renamed."""
        is_moved = self.row.location != self.pinned.location
        moved = {"location": self.row.location, "files_owner": self.row.files_owner} if is_moved else {}
        return {"namespace": self.row.namespace, "name": self.row.name, **moved}
