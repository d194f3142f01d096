"""Statements of a transaction on whole tables: create, drop, undrop, rename, set properties, add columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from deltalakedb.exceptions import ConfigError, DeltaError, TableExistsError
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import DEFINITION, ProposedCommit
from deltalakedb.mirror.detach import fence_off
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.definition import (
    PropertyValue,
    SchemaLike,
    to_schema,
    to_texts,
    with_columns,
    with_properties,
)
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry_check import check_can_drop
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts

_DAY_MS = 86_400_000


def create_table(
    drafts: Drafts,
    name: str,
    schema: SchemaLike,
    partition_by: Sequence[str] | str,
    properties: Mapping[str, PropertyValue] | None,
    description: str | None,
    mode: Literal["error", "ignore"],
    location: str | os.PathLike[str] | None,
    storage_options: Mapping[str, str] | None,
) -> None:
    """Create an empty table. With mode `ignore` an existing one stays, and the schema is not looked at."""
    if mode not in ("error", "ignore"):
        raise ConfigError(f"the mode of a creation is error or ignore, not {mode!r}")
    target = parse_table_name(name)
    existing = drafts.find(target)
    if existing is not None:
        if mode == "ignore":
            return
        raise TableExistsError(
            f"the table {existing.row.full_name} exists already; drop or rename it, or choose another name"
        )
    definition = NewTable(to_schema(schema), partition_by, properties, description=description)
    draft, first = drafts.new(target, definition, location, storage_options)
    metadata = first[1]
    parameters = {
        "isManaged": "false",
        "description": definition.description,
        "partitionBy": to_json(list(metadata.partition_columns)),
        "properties": to_json(dict(metadata.configuration)),
    }
    drafts.add(draft)
    draft.commits.append(ProposedCommit(first, "CREATE TABLE", parameters, fenced=True))


def drop_table(drafts: Drafts, name: str, purge: bool) -> None:
    """Remove a table from the catalog; its files are kept for a while, deleted, or left to their user."""
    draft = drafts.get(name)
    row = draft.row
    if draft.undropped:
        raise DeltaError(f"{row.full_name} is undropped by this transaction; leave that out instead")
    if row.mode == "managed":
        check_can_drop(row.full_name, draft.snapshot().metadata)
    if purge and row.is_delta and row.mode != "managed":
        raise DeltaError(
            f"{row.full_name} is a {row.mode} table: its files belong to others and are not deleted; drop it "
            "without purge"
        )
    if row.files_owner == "catalog" and row.mode == "managed" and row.state != "detaching":
        draft.kept_ms = round(drafts.catalog.config.catalog_drop_retention * _DAY_MS)
        purge = purge or not draft.kept_ms
    if not draft.is_new and row.mode == "managed":
        _propose_drop(draft, purge=purge)
    draft.dropped, draft.purge = True, purge
    drafts.hide(draft)


def undrop_table(drafts: Drafts, name: str, as_: str | None) -> None:
    """Bring a dropped table back, under its old name or a new one, with its files and its history."""
    old = parse_table_name(name)
    new = None if as_ is None else parse_table_name(as_)
    existing = drafts.find(new or old)
    if existing is not None:
        raise TableExistsError(
            f"the table {existing.row.full_name} exists; bring {old} back under another name (as_=, --as)"
        )
    draft = drafts.undrop(old, new)
    if draft.row.state == "live":
        parameters = {"name": draft.row.full_name, "was": draft.pinned.full_name}
        draft.commits.append(ProposedCommit((), "UNDROP TABLE", parameters))


def rename_table(drafts: Drafts, name: str, new_name: str) -> None:
    """Rename a table; its location, versions and history stay the same."""
    draft, new = drafts.get(name), parse_table_name(new_name)
    other = drafts.find(new)
    if other is not None and other is not draft:
        raise TableExistsError(f"the table {other.row.full_name} exists already; drop or rename it first")
    if other is None:
        drafts.require_create(new)
    old = draft.row.full_name
    renamed = replace(draft.row, namespace=new.namespace, name=new.name)
    if draft.row.mode == "managed":
        draft.check_writable()
        # A catalog that is rebuilt from the files reads the name there.
        parameters = {"from": old, "to": renamed.full_name}
        draft.commits.append(ProposedCommit((), "RENAME TABLE", parameters))
    drafts.rename(draft, renamed)


def set_properties(drafts: Drafts, table: str, properties: Mapping[str, PropertyValue]) -> None:
    """Set table properties; if one needs a table feature, the table's protocol is upgraded too."""
    draft = drafts.get_writable(table)
    snapshot = draft.snapshot()
    actions = with_properties(
        snapshot.protocol,
        snapshot.metadata,
        properties,
        table=draft.row.full_name,
        has_files=snapshot.totals().num_files > 0,
        history=snapshot.metadata_history,
    )
    if not actions:
        draft.note_read(DEFINITION)
    else:
        parameters = {"properties": to_json(to_texts(properties))}
        draft.commits.append(ProposedCommit(tuple(actions), "SET TBLPROPERTIES", parameters))


def add_columns(drafts: Drafts, table: str, columns: SchemaLike) -> None:
    """Add nullable columns at the end of the schema: a schema, fields, or text such as "note string, at date"."""
    draft = drafts.get_writable(table)
    snapshot = draft.snapshot()
    actions = with_columns(
        snapshot.protocol,
        snapshot.metadata,
        columns,
        table=draft.row.full_name,
        history=snapshot.metadata_history,
    )
    schema_json = next(action.schema_string for action in actions if isinstance(action, Metadata))
    draft.commits.append(ProposedCommit(tuple(actions), "ADD COLUMNS", {"schema": schema_json}))


def _propose_drop(draft: TableDraft, *, purge: bool) -> None:
    """Propose the table's last commit: it records the drop, or removes our fence if the files are a user's.

    A purged table gets the record too: a catalog rebuilt while files are left must not take it for a live table.
    """
    parameters = {"name": draft.row.full_name}
    if draft.kept_ms or purge:
        if draft.row.state == "live":  # a frozen table accepts no commit, but can be dropped
            draft.commits.append(ProposedCommit((), "DROP TABLE", parameters))
    elif draft.row.state != "detaching":
        draft.check_writable()
        last = fence_off(draft.snapshot().protocol)
        draft.commits.append(replace(last, operation="DROP TABLE", operation_parameters=parameters))
