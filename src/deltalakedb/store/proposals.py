"""The writer's input and output: proposals over any number of tables, and ratified commits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.runtime.caller import Caller
from deltalakedb.store.registry import TableRow

NameKey = tuple[str, str]
"""How a table's name is compared: the key of its namespace, and its own key."""

NEW_TABLE = -1
"""`table_id` of a table that the transaction creates."""


@dataclass(frozen=True, slots=True)
class IcebergCommit:
    """One version of an Iceberg table or view. Its metadata file exists already, under a name of its own."""

    metadata_location: str
    metadata: str
    """The metadata as JSON, without the snapshots."""
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    added_snapshots: tuple[tuple[int, str], ...] = ()
    """The ids of new snapshots, and their JSON."""
    removed_snapshots: frozenset[int] = frozenset()
    num_files: int | None = None
    num_records: int | None = None
    size_bytes: int | None = None
    txn_id: str | None = None
    """The transaction that made it, if the proposal commits several; None: the proposal's own."""


@dataclass(frozen=True, slots=True)
class JoinedTransaction:
    """A transaction that is committed together with another one, as if it came right after it."""

    txn_id: str
    client_token: str
    actor: str | None = None
    caller: Caller | None = None
    """Whose request it is, if an endpoint commits it."""


@dataclass(frozen=True, slots=True)
class TableProposal:
    """A transaction's changes to one table, based on version `read_version` (-1: the table is created)."""

    table: TableRow
    read_version: int
    commits: tuple[ProposedCommit, ...] = ()
    also_read: ReadSet = NOTHING_READ
    """What was read beside the reads recorded in the commits; a table may only be read."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    """Protocol and metadata at `read_version`; None only for a new table."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changed columns of the registry row; each must still have the value it has in `table`."""
    is_reserved: bool = False
    """Whether the location of a new table was reserved for it; the reservation must still exist."""
    is_named: bool = False
    """Whether the transaction opened the table by name; the name must then still refer to it."""
    drop: bool = False
    purge: bool = False
    """With `drop`: the files are deleted after the commit."""
    kept_ms: int = 0
    """With `drop`: how long a table whose files the catalog owns can be undropped."""
    undrop: bool = False
    """A dropped table is registered again, under the name in `changes` or its last one."""
    allowed_states: frozenset[str] = frozenset({"live"})
    vacuum_count: int | None = None
    """`vacuum_count` of the head that was pinned before the commits were made; None if not pinned."""
    exactly: bool = False
    """The commits become exactly the versions after `read_version`, or fail: their writer checked no later version."""
    iceberg: tuple[IcebergCommit, ...] = ()
    """The versions of an Iceberg table or view, which has no `commits`."""

    @property
    def is_new(self) -> bool:
        return self.table.table_id == NEW_TABLE

    @property
    def is_append_only(self) -> bool:
        """Whether the commits cannot disturb a transaction that rewrites the table."""
        return not self.changes_registry and not self.iceberg and all(commit.is_blind_append for commit in self.commits)

    @property
    def changes_registry(self) -> bool:
        """Whether the table's registry row is changed, begun or ended."""
        return bool(self.is_new or self.changes or self.drop or self.undrop)

    @property
    def registered_as(self) -> TableRow | None:
        """The registry row that the commit begins, as far as the proposal knows it; None if it begins none."""
        if self.drop or not self.changes_registry:
            return None
        return replace(self.table, **self.changes)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One transaction, committed as a whole or not at all. The client token identifies a repeat of it."""

    tables: tuple[TableProposal, ...]
    txn_id: str
    client_token: str
    actor: str | None = None
    origin: str | None = None
    message: str | None = None
    caller: Caller | None = None
    """Whose request it is, if an endpoint commits it."""
    absent: frozenset[NameKey] = frozenset()
    """Names that the transaction found to be free and does not take itself."""
    listed: frozenset[NameKey] | None = None
    """All names of the catalog, if the transaction listed them."""
    joined: tuple[JoinedTransaction, ...] = ()
    """Transactions on Iceberg tables that are committed with this one, in their order."""

    owner: str | None = None
    """The user who may manage the tables that are created; None if nobody needs that right."""

    @property
    def depends_on_names(self) -> bool:
        """Whether the commit changes names or locations of tables, or the transaction looked names up."""
        return bool(self.absent) or self.listed is not None or any(table.changes_registry for table in self.tables)


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A version that won in SQL. `data`: the bytes of its file as the mirror must write them; None if it is large.

    `late` renders the bytes of a large commit, for a mirror that writes them at once. It keeps all actions in memory,
    so a mirror that waits drops it and reads the commit back from SQL.
    """

    table: TableRow
    version: int
    timestamp_ms: int
    data: bytes | None = None
    num_files: int | None = None
    size_bytes: int | None = None
    """The table's files and bytes at this version, set for the version that became the head."""
    late: Callable[[], bytes] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a transaction. `repeated`: it had been committed before, with the same token."""

    txn_id: str
    committed_at_ms: int
    commits: tuple[RatifiedCommit, ...] = ()
    tables: Mapping[str, TableRow] = field(default_factory=dict)
    """The tables of the proposal as they are now, by the full name they were proposed under."""
    repeated: bool = False
    joined_ms: Mapping[str, int] = field(default_factory=dict)
    """When each joined transaction was committed, by its id."""

    @property
    def versions(self) -> dict[str, int]:
        """The last version of each table, by its present name."""
        return {commit.table.full_name: commit.version for commit in self.commits}
