"""Proposals for the tests of the writer: the tables of `histories`, created and changed by SqlTxnLogWriter."""

import uuid
from typing import Any

from deltalakedb.log.protocol.actions import Action, Metadata, Protocol
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.store import Connection, Store, locations
from deltalakedb.store import registry as reg
from deltalakedb.store.proposals import NEW_TABLE, Outcome, Proposal, TableProposal
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.conformance.histories import METADATA, PROTOCOL


def drop(conn: Connection, table: reg.TableRow, *, at_ms: int) -> None:
    """Take a table's name away, as a drop does whose files are handed over."""
    reg.end_row(conn, table.table_id, at_ms=at_ms)
    locations.change_location(conn, table.table_id, table.full_name, locations.LEAVING)


def proposal(*tables: TableProposal, **fields: Any) -> Proposal:
    values: dict[str, Any] = {"txn_id": str(uuid.uuid4()), "client_token": str(uuid.uuid4()), **fields}
    return Proposal(tables, **values)


def new_table(
    name: str = "orders", *, protocol: Protocol = PROTOCOL, metadata: Metadata = METADATA, more: tuple[Action, ...] = ()
) -> TableProposal:
    row = reg.TableRow(
        NEW_TABLE, str(uuid.uuid4()), "sales", name, f"/lake/{name}-{uuid.uuid4()}", "managed", "live", {}
    )
    return TableProposal(row, -1, (ProposedCommit((protocol, metadata, *more), "CREATE TABLE"),))


def create(store: Store, name: str = "orders", **fields: Any) -> reg.TableRow:
    return commit(store, proposal(new_table(name, **fields))).commits[0].table


def change(
    store: Store,
    table: reg.TableRow,
    *actions: Action,
    read: ReadSet = NOTHING_READ,
    at: int | None = None,
    operation: str = "WRITE",
    **fields: Any,
) -> TableProposal:
    """One more commit, proposed from version `at` (the head when not given)."""
    with store.read() as conn:
        opened = reg.open_table(conn, table.namespace, table.name)
    assert opened is not None
    version = opened.head.current_version if at is None else at
    base = opened if at is None else SqlTxnLogReader(store, table).snapshot(at)
    values = {"protocol": base.protocol, "metadata": base.metadata, **fields}
    return TableProposal(table, version, (ProposedCommit(actions, operation, read=read),), **values)


def commit(store: Store, made: Proposal, *, retries: int = 5, lock_wait_seconds: float = 0.3) -> Outcome:
    return SqlTxnLogWriter(store, retries=retries, lock_wait_seconds=lock_wait_seconds).commit(made)


def set_state(store: Store, table: reg.TableRow, **fields: Any) -> None:
    with store.write() as conn:
        reg.change_table(conn, table.table_id, at_ms=conn.now_ms(), **fields)
