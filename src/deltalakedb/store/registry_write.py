"""Writes a commit's registry changes: tables created, renamed, dropped and undropped, all at one instant."""

from collections.abc import Mapping
from dataclasses import replace

from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.commit_locks import Locks
from deltalakedb.store.connection import Connection
from deltalakedb.store.grants import own_table
from deltalakedb.store.namespaces import ensure_namespace
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.registry import TableRow


def write_registry(conn: Connection, proposal: Proposal, locks: Locks) -> list[TableRow]:
    """Returns the registry row of each table of the proposal: the new row, or the last one if it is dropped.

    All names that are given up become free before any is taken, so renames can swap names.
    """
    return _Registering(conn, proposal, locks).run()


class _Registering:
    def __init__(self, conn: Connection, proposal: Proposal, locks: Locks) -> None:
        assert locks.committed_at_ms is not None, "a repeated commit changes nothing"
        self._conn = conn
        self._proposal = proposal
        self._locks = locks
        self._at_ms = locks.committed_at_ms

    def run(self) -> list[TableRow]:
        from_ms_by_id: dict[int, int] = {}
        for table in self._proposal.tables:
            if table.drop or (table.changes and not table.undrop):
                _, from_ms_by_id[table.table.table_id] = registry.end_row(
                    self._conn, table.table.table_id, at_ms=self._at_ms
                )
        return [
            self._begin(table, from_ms_by_id.get(table.table.table_id, self._at_ms)) for table in self._proposal.tables
        ]

    def _begin(self, table: TableProposal, from_ms: int) -> TableRow:
        if table.is_new:
            return self._create(table.table, is_reserved=table.is_reserved)
        row = self._locks.tables[table.table.table_id].row
        if table.drop:
            self._drop(table, row)
            return row
        if table.undrop:
            return self._undrop(table, row)
        return self._change(table, row, from_ms) if table.changes else row

    def _create(self, wanted: TableRow, *, is_reserved: bool) -> TableRow:
        """Registers a new table with a new id; an error names the owner of the name or location if it is taken."""
        row = registry.register_table(
            self._conn,
            namespace=wanted.namespace,
            name=wanted.name,
            location=wanted.location,
            mode=wanted.mode,
            state=wanted.state,
            properties=wanted.properties,
            at_ms=self._at_ms,
            table_uuid=wanted.table_uuid,
            files_owner=wanted.files_owner,
            is_reserved=is_reserved,
        )
        if self._proposal.owner is not None:
            own_table(self._conn, row.table_id, self._proposal.owner, self._at_ms)
        self._audit("create", row, {"location": row.location, "files_owner": row.files_owner})
        return row

    def _change(self, table: TableProposal, row: TableRow, from_ms: int) -> TableRow:
        changed = replace(row, **table.changes)
        ensure_namespace(self._conn, changed.namespace, at_ms=self._at_ms)
        registry.insert_row(self._conn, changed, from_ms)
        if changed.location != row.location:
            self._move(changed, row)
        if changed.full_name != row.full_name:
            locations.change_location(self._conn, row.table_id, changed.full_name, locations.REGISTERED)
            self._audit("rename", changed, {"from": row.full_name, "to": changed.full_name})
        return changed

    def _move(self, changed: TableRow, row: TableRow) -> None:
        """Gives an Iceberg table the location that its new metadata names, and frees the old one."""
        claimant = locations.Claimant(changed.table_uuid, changed.full_name, changed.files_owner, changed.table_id)
        locations.claim(self._conn, changed.location, claimant, now_ms=self._at_ms)
        self._audit("move", changed, {"from": row.location, "to": changed.location})

    def _drop(self, table: TableProposal, row: TableRow) -> None:
        """Ends the name. The catalog's own files are kept for a while; a user's are released once mirrored."""
        row = replace(row, **table.changes)  # the same transaction may have renamed it
        details = {"location": row.location, "mode": row.mode, "purge": table.purge, "files_owner": row.files_owner}
        if table.purge:
            locations.change_location(self._conn, row.table_id, row.full_name, locations.PURGING)
        elif table.kept_ms:
            expires_ms = self._at_ms + table.kept_ms
            locations.change_location(self._conn, row.table_id, row.full_name, locations.DROPPED, expires_ms)
            details["undrop_until_ms"] = expires_ms
        elif row.mode == "managed":
            locations.change_location(self._conn, row.table_id, row.full_name, locations.LEAVING)
        else:
            locations.release(self._conn, row.table_uuid)
        self._audit("drop", row, details)

    def _undrop(self, table: TableProposal, row: TableRow) -> TableRow:
        undropped = replace(row, **table.changes)
        ensure_namespace(self._conn, undropped.namespace, at_ms=self._at_ms)
        registry.insert_row(self._conn, undropped, self._at_ms)
        locations.change_location(self._conn, undropped.table_id, undropped.full_name, locations.REGISTERED)
        self._audit("undrop", undropped, {"was": row.full_name, "location": row.location})
        return undropped

    def _audit(self, action: str, row: TableRow, details: Mapping[str, object]) -> None:
        write_audit(
            self._conn,
            action=action,
            at_ms=self._at_ms,
            actor=self._proposal.actor,
            origin=self._proposal.origin,
            table=row,
            details={**details, "txn_id": self._proposal.txn_id},
        )
