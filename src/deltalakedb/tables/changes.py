"""ChangesOfTable: changes the rows of a DeltaTable: delete, update, merge. Each is one commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.runtime.arguments import check_flag, check_text
from deltalakedb.runtime.positional import commit_arguments
from deltalakedb.tables.rows import RowsOfTable
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.merge import TableMerger
    from deltalakedb.writer.properties import WriterProperties

_ORDER = ("post_commithook_properties", "commit_properties")


class ChangesOfTable(RowsOfTable):
    """Changes are based on this object's version, checked against later commits, and move it to the new version."""

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
        properties, hooks = commit_arguments(
            "delete", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        verb = partial(delete, predicate=predicate, writer_properties=writer_properties)
        return self._run(verb, properties, hooks)

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
        properties, hooks = commit_arguments(
            "update", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        verb = partial(
            update,
            updates=to_updates(updates, new_values),
            predicate=predicate,
            writer_properties=writer_properties,
            error_on_type_mismatch=error_on_type_mismatch,
        )
        return self._run(verb, properties, hooks)

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
        properties, hooks = commit_arguments("merge", args, commit_properties, post_commithook_properties, order=_ORDER)
        request = MergeRequest(
            source=source,
            predicate=predicate,
            source_alias=source_alias,
            target_alias=target_alias,
            merge_schema=merge_schema,
            error_on_type_mismatch=error_on_type_mismatch,
            writer_properties=writer_properties,
            max_spill_size=max_spill_size,
            max_temp_directory_size=max_temp_directory_size,
            streamed=streamed_exec,
        )
        return prepare_merge(request, lambda verb: self._run(verb, properties, hooks))
