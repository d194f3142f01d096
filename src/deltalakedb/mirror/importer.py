"""Attach: a table's `_delta_log` is copied into SQL in one transaction; an interrupted copy leaves nothing behind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deltalakedb.exceptions import TableExistsError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.actions import CommitInfo
from deltalakedb.log.txnlog import LogSnapshot
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.loader import BaseState, Loader, Progress
from deltalakedb.store.registry import Head, TableRow

History = Literal["full", "latest"]


@dataclass(frozen=True, slots=True)
class AttachResult:
    table: TableRow
    head: Head
    already_attached: bool = False


def attach(
    store: Store,
    location: str,
    *,
    namespace: str,
    name: str,
    history: History = "full",
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    actor: str = "",
    origin: str = "",
    with_bounds: bool = True,
) -> AttachResult:
    """Register the table at `location` as a follower and copy its log into SQL.

    `full` keeps every version the files still have, `latest` starts at the newest checkpoint. Attaching the same
    location under the same name again changes nothing.
    """
    label = registry.label(namespace, name)
    reader = FileTxnLogReader(location, storage_options, table=label)
    reader.latest_version()  # no table there: said before the database is touched
    with store.write() as conn:
        existing = _existing(conn, namespace, name, reader.location)
        if existing is not None:
            return existing
        now_ms = conn.now_ms()
        table = registry.register_table(
            conn,
            namespace=namespace,
            name=name,
            location=reader.location,
            mode="follower",
            properties=properties or {},
            at_ms=now_ms,
        )
        loader = Loader(conn, table.table_id, table=label, progress=progress, with_bounds=with_bounds)
        load_history(loader, reader, history)
        head = loader.finish()
        registry.write_audit(
            conn,
            at_ms=now_ms,
            actor=actor,
            origin=origin,
            action="attach",
            table_id=table.table_id,
            table_name=label,
            details={
                "location": reader.location,
                "history": history,
                "base_version": head.base_version,
                "version": head.current_version,
            },
        )
    return AttachResult(table, head)


def load_history(loader: Loader, reader: FileTxnLogReader, history: History) -> None:
    """Everything the files have, from the oldest usable start (or the newest checkpoint) to their latest version."""
    listing = reader.listing()
    latest, start = reader.latest_version(), reader.earliest_version()
    if history == "latest" and listing.checkpoints:
        start = max(start, listing.checkpoints[0].version)
    if start > 0 or 0 not in listing.commits:
        loader.load_base(base_state(reader, start))
        start += 1
    for commit in reader.commits(start, latest):
        loader.append(commit)


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
    """Who made the version, if its own commit is still there beside the checkpoint."""
    if not reader.has_commit(version):
        return None
    return next((action for action in reader.actions(version) if isinstance(action, CommitInfo)), None)


def _existing(conn: Connection, namespace: str, name: str, location: str) -> AttachResult | None:
    label = f"{namespace}.{name}"
    by_name = registry.resolve_table(conn, namespace, name)
    by_location = registry.table_by_location(conn, location)
    if by_name is not None and by_location is not None and by_name.table_id == by_location.table_id:
        head = registry.read_head(conn, by_name.table_id)
        assert head is not None, "a registered table has a head"
        return AttachResult(by_name, head, already_attached=True)
    if by_name is not None:
        raise TableExistsError(
            f"{label} exists already, at {by_name.location}; choose another name or `dl drop {label}` first"
        )
    if by_location is not None:
        other = f"{by_location.namespace}.{by_location.name}"
        raise TableExistsError(f"{location} is attached already, as {other}; one location has one name")
    return None
