"""CreationOfTable: how a DeltaTable comes to be, and how finished files get into one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from deltalakedb._positional import ORDER, commit_arguments
from deltalakedb.addresses import PathAddress, SqlAddress, resolve
from deltalakedb.arguments import check_commit_arguments, check_flag, check_settings, check_text, check_texts
from deltalakedb.definitions.folder import default_location
from deltalakedb.definitions.properties import to_properties
from deltalakedb.definitions.table import to_schema
from deltalakedb.exceptions import TableExistsError
from deltalakedb.operations.creation import NewTable, check_creation_mode, create, replace_table
from deltalakedb.operations.target import Verb
from deltalakedb.store import registry
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.tables.upkeep import UpkeepOfTable
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties, to_add, to_remove

if TYPE_CHECKING:
    from deltalakedb.transaction import AddAction, RemoveAction

CreationMode = Literal["error", "append", "overwrite", "ignore"]


class CreationOfTable(UpkeepOfTable):
    """New tables, and commits of files that are there already."""

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
        """Make a table without rows, and open it. `overwrite` puts it in the place of one that is there.

        `schema` is a Schema, an Arrow schema, the protocol's JSON or text such as "id long, day date". A key of
        `configuration` that Delta does not know is refused, unless `raise_if_key_not_exists` is False.
        """
        commit_properties, post_commithook_properties = commit_arguments(
            "create", args, commit_properties, post_commithook_properties, order=(*ORDER, "raise_if_key_not_exists")
        )
        if len(args) > len(ORDER):
            raise_if_key_not_exists = args[len(ORDER)]
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
        return cls(table_uri, storage_options=storage_options)  # type: ignore[call-arg]  # DeltaTable, at the end

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
        """Commit files that are there already, and the end of others, as one version.

        With `mode="append"` the actions are taken as they are. `mode="overwrite"` takes no RemoveAction: it ends the
        files of the partitions that `partition_filters` name, or all.
        """
        from deltalakedb.operations.file_actions import commit_files

        commit_properties, post_commithook_properties = commit_arguments(
            "create_write_transaction", args, commit_properties, post_commithook_properties
        )
        adds = [found for one in actions if (found := to_add(one)) is not None]
        removes = [ended for one in actions if (ended := to_remove(one)) is not None]
        verb = partial(
            commit_files,
            adds=adds,
            removes=removes,
            mode=mode,  # type: ignore[arg-type]  # looked at there
            schema=to_schema(schema),
            partition_by=[partition_by] if isinstance(partition_by, str) else partition_by or (),
            partition_filters=partition_filters,
        )
        self._run(verb, commit_properties, post_commithook_properties)


def make_table(
    table_uri: str | os.PathLike[str],
    new: NewTable,
    mode: CreationMode,
    storage_options: Mapping[str, str] | None,
    commit_properties: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
) -> None:
    """Begin a table at an address, or do to the one that is there what `mode` says."""
    check_creation_mode(mode)
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
    """The same at an address that is open; `verb` makes the first commit, when it is not a plain creation."""
    begins = verb or partial(create, new=new, mode=mode)
    replaces = partial(replace_table, new=new)
    properties = commit_properties or CommitProperties()
    exists = is_there(address, storage_options, refuses=mode == "error")
    if exists and mode != "overwrite":
        return
    if isinstance(address, PathAddress):
        backing = FileBacking(address.location, storage_options)
        if exists:
            backing.run(replaces, properties, hooks or PostCommitHookProperties())
        else:
            backing.create(new.first(address.location, None), begins, properties, hooks)
        return
    name, location = str(address.name), address.location
    if (verb is not None or new.adds) and location is None:
        # Its files are there already, and are their user's.
        location = default_location(address.catalog.config.warehouse, address.name)
    with address.catalog.begin(tables=[name]) as tx:
        if exists:
            tx.use_options(name, storage_options)
            tx.run(name, replaces, properties)
        else:
            tx.begin_table(name, new, begins, properties, location, storage_options)


def is_there(
    address: SqlAddress | PathAddress, storage_options: Mapping[str, str] | None, *, refuses: bool = False
) -> bool:
    """Whether there is a table at an address; TableExistsError when there must be none."""
    if isinstance(address, PathAddress):
        found, shown = FileBacking(address.location, storage_options).exists(), address.location
    else:
        with address.catalog.store.read(single=True) as conn:
            found = registry.resolve_table(conn, address.name.namespace, address.name.name) is not None
        shown = str(address.name)
    if found and refuses:
        raise TableExistsError(f"the table {shown} exists already; mode overwrite replaces it, ignore leaves it")
    return found
