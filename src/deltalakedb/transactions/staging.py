"""Adds commits that another engine made, such as Spark through the bridge, to a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from deltalakedb.exceptions import TableExistsError, TableNotFoundError, VersionTakenError, redact

if TYPE_CHECKING:
    from deltalakedb.log.protocol.actions import AddFile
    from deltalakedb.log.protocol.proposal import ProposedCommit
    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.store.names import TableName
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.drafts import Drafts


def stage(
    drafts: Drafts,
    files: WrittenFiles,
    commit: ProposedCommit,
    *,
    txn_id: str,
    location: str,
    version: int,
    name: TableName | None,
    new: Callable[[Drafts], TableDraft] | None,
    written: Sequence[AddFile],
) -> None:
    """Add a finished commit as `version` of the table at `location`, as the transaction sees it."""
    from deltalakedb.storage.location import open_storage

    draft = drafts.find_at(location)
    is_new = draft is None
    if draft is None:
        draft = _new_draft(drafts, name, location, new)
    drafts.make_writable(draft)
    expected = (-1 if draft.base is None else draft.base.version) + len(draft.commits) + 1
    if version != expected:
        raise VersionTakenError(
            f"table {draft.row.full_name}: transaction {txn_id} is at version {expected - 1} of it, so version "
            f"{version} cannot come next",
            table=draft.row.full_name,
            version=version,
        )
    if is_new:
        drafts.add(draft)
    draft.commits.append(commit)
    if written:
        files.for_table(draft.row.table_uuid).remember(open_storage(location, draft.options), written)


def _new_draft(
    drafts: Drafts, name: TableName | None, location: str, new: Callable[[Drafts], TableDraft] | None
) -> TableDraft:
    if name is None:
        raise TableNotFoundError(f"there is no table at {redact(location)}, and no name for a new one")
    other = drafts.find(name)
    if other is not None:
        raise TableExistsError(
            f"the table {other.row.full_name} exists already, at {redact(other.row.location)}; drop or rename it, "
            "or choose another name"
        )
    draft = drafts.new_at(name, location) if new is None else new(drafts)
    drafts.reserved.append(draft.row.table_uuid)
    return draft
