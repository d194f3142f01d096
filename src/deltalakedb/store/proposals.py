"""What goes into the writer and what comes out: proposals over any number of tables, and ratified commits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.log.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.store.registry import TableRow

NameKey = tuple[str, str]
"""How a table's name is compared: the key of its namespace, and its own."""

NEW_TABLE = -1
"""`table_id` of a table that the transaction creates."""


@dataclass(frozen=True, slots=True)
class TableProposal:
    """What a transaction wants of one table, made from the table as it was at `read_version` (-1: to be created)."""

    table: TableRow
    read_version: int
    commits: tuple[ProposedCommit, ...] = ()
    also_read: ReadSet = NOTHING_READ
    """What was read beside what the commits say they read; a table may be read only."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    """Protocol and metadata at `read_version`; None only for a new table."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the registry row that change; each must still be what it is in `table`."""
    is_reserved: bool = False
    """Whether the location of a new table was reserved for it, and must still be."""
    is_named: bool = False
    """Whether the transaction found the table by its name: then the name must still be this table's."""
    drop: bool = False
    purge: bool = False
    """With `drop`: the files are deleted after the commit."""
    kept_ms: int = 0
    """With `drop`: how long a table whose files are the catalog's can be undropped."""
    undrop: bool = False
    """The table was dropped and is registered again, under the name in `changes` or its last one."""
    allowed_states: frozenset[str] = frozenset({"live"})
    vacuum_count: int | None = None
    """`vacuum_count` of the head that was pinned before the commits were made; None: not pinned."""
    exactly: bool = False
    """The commits become the versions right after `read_version` or none: their maker has decided against that one."""

    @property
    def is_new(self) -> bool:
        return self.table.table_id == NEW_TABLE

    @property
    def is_append_only(self) -> bool:
        """Whether nobody who rewrites the table could be disturbed."""
        return not self.changes_registry and all(commit.is_blind_append for commit in self.commits)

    @property
    def changes_registry(self) -> bool:
        """Whether the table's own row changes, begins or ends."""
        return bool(self.is_new or self.changes or self.drop or self.undrop)

    @property
    def registered_as(self) -> TableRow | None:
        """The registry row that the commit begins, as far as the proposal can tell; None when it begins none."""
        if self.drop or not self.changes_registry:
            return None
        return replace(self.table, **self.changes)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One transaction: all of it becomes true at once, or nothing. The token tells a repetition from a second try."""

    tables: tuple[TableProposal, ...]
    txn_id: str
    client_token: str
    actor: str | None = None
    origin: str | None = None
    message: str | None = None
    absent: frozenset[NameKey] = frozenset()
    """Names that the transaction saw to be free, and does not take itself."""
    listed: frozenset[NameKey] | None = None
    """All names of the catalog, where the transaction listed them."""


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A version that won in SQL. `data`: the bytes of its file as the mirror must write them; None when many.

    `late` makes the bytes of a large commit, for a mirror that writes them at once; it keeps all actions in memory, so
    whoever waits drops it and reads them back from SQL.
    """

    table: TableRow
    version: int
    timestamp_ms: int
    data: bytes | None = None
    num_files: int | None = None
    size_bytes: int | None = None
    """The table's files and bytes at this version, where it is the head that the transaction left."""
    late: Callable[[], bytes] | None = field(default=None, compare=False, repr=False)

    def rendered(self) -> bytes | None:
        """The bytes, if they are here or can be made without SQL."""
        return self.late() if self.data is None and self.late is not None else self.data


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction. `repeated`: it had been committed before, under the same token."""

    txn_id: str
    committed_at_ms: int
    commits: tuple[RatifiedCommit, ...] = ()
    tables: Mapping[str, TableRow] = field(default_factory=dict)
    """The tables of the proposal by the full name they were proposed under, as they are now."""
    repeated: bool = False

    @property
    def versions(self) -> dict[str, int]:
        """The last version of each table, by the name it has now."""
        return {commit.table.full_name: commit.version for commit in self.commits}
