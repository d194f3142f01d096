"""Reads the commits that won the race against a proposal, as far as the conflict check needs them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from deltalakedb.log.checks.conflicts import Needs, Winner
from deltalakedb.log.protocol import rows as row_forms
from deltalakedb.log.protocol.actions import Action, CommitInfo, RemoveFile
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.store.connection import Connection, Row

_ALWAYS: tuple[tuple[str, Callable[[Row], Action]], ...] = (
    ("select_protocol_actions", row_forms.protocol_from_row),
    ("select_metadata_actions", row_forms.metadata_from_row),
    ("select_txn_actions", row_forms.app_transaction_from_row),
    ("select_domain_actions", row_forms.domain_metadata_from_row),
)


def _describe_removes(conn: Connection, within: Mapping[str, int], actions: Mapping[int, list[Action]]) -> None:
    """Fills in partition values and statistics of removes from the adds that they closed."""
    closed_adds = {
        (row["removed_version"], from_sql_text(row["path"]), from_sql_text(row["dv_id"])): row_forms.add_from_row(row)
        for row in conn.all("select_closed_adds", **within)
    }
    for version, version_actions in actions.items():
        for place, action in enumerate(version_actions):
            add = closed_adds.get((version, *action.key)) if isinstance(action, RemoveFile) else None
            if isinstance(action, RemoveFile) and add is not None:
                version_actions[place] = replace(action, partition_values=add.partition_values, stats=add.stats)


def read_winners(conn: Connection, table_id: int, first: int, last: int, needs: Needs) -> Iterator[Winner]:
    """Yields the versions `first` to `last`, in order."""
    queries = list(_ALWAYS)
    if needs.adds:
        queries.append(("select_add_actions", row_forms.add_from_row))
    if needs.removes:
        queries.append(("select_remove_actions", row_forms.remove_from_row))
    within = {"table_id": table_id, "first_version": first, "last_version": last}
    versions, *answers = conn.gather([("select_versions", within), *((query, within) for query, _ in queries)])
    actions: dict[int, list[Action]] = {row["version"]: [] for row in versions}
    for (_, build), rows in zip(queries, answers, strict=True):
        for row in rows:
            actions[row["version"]].append(build(row))
    if needs.removes and needs.values:
        _describe_removes(conn, within, actions)
    for row in versions:
        info = CommitInfo(row["commit_info"]) if row["commit_info"] is not None else None
        blind = info is not None and info.value.get("isBlindAppend") is True
        yield Winner(row["version"], tuple(actions[row["version"]]), is_blind_append=blind)
