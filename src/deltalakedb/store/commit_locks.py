"""Takes a commit's locks (namespaces, heads in the order of table ids, the client token) and reads under them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from deltalakedb.exceptions import NameChangedError, NotWritableError, TableNotFoundError
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, DomainMetadata, Protocol, RemoveFile
from deltalakedb.log.protocol.codec import key_hash, to_sql_text
from deltalakedb.log.protocol.completion import ROW_TRACKING
from deltalakedb.log.protocol.features import writer_features
from deltalakedb.log.protocol.rows import domain_metadata_from_row
from deltalakedb.store import registry_check
from deltalakedb.store.commit_sizes import FEW_FILES
from deltalakedb.store.connection import LIVE, Ask, Connection, Row
from deltalakedb.store.loader import Known
from deltalakedb.store.proposals import JoinedTransaction, Proposal, TableProposal
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import Head, TableRow, to_table_row
from deltalakedb.store.tokens import request_row

_APP = "app "
"""Begins the names of the answers about applications."""


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
    joined_ms: Mapping[str, int] = field(default_factory=dict)
    """The T of each joined transaction whose token was not used before, by its id."""


def lock_tables(conn: Connection, proposal: Proposal, catalog_id: str | None) -> Locks:
    """Locks and reads in one round trip; each statement after the locks sees everything committed before them."""
    existing = sorted((table for table in proposal.tables if not table.is_new), key=lambda one: one.table.table_id)
    asks: list[Ask] = []
    name_asks: list[Ask] = []
    if proposal.depends_on_names:
        asks += registry_check.lock_asks(proposal)
        name_asks = registry_check.name_asks(proposal)
    num_locks = len(asks)
    asks += [("lock_head", {"table_id": table.table.table_id}) for table in existing]
    own = JoinedTransaction(proposal.txn_id, proposal.client_token, proposal.actor, proposal.caller)
    for one in (own, *proposal.joined):
        token = {"txn_id": one.txn_id, "client_token": one.client_token}
        asks.append(("take_token", token | {"actor": one.actor, "message": proposal.message}))
    if catalog_id is None:
        asks.append(("select_catalog", {}))
    asks += name_asks
    table_asks = [_asks(table) for table in existing]
    for of_table in table_asks:
        asks += of_table.values()
    # Last, because their answers are not needed.
    asks += [("insert_request", request_row(one.txn_id, one.caller)) for one in (own, *proposal.joined) if one.caller]
    answers = iter(conn.gather(asks)[num_locks:])
    heads = [next(answers) for _ in existing]
    for table, rows in zip(existing, heads, strict=True):
        if not rows:
            raise TableNotFoundError(f"the table {table.table.full_name} is not in the database any more")
    token_rows = next(answers)
    joined_rows = {one.txn_id: next(answers) for one in proposal.joined}
    this_catalog_id = str(next(answers)[0]["catalog_id"]) if catalog_id is None else catalog_id
    if not token_rows:
        return Locks(this_catalog_id, None)
    if name_asks:
        registry_check.check_names(proposal, [next(answers) for _ in name_asks])
    tables = {
        table.table.table_id: _locked(table, Head(**rows[0]), {name: next(answers) for name in of_table})
        for table, rows, of_table in zip(existing, heads, table_asks, strict=True)
    }
    joined_ms = {txn_id: int(rows[0]["committed_at_ms"]) for txn_id, rows in joined_rows.items() if rows}
    return Locks(this_catalog_id, int(token_rows[0]["committed_at_ms"]), tables, joined_ms)


def _asks(proposal: TableProposal) -> dict[str, Ask]:
    """The queries of one table; `_locked` takes the answers by the same names."""
    ids = {"table_id": proposal.table.table_id}
    asks: dict[str, Ask] = {"state": ("select_commit_state", ids | {"lease": f"intent:{proposal.table.table_id}"})}
    if proposal.table.is_delta:
        asks["bounds"] = ("select_bounds_columns", ids)
    if proposal.undrop:
        asks |= registry_check.undrop_asks(proposal.table.table_id)
    actions = [action for commit in proposal.commits for action in commit.actions]
    kinds = set(map(type, actions))
    keys = _file_keys(actions)
    if keys:
        query = _live_keys_query(len(keys))
        asks["live_keys"] = (query, ids | {f"key_{number}": hashed for number, hashed in enumerate(keys)})
    # Row ids are assigned by the protocol in force, or by one that a commit brings.
    protocols = [a for a in actions if isinstance(a, Protocol)] if Protocol in kinds else []
    if any("rowTracking" in writer_features(protocol) for protocol in (proposal.protocol, *protocols) if protocol):
        asks["domains"] = ("select_domain_metadata", ids | {"version": LIVE})
    if AppTransaction in kinds:
        for app_id in sorted({a.app_id for a in actions if isinstance(a, AppTransaction)}):
            query_values = {"version": LIVE, "app_id": to_sql_text(app_id)}
            asks[_APP + app_id] = ("select_app_transaction", ids | query_values)
    return asks


def _file_keys(actions: Iterable[Action]) -> list[bytes]:
    """The keys of the files that are added or removed, if they are few; many are found when they are closed."""
    files = list(islice((a for a in actions if isinstance(a, AddFile | RemoveFile)), FEW_FILES + 1))
    return sorted({key_hash(file.path, file.dv_id) for file in files}) if len(files) <= FEW_FILES else []


@lru_cache(maxsize=FEW_FILES)
def _live_keys_query(count: int) -> str:
    keys = ", ".join(f":key_{number}" for number in range(count))
    return named_queries()["select_live_keys"].replace(":key_hash", keys)


def _locked(proposal: TableProposal, head: Head, answers: Mapping[str, list[Row]]) -> LockedTable:
    (state,) = answers["state"]
    if proposal.undrop:
        row = registry_check.check_undrop(answers["last_row"], answers["location"], proposal)
    else:
        row = _check_registered(proposal, state)
    live_keys = answers.get("live_keys")
    domains = map(domain_metadata_from_row, answers.get("domains", ()))
    return LockedTable(
        row=row,
        head=head,
        known=Known(
            state["total_added"],
            state["total_closed"],
            answers.get("bounds", []),
            None if live_keys is None else frozenset(bytes(key["key_hash"]) for key in live_keys),
        ),
        fenced=bool(state["fenced"]),
        intent_holder=state["intent_holder"],
        intent_until_ms=state["intent_until_ms"],
        domains={domain.domain: domain for domain in domains if domain.domain == ROW_TRACKING},
        app_versions={
            name.removeprefix(_APP): rows[0]["app_version"]
            for name, rows in answers.items()
            if name.startswith(_APP) and rows
        },
    )


def _check_registered(proposal: TableProposal, state: Row) -> TableRow:
    """Returns the table's registry row; raises if the commit depends on a part of it that has changed."""
    pinned = proposal.table
    if state["table_uuid"] is None:
        raise NameChangedError(
            f"table {pinned.full_name} was dropped since this transaction opened it; nothing was committed",
            table=pinned.full_name,
        )
    if proposal.commits or proposal.changes_registry:  # a table that is only read may be in any state
        _check_writable(proposal, state)
    row = to_table_row(state)
    names_matter = proposal.is_named or proposal.drop or not proposal.changes.keys().isdisjoint({"namespace", "name"})
    if names_matter and row.key != pinned.key:
        raise NameChangedError(
            f"table {pinned.full_name} was renamed to {row.full_name} since this transaction opened it; nothing was "
            "committed: run it again, with the name it has now",
            table=pinned.full_name,
        )
    expected = [*proposal.changes, *(("mode", "files_owner") if proposal.drop else ())]
    for column in expected:
        if column not in ("namespace", "name") and getattr(row, column) != getattr(pinned, column):
            raise NotWritableError(
                f"table {row.full_name}: its {column} is {getattr(row, column)!r} now, and was "
                f"{getattr(pinned, column)!r} when this transaction opened it; nothing was committed: run it again"
            )
    return row


def _check_writable(proposal: TableProposal, state: Row) -> None:
    """Raises if a table that is written is not managed or not live."""
    name = proposal.table.full_name
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
