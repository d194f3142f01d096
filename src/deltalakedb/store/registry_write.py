"""What a commit does to the registry: tables are created, renamed, dropped and undropped, all at one instant."""

from collections.abc import Mapping
from dataclasses import replace

from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.commit_locks import Locks
from deltalakedb.store.connection import Connection
from deltalakedb.store.namespaces import ensure_namespace
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.registry import TableRow


def write_registry(conn: Connection, proposal: Proposal, locks: Locks) -> list[TableRow]:
    """The registry row of each table of the proposal, as it is from now on, or was until now if it is dropped.

    All names that are given up become free before any is taken, so renames may swap names.
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
        began: dict[int, int] = {}
        for table in self._proposal.tables:
            if table.drop or (table.changes and not table.undrop):
                _, began[table.table.table_id] = registry.end_row(self._conn, table.table.table_id, at_ms=self._at_ms)
        return [self._begin(table, began.get(table.table.table_id, self._at_ms)) for table in self._proposal.tables]

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
        """The row of a new table, with an id nobody else has; whoever has the name or the location is named."""
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
        self._audit("create", row, {"location": row.location, "files_owner": row.files_owner})
        return row

    def _change(self, table: TableProposal, row: TableRow, from_ms: int) -> TableRow:
        changed = replace(row, **table.changes)
        ensure_namespace(self._conn, changed.namespace, at_ms=self._at_ms)
        registry.insert_row(self._conn, changed, from_ms)
        if changed.full_name != row.full_name:
            locations.change_location(self._conn, row.table_id, changed.full_name, locations.REGISTERED)
            self._audit("rename", changed, {"from": row.full_name, "to": changed.full_name})
        return changed

    def _drop(self, table: TableProposal, row: TableRow) -> None:
        """The name is gone. Files of the catalog are kept for a while, a user's handed over once they are complete."""
        row = replace(row, **table.changes)  # renamed by the same transaction
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
        back = replace(row, **table.changes)
        ensure_namespace(self._conn, back.namespace, at_ms=self._at_ms)
        registry.insert_row(self._conn, back, self._at_ms)
        locations.change_location(self._conn, back.table_id, back.full_name, locations.REGISTERED)
        self._audit("undrop", back, {"was": row.full_name, "location": row.location})
        return back

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
