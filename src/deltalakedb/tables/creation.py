"""CreationOfTable: creates tables, and commits finished files to a DeltaTable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

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
from deltalakedb.runtime.positional import ORDER, commit_arguments
from deltalakedb.store import registry
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.tables.upkeep import UpkeepOfTable
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties, to_add, to_remove

if TYPE_CHECKING:
    from deltalakedb.transaction import AddAction, RemoveAction


class CreationOfTable(UpkeepOfTable):
    """Methods that create tables, and commit existing files."""

    @classmethod
    def create(
        cls,
        table_uri: str | os.PathLike[str],
        schema: Any,
        mode: CreationMode = "error",
        partition_by: list[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: dict[str, str] | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        raise_if_key_not_exists: bool = True,
    ) -> Self:
        """Create an empty table and open it. `overwrite` replaces an existing one.

        `schema` is a Schema, an Arrow schema, the protocol's JSON or text such as "id long, day date". A
        `configuration` key that Delta does not know is an error, unless `raise_if_key_not_exists` is False.
        """
        commit_properties, post_commithook_properties = commit_arguments(
            "create", args, commit_properties, post_commithook_properties, order=(*ORDER, "raise_if_key_not_exists")
        )
        if len(args) > len(ORDER):
            raise_if_key_not_exists = args[len(ORDER)]
        if not isinstance(table_uri, os.PathLike):
            check_text(table_uri, required=True)
        check_text(mode, required=True)
        check_texts([partition_by] if isinstance(partition_by, str) else partition_by)
        for text in (name, description):
            check_text(text)
        check_settings(configuration, nullable=True)
        check_settings(storage_options)
        check_flag(raise_if_key_not_exists)
        check_commit_arguments(commit_properties, post_commithook_properties)
        new = NewTable(
            to_schema(schema),
            [partition_by] if isinstance(partition_by, str) else partition_by or (),
            to_properties(configuration, table=os.fspath(table_uri), refuses_unknown=raise_if_key_not_exists),
            name,
            description,
        )
        make_table(table_uri, new, mode, storage_options, commit_properties, post_commithook_properties)
        return cls(table_uri, storage_options=storage_options)  # type: ignore[call-arg]  # `cls` is DeltaTable

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: Any,
        partition_by: list[str] | str | None = None,
        partition_filters: Any = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> None:
        """Commit existing files, and the removal of others, as one version.

        With `mode="append"` the actions are committed as they are. `mode="overwrite"` accepts no RemoveAction: it
        removes the files of the partitions that `partition_filters` select, or all files. This object stays at its
        version, as in `deltalake`; call `update_incremental` to move it.
        """
        from deltalakedb.operations.file_actions import commit_files

        commit_properties, post_commithook_properties = commit_arguments(
            "create_write_transaction", args, commit_properties, post_commithook_properties
        )
        check_sequence(actions)
        check_text(mode, required=True)
        check_texts([partition_by] if isinstance(partition_by, str) else partition_by)
        if isinstance(schema, str):
            raise ValueError("Expected an object with dunder __arrow_c_schema__")
        adds = [table_add for action in actions if (table_add := to_add(action)) is not None]
        removes = [removal for action in actions if (removal := to_remove(action)) is not None]
        verb = partial(
            commit_files,
            adds=adds,
            removes=removes,
            mode=mode.lower(),  # type: ignore[arg-type]  # checked by the verb
            schema=to_schema(schema),
            partition_by=[partition_by] if isinstance(partition_by, str) else partition_by or (),
            partition_filters=partition_filters,
        )
        self._run(verb, commit_properties, post_commithook_properties, moves=False)


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
