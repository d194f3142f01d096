"""Conflict checks on the registry: compares names and listings with what the transaction saw."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from deltalakedb.exceptions import DropProtectedError, NameChangedError, TableNotFoundError
from deltalakedb.log.checks.table_checks import DROP_PROTECTION
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.store.connection import Ask, Row
from deltalakedb.store.names import name_key
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import TableRow, to_table_row

# -- locks, taken before those of the heads


def lock_asks(proposal: Proposal) -> list[Ask]:
    """Queries that lock the catalog's row if something is registered, then the affected namespaces, by key."""
    asks: list[Ask] = []
    if proposal.listed is not None or any(table.registered_as for table in proposal.tables):
        asks.append(("select_next_table_id", {}))
    if proposal.listed is not None:
        asks.append(("lock_all_namespaces", {}))
    elif keys := _namespace_keys(proposal):
        asks.append((_lock_query(len(keys)), {f"key_{number}": key for number, key in enumerate(keys)}))
    return asks


def _namespace_keys(proposal: Proposal) -> list[str]:
    """The namespaces in which names are added, removed or were found to be free."""
    keys = {namespace for namespace, _ in proposal.absent}
    for table in proposal.tables:
        if table.registered_as is not None:
            keys.add(name_key(table.registered_as.namespace))
        if table.drop or table.changes:
            keys.add(name_key(table.table.namespace))
    return sorted(keys)


@lru_cache(maxsize=64)
def _lock_query(count: int) -> str:
    keys = ", ".join(f":key_{number}" for number in range(count))
    return named_queries()["lock_namespaces"].replace(":namespace_key", keys)


# -- names that the transaction saw


def name_asks(proposal: Proposal) -> list[Ask]:
    """What is read under the locks; `check_names` takes the answers in this order."""
    asks: list[Ask] = [
        ("select_table", {"namespace_key": namespace, "name_key": name}) for namespace, name in sorted(proposal.absent)
    ]
    return [*asks, ("select_tables", {})] if proposal.listed is not None else asks


def check_names(proposal: Proposal, answers: Iterable[list[Row]]) -> None:
    """Raises if a name that was free is taken now, or the list of names has changed."""
    rows = iter(answers)
    for _ in sorted(proposal.absent):
        for row in next(rows):
            raise NameChangedError(
                f"the table {to_table_row(row).full_name} was created, renamed or undropped since this transaction "
                "looked for that name and found none; nothing was committed: run it again"
            )
    if proposal.listed is not None:
        names_now = {table.key: table.full_name for table in map(to_table_row, next(rows))}
        if names_now.keys() != proposal.listed:
            changed = sorted(names_now.get(key) or ".".join(key) for key in names_now.keys() ^ proposal.listed)
            raise NameChangedError(
                "this transaction listed the tables, and others were created, renamed or dropped since: "
                f"{', '.join(changed[:5])}; nothing was committed: run it again"
            )


def check_can_drop(name: str, metadata: Metadata) -> None:
    """Raises DropProtectedError if the table's properties forbid dropping it."""
    if (metadata.configuration.get(DROP_PROTECTION) or "").strip().lower() == "true":
        raise DropProtectedError(
            f"table {name} is protected from being dropped: its property {DROP_PROTECTION} is true. Set it to false "
            "first, if the table may go"
        )


# -- dropped tables


def undrop_asks(table_id: int) -> dict[str, Ask]:
    """What is read of a dropped table under its head's lock, for `check_undrop`."""
    return {
        "last_row": ("select_last_table_row", {"table_id": table_id}),
        "location": ("select_location_of_table", {"table_id": table_id}),
    }


def check_undrop(table_rows: list[Row], location_rows: list[Row], proposal: TableProposal) -> TableRow:
    """Returns the last row of a dropped table; raises TableNotFoundError if it can no longer be undropped."""
    name = proposal.table.full_name
    state: Mapping[str, object] = location_rows[0] if location_rows else {}
    if state.get("location_state") == "live":
        raise NameChangedError(f"table {name} was undropped by another transaction; nothing was committed")
    if state.get("location_state") != "dropped" or not table_rows:
        raise TableNotFoundError(f"table {name} cannot be undropped any more: its files are deleted, or about to be")
    return to_table_row(table_rows[0])
