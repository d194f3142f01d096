"""DeltaTable: `deltalake`'s class of the same name, on a log kept in SQL or in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

from deltalakedb.alter import TableAlterer
from deltalakedb.catalog.addresses import PathAddress, resolve
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import TableNotFoundError, UnknownLocationError
from deltalakedb.operations.creation import CreationMode
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.optimize import TableOptimizer
from deltalakedb.runtime.arguments import (
    ORDER,
    check_commit_arguments,
    check_flag,
    check_number,
    check_numbers,
    check_settings,
    check_text,
    commit_arguments,
    describe_kind,
)
from deltalakedb.runtime.lazy import lazy_names
from deltalakedb.store import registry
from deltalakedb.store.names import parse_table_name
from deltalakedb.tables import creation
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.tables.reader import TableReader
from deltalakedb.tables.sql_backing import SqlBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.merge import TableMerger
    from deltalakedb.transaction import AddAction, RemoveAction
    from deltalakedb.writer.properties import WriterProperties

_HOMES = {
    "deltalakedb.merge": "TableMerger",
    "deltalakedb.tables.answers": "DeltaTableConfig Metadata ProtocolVersions MAX_SUPPORTED_PYARROW_WRITER_VERSION "
    "MAX_SUPPORTED_READER_VERSION NOT_SUPPORTED_PYARROW_WRITER_VERSIONS NOT_SUPPORTED_READER_VERSION "
    "SUPPORTED_READER_FEATURES SUPPORTED_WRITER_FEATURES",
    "deltalakedb.tables.filters": "FilterConjunctionType FilterDNFType FilterLiteralType FilterType "
    "FilePruningPredicateType PartitionFilterType",
}
__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names.split()})

_REVERSED = ("post_commithook_properties", "commit_properties")


class DeltaTable(TableReader):
    """A table at one version; `update_incremental` moves it to the newest, `load_as_version` to any other.

    Changes are based on this object's version, checked against later commits, and move it to the new version.
    """

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        """Open a table: a path or URL, `deltasql://...?table=ns.name`, or a name if `DL_CATALOG` is set.

        `without_files`, `log_buffer_size` and `skip_stats` are accepted as in `deltalake`, but have no effect.
        """
        ignored = (
            ("without_files", without_files, "Table loading materializes active-file metadata."),
            ("log_buffer_size", log_buffer_size, "Log buffering is managed internally."),
            ("skip_stats", skip_stats, "Table loading retains file statistics."),
        )
        check_settings(storage_options)
        if version is not None and not isinstance(version, int):
            raise TypeError(
                f"{describe_kind(version)} cannot be interpreted as an integer; `load_as_version` takes times"
            )
        for option, value, what_happens in ignored:
            if value is not None and value is not False:
                text = f"The '{option}' parameter is deprecated and ignored. {what_happens}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
        address = resolve(table_uri, storage_options)
        if isinstance(address, PathAddress):
            self._open_files(address, version, storage_options)
            return
        try:
            self._backing, self._snapshot = SqlBacking.open(address.catalog, address.name, storage_options)
            if version is not None:
                self.load_as_version(version)
        except BaseException:
            address.catalog.close()
            raise

    def _open_files(self, address: PathAddress, version: int | None, storage_options: Mapping[str, str] | None) -> None:
        self._backing = FileBacking(address.location, storage_options)
        try:
            if version is None:
                self._snapshot = self._backing.newest()
            else:
                self.load_as_version(version)
        except TableNotFoundError:
            raise address.not_found() from None

    @staticmethod
    def is_deltatable(table_uri: str, storage_options: Mapping[str, str] | None = None) -> bool:
        """Return whether a table exists at an address that `DeltaTable` accepts. Nothing is registered."""
        check_settings(storage_options)
        try:
            address = resolve(table_uri, storage_options, registers=False)
        except UnknownLocationError:
            return False
        if isinstance(address, PathAddress):
            return FileBacking(address.location, storage_options).exists()
        with address.catalog as catalog, catalog.store.read(single=True) as conn:
            return registry.resolve_table(conn, address.name.namespace, address.name.name) is not None

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog,
        name: str,
        *,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Open a table of an open catalog."""
        table = cls.__new__(cls)
        table._backing, table._snapshot = SqlBacking.open(catalog, parse_table_name(name), storage_options)
        if version is not None:
            table.load_as_version(version)
        return table

    @classmethod
    def from_view(cls, catalog: Catalog, name: str, at_ms: int) -> DeltaTable:
        """Open the table that had this name at an instant, at its version of that instant."""
        table = cls.__new__(cls)
        table._backing, table._snapshot = SqlBacking.open_at(catalog, parse_table_name(name), at_ms)
        return table

    # -- creating tables, and committing finished files

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
        properties, hooks = commit_arguments(
            "create", args, commit_properties, post_commithook_properties, order=(*ORDER, "raise_if_key_not_exists")
        )
        if len(args) > len(ORDER):
            raise_if_key_not_exists = args[len(ORDER)]
        creation.create_table(
            table_uri, schema, mode, partition_by, name, description, configuration, storage_options,
            properties, hooks, refuses_unknown=raise_if_key_not_exists,
        )  # fmt: skip
        return cls(table_uri, storage_options=storage_options)

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
        properties, hooks = commit_arguments(
            "create_write_transaction", args, commit_properties, post_commithook_properties
        )
        verb = creation.commit_of_files(actions, mode, schema, partition_by, partition_filters)
        self._run(verb, properties, hooks, moves=False)

    # -- changing rows

    def delete(
        self,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Delete the rows for which `predicate` (SQL) is true, or all rows without one; return metrics.

        A row for which the predicate is null stays. `num_deleted_rows` is missing if a whole file is removed whose
        number of rows is not recorded.
        """
        from deltalakedb.operations.delete import delete

        check_text(predicate)
        given = commit_arguments("delete", args, commit_properties, post_commithook_properties, order=_REVERSED)
        verb = partial(delete, predicate=predicate, writer_properties=writer_properties)
        return self._run(verb, *given, replaces_all=predicate is None)

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        error_on_type_mismatch: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Set columns in the rows for which `predicate` (SQL) is true; without one, in all rows.

        `updates` maps columns to SQL expressions of the row, `new_values` to Python values. A value that its column
        cannot hold is an error, or null if `error_on_type_mismatch` is False.
        """
        from deltalakedb.operations.update import to_updates, update

        check_text(predicate)
        given = commit_arguments("update", args, commit_properties, post_commithook_properties, order=_REVERSED)
        verb = partial(
            update,
            updates=to_updates(updates, new_values),
            predicate=predicate,
            writer_properties=writer_properties,
            error_on_type_mismatch=error_on_type_mismatch,
        )
        return self._run(verb, *given)

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        writer_properties: WriterProperties | None = None,
        streamed_exec: bool = True,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> TableMerger:
        """Merge the rows of `source` into this table; add clauses to the returned TableMerger, then call `execute`.

        `predicate` (SQL) is the join condition; it refers to the two tables by their aliases, or as `source` and
        `target`. `merge_schema` adds columns of the source that clauses set. A value that its column cannot hold is an
        error, or null if `error_on_type_mismatch` is False. The join uses `max_spill_size` bytes of memory before it
        spills to disk. The source is always streamed; with `streamed_exec=False` the commit records its keys.
        """
        from deltalakedb.merge import prepare_merge
        from deltalakedb.operations.merge_request import MergeRequest

        for alias in (source_alias, target_alias):
            check_text(alias)
        for flag in (merge_schema, error_on_type_mismatch, streamed_exec):
            check_flag(flag)
        given = commit_arguments("merge", args, commit_properties, post_commithook_properties, order=_REVERSED)
        check_commit_arguments(*given)
        request = MergeRequest(
            source, predicate, (), source_alias, target_alias, merge_schema, error_on_type_mismatch, writer_properties,
            max_spill_size, max_temp_directory_size, streamed=streamed_exec,
        )  # fmt: skip
        return prepare_merge(request, lambda verb: self._run(verb, *given))

    # -- the definition, and upkeep

    @property
    def alter(self) -> TableAlterer:
        """Changes the table's definition."""
        return TableAlterer(self)

    @property
    def optimize(self) -> TableOptimizer:
        """Compacts or sorts the table's files."""
        return TableOptimizer(self)

    def restore(
        self,
        target: int | datetime | str,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Make a new version equal to an older one, given by its number or a time (a datetime, or ISO 8601).

        Files of that version that no longer exist are an error, unless `ignore_missing_files`: `repair` removes them
        then. The protocol stays as it is, unless `protocol_downgrade_allowed`.
        """
        from deltalakedb.tables.upkeep import restore

        check_flag(ignore_missing_files)
        check_flag(protocol_downgrade_allowed)
        given = (commit_properties, post_commithook_properties)
        return restore(self, target, ignore_missing_files, protocol_downgrade_allowed, given)

    def repair(
        self,
        dry_run: bool = False,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Remove files from the table that no longer exist in storage; their rows are lost."""
        from deltalakedb.operations.repair import repair

        check_flag(dry_run)
        given = commit_arguments("repair", args, commit_properties, post_commithook_properties, order=_REVERSED)
        return self._run(partial(repair, dry_run=dry_run), *given)

    def vacuum(
        self,
        retention_hours: int | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Delete files that no version within the retention needs, and return their paths. With `dry_run`, the
        default, only return the paths.

        The retention is `delta.deletedFileRetentionDuration`, else 168 hours. By default only files that the log
        removed are deleted; with `full` also files that no commit names. Files of `keep_versions` are kept.
        """
        from deltalakedb.tables.upkeep import vacuum, vacuum_arguments

        if args:
            arguments = vacuum_arguments(args, (post_commithook_properties, commit_properties, full, keep_versions))
            return self.vacuum(retention_hours, dry_run, enforce_retention_duration, **arguments)
        if isinstance(retention_hours, int) and retention_hours < 0:
            raise ValueError("The retention periods should be positive.")
        check_number(retention_hours)
        for flag in (dry_run, enforce_retention_duration, full):
            check_flag(flag)
        check_numbers(keep_versions)
        check_commit_arguments(commit_properties, post_commithook_properties)
        return vacuum(
            self, retention_hours, dry_run=dry_run, enforced=enforce_retention_duration, full=full,
            keep=keep_versions or (), given=(commit_properties, post_commithook_properties),
        )  # fmt: skip

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version, so that readers of the files start there."""
        from deltalakedb.tables import upkeep

        self._refuse_in_transaction("create_checkpoint")
        upkeep.create_checkpoint(self._backing, self._snapshot)

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Combine the commits of a range of versions into one log file."""
        from deltalakedb.tables import upkeep

        for version in (starting_version, ending_version):
            check_number(version)
        self._refuse_in_transaction("compact_logs")
        upkeep.compact_logs(self._backing, starting_version, ending_version)

    def cleanup_metadata(self) -> None:
        """Delete commits from `_delta_log` that are older than `delta.logRetentionDuration` (30 days) and covered by a
        checkpoint, which must not be newer than the version this object is at."""
        from deltalakedb.tables import upkeep

        self._refuse_in_transaction("cleanup_metadata")
        upkeep.cleanup_metadata(self._backing, self._snapshot)

    def generate(self) -> None:
        """Write a symlink manifest of this version, for engines that read file lists instead of the Delta log."""
        from deltalakedb.tables import upkeep

        self._refuse_in_transaction("generate")
        upkeep.generate(self._backing, self._snapshot)

    # -- what is different in a transaction

    def _run(
        self,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        *,
        moves: bool = True,
        replaces_all: bool = False,
    ) -> dict[str, Any]:
        """Run a verb as one commit based on this object's version; if it `moves`, go to the new version afterwards.

        If nothing is committed, the version stays. A verb that `replaces_all` rows depends on none, so it is based on
        the newest version, unless the table's definition has changed.
        """
        check_commit_arguments(commit_properties, post_commithook_properties)
        properties, hooks = commit_properties or CommitProperties(), post_commithook_properties
        has_commit = False

        def watch(target: Target) -> Done:
            nonlocal has_commit
            result = verb(target)
            has_commit = has_commit or result.commit is not None
            return result

        base = self._newest_alike() if replaces_all and not properties.only_next else self._snapshot
        metrics = self._backing.run(watch, properties, hooks or PostCommitHookProperties(), at=base)
        if moves and has_commit:
            self.update_incremental()
        return metrics

    def _refuse_in_transaction(self, what: str) -> None:
        """Raise in a transaction; do nothing outside."""


def _name_methods() -> None:
    """Set the `__qualname__` of inherited methods, so that argument errors name DeltaTable."""
    for name, member in vars(TableReader).items():
        if isinstance(member, FunctionType):
            member.__qualname__ = f"{DeltaTable.__qualname__}.{name}"


_name_methods()
