"""The compensating commit: actions that take a table back to the state of an older version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltalakedb.exceptions import ExternalWriterError
from deltalakedb.log.actions import Action, AddFile, AppTransaction, DomainMetadata, Metadata, Protocol, RemoveFile
from deltalakedb.log.features import is_enabled
from deltalakedb.log.row_tracking import DOMAIN
from deltalakedb.store.action_values import to_add, to_app_transaction, to_domain_metadata, to_metadata, to_protocol
from deltalakedb.store.connection import LIVE, Connection
from deltalakedb.store.registry import TableRow


@dataclass(frozen=True, slots=True)
class StateBesideFiles:
    """What holds at a version, but for its files."""

    protocol: Protocol
    fenced: bool
    metadata: Metadata
    app_transactions: dict[str, AppTransaction]
    domains: dict[str, DomainMetadata]

    @classmethod
    def read(cls, conn: Connection, table: TableRow, version: int) -> StateBesideFiles:
        at = {"table_id": table.table_id, "version": version}
        protocol, metadata = conn.one("select_protocol", **at), conn.one("select_metadata", **at)
        assert protocol is not None, "every version has a protocol"
        assert metadata is not None, "and metadata"
        return cls(
            to_protocol(protocol),
            bool(protocol["fenced"]),
            to_metadata(metadata),
            {one.app_id: one for one in map(to_app_transaction, conn.all("select_app_transactions", **at))},
            {one.domain: one for one in map(to_domain_metadata, conn.all("select_domain_metadata", **at))},
        )


def compensating_actions(
    conn: Connection, table: TableRow, wanted: StateBesideFiles, version: int, *, deleted_ms: int
) -> tuple[Action, ...]:
    """What takes the head back to the state at `version`; empty when they are the same."""
    now = StateBesideFiles.read(conn, table, LIVE)
    actions: list[Action] = []
    if now.protocol != wanted.protocol or now.fenced != wanted.fenced:
        actions.append(wanted.protocol)
    if now.metadata != wanted.metadata:
        actions.append(wanted.metadata)
    actions += _files(conn, table, version, deleted_ms, is_enabled(wanted.metadata.configuration, "delta.appendOnly"))
    actions += [one for app_id, one in wanted.app_transactions.items() if now.app_transactions.get(app_id) != one]
    actions += _domains(now, wanted)
    return tuple(actions)


def _files(conn: Connection, table: TableRow, version: int, deleted_ms: int, append_only: bool) -> list[Action]:
    at = {"table_id": table.table_id, "version": version}
    restored = [to_add(row) for row in conn.all("select_adds_closed_since", **at)]
    # A file that was added again, with other statistics, is live: adding it once more puts its own back.
    back = {add.key for add in restored}
    added = [add for add in map(to_add, conn.all("select_live_adds_since", **at)) if add.key not in back]
    if append_only and added:
        raise ExternalWriterError(
            f"table {table.full_name} is append-only (delta.appendOnly), so what the other writer appended cannot be "
            f"taken out; nothing was changed. `dl mirror resolve {table.full_name} --adopt` keeps both"
        )
    return [*(RemoveFile.of(add, at_ms=deleted_ms) for add in added), *(_restored(add) for add in restored)]


def _restored(add: AddFile) -> AddFile:
    # The rows come back, so this changes data, whatever the commit did that added the file first.
    return replace(add, data_change=True, extra="")


def _domains(now: StateBesideFiles, wanted: StateBesideFiles) -> list[Action]:
    """Domains as they were; but row ids that were handed out stay handed out."""
    changed: list[Action] = [
        one for name, one in wanted.domains.items() if name != DOMAIN and now.domains.get(name) != one
    ]
    gone = [name for name in now.domains if name != DOMAIN and name not in wanted.domains]
    return [*changed, *(DomainMetadata(name, "", removed=True) for name in gone)]
