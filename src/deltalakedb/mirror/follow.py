"""Attach and follow: copy a table's `_delta_log` into SQL, at first and whenever it has grown."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from deltalakedb.exceptions import (
    DeltaError,
    LocationOwnedError,
    LogGapError,
    StoreError,
    TableReplacedError,
    redact,
)
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.fence import shows_iceberg
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.mirror.external import Importer, difference
from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.loader import BaseState, Loader, Progress
from deltalakedb.store.names import TableName
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow

History = Literal["full", "latest"]


@dataclass(frozen=True, slots=True)
class AttachResult:
    table: TableRow
    head: Head
    already_attached: bool = False
    was_detached: bool = False
    """The table is followed again; commits made since the detach are not loaded yet."""


def attach(
    store: Store,
    location: str,
    *,
    namespace: str,
    name: str,
    history: History = "full",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    actor: str | None = None,
    origin: str | None = None,
    with_bounds: bool = True,
) -> AttachResult:
    """Register the table at `location` as a follower and copy its log into SQL.

    `full` copies every version that the files still have, `latest` starts at the newest checkpoint. Attaching the same
    location under the same name again changes nothing; a detached table is followed again from where it was.
    """
    label = str(TableName(namespace, name))
    reader = FileTxnLogReader(location, storage_options, table=label)
    reader.latest_version()  # raises if there is no table, before the database is changed
    with store.write() as conn:
        existing = _existing(conn, namespace, name, reader.location)
        if existing is not None:
            return _attach_again(conn, existing, actor=actor, origin=origin)
        # In a transaction of its own: a long copy must not keep others from getting ids and locations.
        table_uuid, table_id = str(uuid.uuid4()), registry.next_table_id(conn)
        new_table = TableRow(table_id, table_uuid, namespace, name, reader.location, "follower", "live", {})
        registry.refuse_taken_name(conn, new_table)
        _reserve(conn, new_table)
    try:
        with store.write() as conn:
            loader = Loader(conn, table_id, table=label, progress=progress, with_bounds=with_bounds)
            load_history(Importer.of(conn, loader), reader, history)
            head = loader.finish()
            _refuse_iceberg(conn, table_id, reader)
            # Last, because it locks names that others may want.
            now_ms = registry.next_change_ms(conn)
            table = registry.register_table(
                conn,
                table_id=table_id,
                table_uuid=table_uuid,
                namespace=namespace,
                name=name,
                location=reader.location,
                mode="follower",
                properties=properties,
                at_ms=now_ms,
            )
            _audit_attach(conn, table, head, history, now_ms, actor, origin)
    except BaseException:
        _give_back(store, table_uuid)
        raise
    return AttachResult(table, head)


def _refuse_iceberg(conn: Connection, table_id: int, reader: FileTxnLogReader) -> None:
    """Refuse a log that shows an Iceberg table: the catalog of that table decides, and nothing else may."""
    row = conn.one("select_metadata", table_id=table_id, version=LIVE)
    if row is not None and shows_iceberg(metadata_from_row(row)):
        raise _shows_iceberg(reader.location, reader.table)


def _shows_iceberg(location: str, table: str) -> LocationOwnedError:
    return LocationOwnedError(
        f"{redact(location)} belongs to an Iceberg table, and its _delta_log only shows that table to Delta readers: "
        "read it by its path, or take in the Iceberg table with `dl iceberg register`",
        table=table,
    )


def _reserve(conn: Connection, table: TableRow) -> None:
    """Reserve the location before anything is copied; refuse one that is taken.

    The latest reservation wins, because a failed CREATE cannot always release its own.
    """
    claimant = locations.Claimant(table.table_uuid, table.full_name, "user")
    locations.reserve(conn, table.location, claimant, now_ms=conn.now_ms(), latest_holds=True)


def _give_back(store: Store, table_uuid: str) -> None:
    """Release the location after a failed attach. If the database is unreachable, the reservation expires."""
    with suppress(StoreError), store.write() as conn:
        locations.give_back(conn, table_uuid)


def _audit_attach(
    conn: Connection, table: TableRow, head: Head, history: History, now_ms: int, actor: str | None, origin: str | None
) -> None:
    details = {
        "location": table.location,
        "history": history,
        "base_version": head.base_version,
        "version": head.current_version,
    }
    write_audit(conn, action="attach", at_ms=now_ms, actor=actor, origin=origin, table=table, details=details)


def load_history(importer: Importer, reader: FileTxnLogReader, history: History) -> None:
    """Load all that the files have, from the oldest usable version (or the newest checkpoint) to the latest."""
    listing = reader.listing()
    latest, start = reader.latest_version(), reader.earliest_version()
    if history == "latest" and listing.checkpoints:
        start = max(start, listing.checkpoints[0].version)
    if start > 0 or 0 not in listing.commits:
        importer.take_base(base_state(reader, start))
        start += 1
    importer.take(reader.commits(start, latest))


def base_state(reader: FileTxnLogReader, version: int) -> BaseState:
    snapshot: LogSnapshot = reader.snapshot(version)
    return BaseState(
        version=snapshot.version,
        timestamp_ms=snapshot.timestamp_ms,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        app_transactions=snapshot.app_transactions().values(),
        domain_metadata=snapshot.domain_metadata().values(),
        files=snapshot.files(),
        tombstones=snapshot.tombstones(),
        commit_info=_commit_info(reader, version),
    )


def _commit_info(reader: FileTxnLogReader, version: int) -> CommitInfo | None:
    """The commitInfo of a version, if its commit still exists beside the checkpoint."""
    if not reader.has_commit(version):
        return None
    return next((action for action in reader.actions(version) if isinstance(action, CommitInfo)), None)


def _existing(conn: Connection, namespace: str, name: str, location: str) -> AttachResult | None:
    """The table with this name and location, if attached already; a name or location of another is refused later."""
    table = registry.resolve_table(conn, namespace, name)
    if table is None or table.location != location:
        return None
    if not table.is_delta:
        raise _shows_iceberg(location, table.full_name)
    head = registry.read_head(conn, table.table_id)
    return None if head is None else AttachResult(table, head, already_attached=True)


def _attach_again(conn: Connection, existing: AttachResult, *, actor: str | None, origin: str | None) -> AttachResult:
    """Make a detached table a follower; `follow` loads what others have committed since."""
    if existing.table.mode != "detached":
        return existing
    registry.lock_head(conn, existing.table.table_id)
    now_ms = registry.next_change_ms(conn)
    follower = registry.change_table(conn, existing.table.table_id, at_ms=now_ms, mode="follower")
    details = {"location": follower.location, "version": existing.head.current_version, "from": "detached"}
    write_audit(conn, action="attach", at_ms=now_ms, actor=actor, origin=origin, table=follower, details=details)
    return replace(existing, table=follower, was_detached=True)


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
