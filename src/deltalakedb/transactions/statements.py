"""DataStatements: the statements of a transaction that change rows: delete, update, merge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.operations.target import Done, Verb
from deltalakedb.transaction import CommitProperties
from deltalakedb.transactions.tables import TableStatements

if TYPE_CHECKING:
    from deltalakedb.merge import TableMerger
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.writer.properties import WriterProperties

_SIDE_BY_SIDE: Final = max(2, os.cpu_count() or 1)


class DataStatements(TableStatements):
    """A transaction that changes rows. Each statement sees the changes of earlier ones, and becomes one version."""

    def run(self, table: str, verb: Verb, properties: CommitProperties | None = None) -> dict[str, Any]:
        """Run a verb of `operations/`, which makes one version of a table; return its metrics."""
        with self._statement():
            commit_properties = (properties or CommitProperties()).joined()
            draft = self._drafts.get_writable(table)
            result = verb(replace(draft.to_target(self._written), config=self._catalog.config))
            draft.note_read(result.read)
            self._propose(draft, result, commit_properties)
            return result.metrics

    def run_all(self, verbs: Mapping[str, Verb], properties: CommitProperties | None = None) -> dict[str, Any]:
        """Run verbs of `operations/` on several tables in parallel, one version each; return their metrics by table.

        If one fails, none of them takes effect.
        """
        with self._statement():
            commit_properties = (properties or CommitProperties()).joined()
            drafts = {table: self._drafts.get_writable(table) for table in verbs}
            targets = {
                table: replace(draft.to_target(self._written), config=self._catalog.config)
                for table, draft in drafts.items()
            }
            with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="deltalakedb-statement") as pool:
                futures = {table: pool.submit(verb, targets[table]) for table, verb in verbs.items()}
            results = {table: item.result() for table, item in futures.items()}
            for table, draft in drafts.items():
                draft.note_read(results[table].read)
                self._propose(draft, results[table], commit_properties)
            return {table: item.metrics for table, item in results.items()}

    def _propose(self, draft: TableDraft, done: Done, noted: CommitProperties) -> None:
        done = done.noting(noted.actions(), noted.checked_metadata())
        if done.commit is not None:
            draft.propose(done.commit)

    def delete(
        self,
        table: str,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        *,
        commit_properties: CommitProperties | None = None,
    ) -> dict[str, Any]:
        """Delete the rows for which a predicate is true, or all rows; return the metrics of `DeltaTable.delete`."""
        from deltalakedb.operations.delete import delete

        return self.run(
            table, partial(delete, predicate=predicate, writer_properties=writer_properties), commit_properties
        )

    def update(
        self,
        table: str,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        error_on_type_mismatch: bool = True,
        *,
        commit_properties: CommitProperties | None = None,
    ) -> dict[str, Any]:
        """Update the rows for which a predicate is true, or all rows; return the metrics of `DeltaTable.update`."""
        from deltalakedb.operations.update import to_updates, update

        verb = partial(
            update,
            updates=to_updates(updates, new_values),
            predicate=predicate,
            writer_properties=writer_properties,
            error_on_type_mismatch=error_on_type_mismatch,
        )
        return self.run(table, verb, commit_properties)

    def merge(
        self,
        table: str,
        source: Any,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        writer_properties: WriterProperties | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        *,
        commit_properties: CommitProperties | None = None,
    ) -> TableMerger:
        """Merge `source` into a table, as `DeltaTable.merge` does; `execute` runs it as one statement."""
        from deltalakedb.merge import prepare_merge
        from deltalakedb.operations.merge_request import MergeRequest

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
        )
        return prepare_merge(request, lambda verb: self.run(table, verb, commit_properties))
