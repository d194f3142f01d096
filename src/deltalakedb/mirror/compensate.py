"""The compensating commit: actions that return a table to the state of an older version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltalakedb.exceptions import ExternalWriterError
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.completion import ROW_TRACKING
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.rows import (
    add_from_row,
    app_transaction_from_row,
    domain_metadata_from_row,
    metadata_from_row,
    protocol_from_row,
)
from deltalakedb.store.connection import LIVE, Connection
from deltalakedb.store.registry import TableRow


@dataclass(frozen=True, slots=True)
class StateBesideFiles:
    """The state of a table at a version, without its files."""

    protocol: Protocol
    fenced: bool
    metadata: Metadata
    app_transactions: dict[str, AppTransaction]
    domains: dict[str, DomainMetadata]

    @classmethod
    def read(cls, conn: Connection, table: TableRow, version: int) -> StateBesideFiles:
        at_version = {"table_id": table.table_id, "version": version}
        protocol, metadata = conn.one("select_protocol", **at_version), conn.one("select_metadata", **at_version)
        assert protocol is not None, "every version has a protocol"
        assert metadata is not None, "and metadata"
        return cls(
            protocol_from_row(protocol),
            bool(protocol["fenced"]),
            metadata_from_row(metadata),
            {
                action.app_id: action
                for action in map(app_transaction_from_row, conn.all("select_app_transactions", **at_version))
            },
            {
                action.domain: action
                for action in map(domain_metadata_from_row, conn.all("select_domain_metadata", **at_version))
            },
        )


def compensating_actions(
    conn: Connection, table: TableRow, wanted: StateBesideFiles, version: int, *, deleted_ms: int
) -> tuple[Action, ...]:
    """The actions that return the head to the state at `version`; empty if they are the same."""
    head_state = StateBesideFiles.read(conn, table, LIVE)
    actions: list[Action] = []
    if head_state.protocol != wanted.protocol or head_state.fenced != wanted.fenced:
        actions.append(wanted.protocol)
    if head_state.metadata != wanted.metadata:
        actions.append(wanted.metadata)
    actions += _files(conn, table, version, deleted_ms, is_enabled(wanted.metadata.configuration, "delta.appendOnly"))
    actions += [
        action
        for app_id, action in wanted.app_transactions.items()
        if head_state.app_transactions.get(app_id) != action
    ]
    actions += _domains(head_state, wanted)
    return tuple(actions)


def _files(conn: Connection, table: TableRow, version: int, deleted_ms: int, append_only: bool) -> list[Action]:
    since_version = {"table_id": table.table_id, "version": version}
    restored = [add_from_row(row) for row in conn.all("select_adds_closed_since", **since_version)]
    # A file that was added again with other statistics is live; adding it once more restores its own.
    restored_keys = {add.key for add in restored}
    added = [
        add
        for add in map(add_from_row, conn.all("select_live_adds_since", **since_version))
        if add.key not in restored_keys
    ]
    if append_only and added:
        raise ExternalWriterError(
            f"table {table.full_name} is append-only (delta.appendOnly), so what the other writer appended cannot be "
            f"taken out; nothing was changed. `dl mirror resolve {table.full_name} --adopt` keeps both"
        )
    return [*(RemoveFile.of(add, at_ms=deleted_ms) for add in added), *(_restored(add) for add in restored)]


def _restored(add: AddFile) -> AddFile:
    # The rows return, so this changes data, whether or not the original commit did.
    return replace(add, data_change=True, extra="")


def _domains(now: StateBesideFiles, wanted: StateBesideFiles) -> list[Action]:
    """Restore the domains, except the row id high-water mark: assigned row ids stay assigned."""
    changed_domains: list[Action] = [
        domain for name, domain in wanted.domains.items() if name != ROW_TRACKING and now.domains.get(name) != domain
    ]
    removed_names = [name for name in now.domains if name != ROW_TRACKING and name not in wanted.domains]
    return [*changed_domains, *(DomainMetadata(name, "", removed=True) for name in removed_names)]
