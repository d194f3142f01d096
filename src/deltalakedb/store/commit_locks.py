"""Takes a commit's locks (namespaces, heads in the order of table ids, the client token) and reads under them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from deltalakedb.exceptions import NotWritableError, TableNotFoundError
from deltalakedb.log.protocol.actions import AddFile, AppTransaction, DomainMetadata, Protocol, RemoveFile
from deltalakedb.log.protocol.codec import key_hash, to_sql_text
from deltalakedb.log.protocol.completion import ROW_TRACKING
from deltalakedb.log.protocol.features import writer_features
from deltalakedb.log.protocol.rows import domain_metadata_from_row
from deltalakedb.store import registry_check
from deltalakedb.store.commit_sizes import FEW_FILES
from deltalakedb.store.connection import LIVE, Ask, Connection, Row
from deltalakedb.store.drafts import Known
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import Head, TableRow, to_table_row


@dataclass(frozen=True, slots=True)
class LockedTable:
    """A table with a locked head, and its state there."""

    row: TableRow
    head: Head
    known: Known
    fenced: bool
    intent_holder: str | None
    intent_until_ms: int | None
    domains: Mapping[str, DomainMetadata]
    app_versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Locks:
    """A commit's locks. `committed_at_ms` is the transaction's T; None if its token was used before."""

    catalog_id: str
    committed_at_ms: int | None
    tables: Mapping[int, LockedTable] = field(default_factory=dict)


def lock_tables(conn: Connection, proposal: Proposal, catalog_id: str | None) -> Locks:
    """Locks and reads in one round trip; each statement after the locks sees everything committed before them."""
    existing = sorted((table for table in proposal.tables if not table.is_new), key=lambda one: one.table.table_id)
    asks = registry_check.lock_asks(proposal)
    num_locks = len(asks)
    asks += [("lock_head", {"table_id": table.table.table_id}) for table in existing]
    token = {"txn_id": proposal.txn_id, "client_token": proposal.client_token}
    asks.append(("take_token", token | {"actor": proposal.actor, "message": proposal.message}))
    if catalog_id is None:
        asks.append(("select_catalog", {}))
    name_asks = registry_check.name_asks(proposal)
    asks += name_asks
    for table in existing:
        asks += _asks(table)
    answers = iter(conn.gather(asks)[num_locks:])
    heads = [_head(table, next(answers)) for table in existing]
    token_rows = next(answers)
    this_catalog_id = str(next(answers)[0]["catalog_id"]) if catalog_id is None else catalog_id
    committed_at_ms = int(token_rows[0]["committed_at_ms"]) if token_rows else None
    names = [next(answers) for _ in name_asks]
    if committed_at_ms is not None:
        registry_check.check_names(proposal, names)
    tables = {}
    for table, head in zip(existing, heads, strict=True):
        table_answers = [next(answers) for _ in _asks(table)]
        if committed_at_ms is not None:
            tables[table.table.table_id] = _locked(table, head, table_answers)
    return Locks(this_catalog_id, committed_at_ms, tables)


def _asks(proposal: TableProposal) -> list[Ask]:
    """The queries of one table; `_locked` takes the answers in this order."""
    ids = {"table_id": proposal.table.table_id}
    asks: list[Ask] = [("select_commit_state", ids | {"lease": f"intent:{proposal.table.table_id}"})]
    asks.append(("select_bounds_columns", ids))
    if proposal.undrop:
        asks += registry_check.undrop_asks(proposal.table.table_id)
    keys = _file_keys(proposal)
    if keys:
        asks.append((_live_keys_query(len(keys)), ids | {f"key_{n}": hashed for n, hashed in enumerate(keys)}))
    if _needs_domains(proposal):
        asks.append(("select_domain_metadata", ids | {"version": LIVE}))
    asks += [
        ("select_app_transaction", ids | {"version": LIVE, "app_id": to_sql_text(app_id)})
        for app_id in app_ids(proposal)
    ]
    return asks


def _file_keys(proposal: TableProposal) -> list[bytes]:
    """The keys of the files that the commits add or remove, if they are few; many are found when they are closed."""
    actions = (a for commit in proposal.commits for a in commit.actions if isinstance(a, AddFile | RemoveFile))
    files = list(islice(actions, FEW_FILES + 1))
    return sorted({key_hash(file.path, file.dv_id) for file in files}) if len(files) <= FEW_FILES else []


@lru_cache(maxsize=FEW_FILES)
def _live_keys_query(count: int) -> str:
    keys = ", ".join(f":key_{number}" for number in range(count))
    return named_queries()["select_live_keys"].replace(":key_hash", keys)


def app_ids(proposal: TableProposal) -> list[str]:
    """The applications whose progress the proposal records."""
    commits = [commit for commit in proposal.commits if AppTransaction in set(map(type, commit.actions))]
    return sorted({a.app_id for commit in commits for a in commit.actions if isinstance(a, AppTransaction)})


def _needs_domains(proposal: TableProposal) -> bool:
    """Whether row ids are assigned, by the protocol in force or by one that a commit brings."""
    proposed = [commit for commit in proposal.commits if Protocol in set(map(type, commit.actions))]
    protocols = [a for commit in proposed for a in commit.actions if isinstance(a, Protocol)]
    in_force = [] if proposal.protocol is None else [proposal.protocol]
    return any("rowTracking" in writer_features(protocol) for protocol in [*in_force, *protocols])


def _head(proposal: TableProposal, rows: list[Row]) -> Head:
    if not rows:
        raise TableNotFoundError(f"the table {proposal.table.full_name} is not in the database any more")
    return Head(**rows[0])


def _locked(proposal: TableProposal, head: Head, answers: list[list[Row]]) -> LockedTable:
    (state,), columns, *rest = answers
    if proposal.undrop:
        row = registry_check.check_undrop(rest.pop(0), rest.pop(0), proposal)
    else:
        row = _check_registered(proposal, state)
    live_keys = frozenset(bytes(row["key_hash"]) for row in rest.pop(0)) if _file_keys(proposal) else None
    domains: Mapping[str, DomainMetadata] = {}
    if _needs_domains(proposal):
        domains = {
            domain.domain: domain
            for domain in map(domain_metadata_from_row, rest.pop(0))
            if domain.domain == ROW_TRACKING
        }
    apps = {app_id: rows[0]["app_version"] for app_id, rows in zip(app_ids(proposal), rest, strict=True) if rows}
    return LockedTable(
        row=row,
        head=head,
        known=Known(state["total_added"], state["total_closed"], columns, live_keys),
        fenced=bool(state["fenced"]),
        intent_holder=state["intent_holder"],
        intent_until_ms=state["intent_until_ms"],
        domains=domains,
        app_versions=apps,
    )


def _check_registered(proposal: TableProposal, state: Row) -> TableRow:
    """Returns the table's registry row if it is what the transaction saw and permits the commit."""
    row = None if state["table_uuid"] is None else to_table_row(state)
    _check_writable(proposal, state)
    registry_check.check_row(proposal, row)
    assert row is not None, "a table that was dropped is refused"
    return row


def _check_writable(proposal: TableProposal, state: Row) -> None:
    """Raises if a table that is written is not managed or not live; a table that is only read may be in any state."""
    name = proposal.table.full_name
    if state["table_uuid"] is None or not (proposal.commits or proposal.changes_registry):
        return
    if proposal.commits and state["mode"] == "follower":
        raise NotWritableError(
            f"table {name} is a follower: its `_delta_log` is written by others; `dl promote {name}` makes it ours"
        )
    if proposal.commits and state["mode"] == "detached":
        raise NotWritableError(
            f"table {name} was detached: its `_delta_log` is the authority again; write it with any Delta writer, or "
            f"`dl promote {name}` to bring it back"
        )
    if state["state"] not in proposal.allowed_states:
        hint = _STATE_HINTS.get(state["state"], "")
        raise NotWritableError(f"table {name} is {state['state']} and takes no commits{hint}")


_STATE_HINTS = {
    "frozen": ": another writer put a commit into its `_delta_log`; see `dl mirror status`, then `dl mirror resolve`",
    "detaching": ": it is on its way out of this catalog; `dl mirror once` finishes that",
}
