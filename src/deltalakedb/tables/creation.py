"""CreationOfTable: how a DeltaTable comes to be, and how finished files get into one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from deltalakedb._positional import ORDER, commit_arguments
from deltalakedb.addresses import PathAddress, SqlAddress, resolve
from deltalakedb.definitions.properties import to_properties
from deltalakedb.definitions.table import to_schema
from deltalakedb.exceptions import TableExistsError
from deltalakedb.operations.creation import NewTable, check_creation_mode, create, replace_table
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
    operation: str = "CREATE TABLE",
) -> None:
    """Begin a table at an address, or do to the one that is there what `mode` says."""
    check_creation_mode(mode)
    address = resolve(table_uri, storage_options, writes=True)
    if isinstance(address, SqlAddress):
        with address.catalog:
            _make_in_catalog(address, new, mode, storage_options, commit_properties, operation)
        return
    _make_at_path(address, new, mode, storage_options, commit_properties, hooks, operation)


def _make_in_catalog(
    address: SqlAddress,
    new: NewTable,
    mode: CreationMode,
    storage_options: Mapping[str, str] | None,
    commit_properties: CommitProperties | None,
    operation: str,
) -> None:
    name = str(address.name)
    with address.catalog.begin(tables=[name]) as tx:
        if name not in tx.tables():
            verb = partial(create, new=new, mode=mode, operation=operation)
            tx.begin_table(name, new, verb, commit_properties, address.location, storage_options)
        elif mode == "overwrite":
            tx.use_options(name, storage_options)
            tx.run(name, partial(replace_table, new=new), commit_properties)
        elif mode == "error":
            raise TableExistsError(f"the table {name} exists already; mode overwrite replaces it, ignore leaves it")


def _make_at_path(
    address: PathAddress,
    new: NewTable,
    mode: CreationMode,
    storage_options: Mapping[str, str] | None,
    commit_properties: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
    operation: str,
) -> None:
    backing = FileBacking(address.location, storage_options)
    if not backing.exists():
        verb = partial(create, new=new, mode=mode, operation=operation)
        backing.create(new.first(address.location, None), verb, commit_properties, hooks)
    elif mode == "overwrite":
        properties, after = commit_properties or CommitProperties(), hooks or PostCommitHookProperties()
        backing.run(partial(replace_table, new=new), properties, after)
    elif mode == "error":
        raise TableExistsError(
            f"there is a table at {address.location} already; mode overwrite replaces it, ignore leaves it"
        )
