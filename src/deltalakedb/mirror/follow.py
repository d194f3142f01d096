"""Follow: brings a follower's SQL level with its `_delta_log`; safe to run twice at once."""

from collections.abc import Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaError, LogGapError, TableReplacedError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.mirror.external import Importer, difference
from deltalakedb.mirror.importer import base_state
from deltalakedb.store import registry
from deltalakedb.store.action_values import to_metadata
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.loader import Loader, Progress
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow

COMMITS_PER_TRANSACTION = 1_000
"""A long catch-up shows its progress to readers, and gives the write lock back, this often."""


class PromotedError(DeltaError):
    """The table is managed: somebody promoted it in the meantime."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions that foreign clean-up deleted before they were read: first and last, both included."""

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
    """Take in every commit the files have beyond SQL's head."""
    reader = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    latest = reader.latest_version()
    started = _check_same_table(store, table, reader, latest)
    version, gap = started, None
    while version < latest:
        with store.write() as conn:
            loader = open_loader(conn, table, progress)
            found = catch_up(conn, loader, reader, min(latest, loader.current_version + COMMITS_PER_TRANSACTION))
            version = loader.finish().current_version
            if found is not None:
                gap = found
                details = {"first": gap.first, "last": gap.last}
                write_audit(
                    conn, action="gap", at_ms=conn.now_ms(), actor=actor, origin=origin, table=table, details=details
                )
    return FollowResult(table, started, version, gap)


def open_loader(conn: Connection, table: TableRow, progress: Progress | None = None) -> Loader:
    """A loader that goes on from the head, which stays locked: a second follower waits here, then finds it moved."""
    head = registry.lock_head(conn, table.table_id)
    now = registry.table_by_id(conn, table.table_id)
    if head is None or now is None:
        raise DeltaError(f"the table {table.full_name} is not registered any more")
    if now.mode == "managed":
        # Promoted meanwhile: from then on SQL decides, and what else is in the files is for `dl mirror resolve`.
        raise PromotedError(f"{now.full_name} is managed now: only a follower takes in commits from its files")
    row = conn.one("select_metadata", table_id=table.table_id, version=head.metadata_version)
    metadata = to_metadata(row) if row else None
    return Loader(conn, table.table_id, table=table.full_name, head=head, metadata=metadata, progress=progress)


def catch_up(conn: Connection, loader: Loader, reader: FileTxnLogReader, target: int) -> Gap | None:
    """Commits through `target`; from the oldest usable checkpoint where clean-up outran us."""
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
    """SQL's head version, after making sure that the files are still those of the table we know."""
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
