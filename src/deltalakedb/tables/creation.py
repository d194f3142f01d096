"""Creates tables at an address, or replaces them; commits finished files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.addresses import PathAddress, SqlAddress, resolve
from deltalakedb.exceptions import DeltaError, TableExistsError
from deltalakedb.log.checks.properties import to_properties
from deltalakedb.operations.creation import CreationMode, NewTable, check_creation_mode, create, replace_table
from deltalakedb.operations.definition import to_schema
from deltalakedb.operations.folder import default_location
from deltalakedb.operations.target import Verb
from deltalakedb.runtime.arguments import (
    check_commit_arguments,
    check_flag,
    check_sequence,
    check_settings,
    check_text,
    check_texts,
)
from deltalakedb.store import registry
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties, to_add, to_remove

if TYPE_CHECKING:
    from deltalakedb.transaction import AddAction, RemoveAction


def create_table(
    table_uri: str | os.PathLike[str],
    schema: Any,
    mode: CreationMode,
    partition_by: list[str] | str | None,
    name: str | None,
    description: str | None,
    configuration: Mapping[str, str | None] | None,
    storage_options: dict[str, str] | None,
    commit_properties: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
    *,
    refuses_unknown: bool,
) -> None:
    """Check the arguments of `DeltaTable.create`, and create the table."""
    if not isinstance(table_uri, os.PathLike):
        check_text(table_uri, required=True)
    check_text(mode, required=True)
    columns = [partition_by] if isinstance(partition_by, str) else partition_by
    check_texts(columns)
    for text in (name, description):
        check_text(text)
    check_settings(configuration, nullable=True)
    check_settings(storage_options)
    check_flag(refuses_unknown)
    check_commit_arguments(commit_properties, hooks)
    properties = to_properties(configuration, table=os.fspath(table_uri), refuses_unknown=refuses_unknown)
    new = NewTable(to_schema(schema), columns or (), properties, name, description)
    make_table(table_uri, new, mode, storage_options, commit_properties, hooks)


def commit_of_files(
    actions: Sequence[AddAction | RemoveAction],
    mode: str,
    schema: Any,
    partition_by: list[str] | str | None,
    partition_filters: Any,
) -> Verb:
    """Check the arguments of `DeltaTable.create_write_transaction`, and return the verb that commits the files."""
    from deltalakedb.operations.file_actions import commit_files

    check_sequence(actions)
    check_text(mode, required=True)
    columns = [partition_by] if isinstance(partition_by, str) else partition_by
    check_texts(columns)
    if isinstance(schema, str):
        raise ValueError("Expected an object with dunder __arrow_c_schema__")
    adds = [table_add for action in actions if (table_add := to_add(action)) is not None]
    removes = [removal for action in actions if (removal := to_remove(action)) is not None]
    return partial(
        commit_files,
        adds=adds,
        removes=removes,
        mode=mode.lower(),  # type: ignore[arg-type]  # checked by the verb
        schema=to_schema(schema),
        partition_by=columns or (),
        partition_filters=partition_filters,
    )


def make_table(
    table_uri: str | os.PathLike[str],
    new: NewTable,
    mode: CreationMode,
    storage_options: Mapping[str, str] | None,
    commit_properties: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
) -> None:
    """Create a table at an address, or treat an existing one as `mode` says."""
    mode = check_creation_mode(mode)
    address = resolve(table_uri, storage_options, writes=True)
    try:
        make_table_at(address, new, mode, storage_options, commit_properties, hooks)
    finally:
        if isinstance(address, SqlAddress):
            address.catalog.close()


def make_table_at(
    address: SqlAddress | PathAddress,
    new: NewTable,
    mode: CreationMode,
    storage_options: Mapping[str, str] | None,
    commit_properties: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
    *,
    verb: Verb | None = None,
) -> None:
    """Do the same at an open address; `verb` makes the first commit if it is not a plain creation."""
    creates = verb or partial(create, new=new, mode=mode)
    replaces = partial(replace_table, new=new)
    properties = commit_properties or CommitProperties()
    exists = is_there(address, storage_options, refuses=mode == "error")
    if exists and mode == "append":
        raise DeltaError("SaveMode `append` is not allowed for create operation: use error, ignore or overwrite")
    if exists and mode != "overwrite":
        return
    if isinstance(address, PathAddress):
        backing = FileBacking(address.location, storage_options)
        if exists:
            backing.run(replaces, properties, hooks or PostCommitHookProperties())
        else:
            backing.create(new.first(address.location, None), creates, properties, hooks)
        return
    name, location = str(address.name), address.location
    if (verb is not None or new.adds) and location is None:
        # The files exist already, and belong to their user.
        location = default_location(address.catalog.config.warehouse, address.name)
    with address.catalog.begin(tables=[name]) as tx:
        if exists:
            tx.use_options(name, storage_options)
            tx.run(name, replaces, properties)
        else:
            tx.begin_table(name, new, creates, properties, location, storage_options)


def is_there(
    address: SqlAddress | PathAddress, storage_options: Mapping[str, str] | None, *, refuses: bool = False
) -> bool:
    """Return whether there is a table at an address; with `refuses`, raise TableExistsError if there is one."""
    if isinstance(address, PathAddress):
        exists, place = FileBacking(address.location, storage_options).exists(), address.location
    else:
        with address.catalog.store.read(single=True) as conn:
            exists = registry.resolve_table(conn, address.name.namespace, address.name.name) is not None
        place = str(address.name)
    if exists and refuses:
        raise TableExistsError(
            f"A Delta Lake table already exists at that location: {place}. mode='error' refuses it, overwrite replaces "
            "it, ignore leaves it"
        )
    return exists
