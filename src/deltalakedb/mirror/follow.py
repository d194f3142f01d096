"""Follow: brings a follower's SQL up to date with its `_delta_log`; safe to run concurrently."""

from collections.abc import Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaError, LogGapError, TableReplacedError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.mirror.external import Importer, difference
from deltalakedb.mirror.importer import base_state
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.loader import Loader, Progress
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow

COMMITS_PER_TRANSACTION = 1_000
"""How many commits a long catch-up loads in one transaction; then readers see them and the write lock is released."""


class PromotedError(DeltaError):
    """The table was promoted meanwhile and is managed now."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions (first and last inclusive) that another program's clean-up deleted before they were read."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FollowResult:
    table: TableRow
    from_version: int
    to_version: int
    gap: Gap | None = None

    @property
    def num_commits(self) -> int:
        skipped = self.gap.last - self.gap.first + 1 if self.gap else 0
        return self.to_version - self.from_version - skipped


def follow(
    store: Store,
    table: TableRow,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    actor: str | None = None,
    origin: str | None = None,
) -> FollowResult:
    """Load every commit that the files have beyond SQL's head."""
    reader = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    latest = reader.latest_version()
    started = _check_same_table(store, table, reader, latest)
    version, gap = started, None
    while version < latest:
        with store.write() as conn:
            loader = open_loader(conn, table, progress)
            new_gap = catch_up(conn, loader, reader, min(latest, loader.current_version + COMMITS_PER_TRANSACTION))
            version = loader.finish().current_version
            if new_gap is not None:
                gap = new_gap
                details = {"first": gap.first, "last": gap.last}
                write_audit(
                    conn, action="gap", at_ms=conn.now_ms(), actor=actor, origin=origin, table=table, details=details
                )
    return FollowResult(table, started, version, gap)


def open_loader(conn: Connection, table: TableRow, progress: Progress | None = None) -> Loader:
    """A loader that continues from the head, which stays locked: a second follower waits, then sees the new head."""
    head = registry.lock_head(conn, table.table_id)
    registered = registry.table_by_id(conn, table.table_id)
    if head is None or registered is None:
        raise DeltaError(f"the table {table.full_name} is not registered any more")
    if registered.mode == "managed":
        # SQL decides from the promotion on, and other commits in the files are left to `dl mirror resolve`.
        raise PromotedError(f"{registered.full_name} is managed now: only a follower takes in commits from its files")
    row = conn.one("select_metadata", table_id=table.table_id, version=head.metadata_version)
    metadata = metadata_from_row(row) if row else None
    return Loader(conn, table.table_id, table=table.full_name, head=head, metadata=metadata, progress=progress)


def catch_up(conn: Connection, loader: Loader, reader: FileTxnLogReader, target: int) -> Gap | None:
    """Load commits through `target`; from the oldest usable checkpoint if clean-up deleted the next commit."""
    first, importer = loader.current_version + 1, Importer.of(conn, loader)
    if reader.has_commit(first) or first > target:
        importer.take(reader.commits(first, target))
        return None
    start = reader.earliest_version()
    if start < first:
        raise LogGapError(reader.table, first, "and no checkpoint covers it")
    importer.take_base(base_state(reader, start))
    return Gap(first, start - 1) if start > first else None


def _check_same_table(store: Store, table: TableRow, reader: FileTxnLogReader, latest: int) -> int:
    """SQL's head version, after checking that the files are still those of this table."""
    ours = SqlTxnLogReader(store, table)
    version = ours.latest_version()
    if latest < version:
        raise _replaced(table, f"its log ends at version {latest}, but SQL has read version {version}")
    if reader.has_commit(version) and ours.has_commit(version):
        theirs, stored = next(reader.commits(version, version)), next(ours.commits(version, version))
        if difference(stored, theirs) is None:
            return version
        raise _replaced(table, f"version {version} is not the one SQL has read")
    known_id, found_id = ours.snapshot(version).metadata.id, reader.snapshot(latest).metadata.id
    if known_id != found_id:
        raise _replaced(table, f"its metaData.id is {found_id}, but SQL has {known_id}")
    return version


def _replaced(table: TableRow, evidence: str) -> TableReplacedError:
    return TableReplacedError(
        f"{table.full_name}: another table lives at {table.location} now: {evidence}. The folder was deleted and made "
        f"anew, or put back from a copy; `dl drop {table.full_name}` and attach it again to take in what is there"
    )
