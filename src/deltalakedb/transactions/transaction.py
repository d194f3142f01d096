"""CatalogTransaction: statements over any number of tables that become true at once, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.definitions.table import PropertyValue
from deltalakedb.exceptions import ConfigError, TableExistsError
from deltalakedb.log.actions import Action, AppTransaction
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.names import parse_table_name
from deltalakedb.operations.target import Verb
from deltalakedb.transaction import CommitProperties
from deltalakedb.transactions.read_sets import ReadLike, to_read_set
from deltalakedb.transactions.tables import TableStatements
from deltalakedb.transactions.writes import WriteMode, check_mode, is_spark_frame, write_data, write_spark_frame

if TYPE_CHECKING:
    from deltalakedb.table import DeltaTable


class CatalogTransaction(TableStatements):
    """A unit of work over many tables: `with catalog.begin() as tx: ...`.

    It sees all tables as they were when it began, with its own changes on top, and holds no lock and no connection
    while it is open. Leaving the block commits; leaving it by an exception makes nothing of it true. It belongs to one
    thread at a time: a second thread that uses it meanwhile gets an error.
    """

    # -- reading

    def tables(self) -> list[str]:
        """The names of the tables as this transaction sees them."""
        return self._drafts.names()

    def table(self, name: str) -> DeltaTable:
        """A table as it was when the transaction began, with its own changes. What is read of it is checked at commit.

        The table's metadata is pinned too, but only rows count as read: who looks at a schema alone blocks nobody.
        """
        from deltalakedb.transactions.table import TransactionTable

        with self._statement():
            return TransactionTable.bind(self, self._drafts.get(name))

    # -- writing

    def write(
        self,
        table: str,
        data: Any,
        mode: WriteMode = "error",
        *,
        partition_by: Sequence[str] | str | None = None,
        location: str | os.PathLike[str] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        app_transactions: Sequence[AppTransaction] = (),
        target_file_size: int | None = None,
        user_info: Mapping[str, Any] | None = None,
    ) -> None:
        """Write data into a table, which is created when it does not exist: one version.

        Data is anything that exports Arrow, pandas or polars, or a DataFrame of Spark, which Spark then writes. `mode`
        is that of `write_deltalake`: `error` and `ignore` write only if there is no such table, `append` adds rows,
        `overwrite` replaces all rows the transaction sees.
        """
        from deltalakedb.data import arrow_to_schema, prepare_data

        check_mode(mode)
        if is_spark_frame(data):
            write_spark_frame(
                self, table, data, mode=mode, partition_by=partition_by, location=location, properties=properties or {},
                description=description, storage_options=storage_options, app_transactions=app_transactions,
                target_file_size=target_file_size, user_info=user_info or {},
            )  # fmt: skip
            return
        with self._statement():
            target = parse_table_name(table)
            draft, first = self._drafts.find(target), None
            if draft is not None and mode in ("error", "ignore"):
                if mode == "ignore":
                    return
                raise TableExistsError(
                    f"the table {draft.row.full_name} exists already; mode append or overwrite writes to it"
                )
            reader = prepare_data(data)
            if draft is None:
                schema = arrow_to_schema(reader.schema)
                draft, first = self._drafts.new(
                    target,
                    schema,
                    partition_by=partition_by or (),
                    location=location,
                    properties=properties or {},
                    description=description,
                    options=storage_options,
                )
            else:
                draft.check_writable()
                draft.use_options(storage_options)
            commit = write_data(
                draft,
                reader,
                first=first,
                mode=mode,
                partition_by=partition_by,
                app_transactions=app_transactions,
                target_file_size=target_file_size,
                user_info=user_info or {},
                written=self._written,
            )
            if first is not None:
                self._drafts.add(draft)
            draft.propose(commit)

    def commit_actions(
        self,
        table: str,
        actions: Sequence[Action],
        read: ReadLike = None,
        *,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        operation_metrics: Mapping[str, Any] | None = None,
        user_info: Mapping[str, Any] | None = None,
    ) -> None:
        """Propose finished actions as one version of a table. Their data files must be there already.

        `read` says what the caller read to make them: None (nothing; who removes files and does not say what it read
        is taken to have read the whole table), "table", a predicate as SQL or filter lists, or a list of paths.
        """
        with self._statement():
            draft = self._drafts.get_writable(table)
            if not actions:
                raise ConfigError(f"table {draft.row.full_name}: a commit needs at least one action")
            draft.propose(
                ProposedCommit(
                    actions=tuple(actions),
                    operation=operation,
                    operation_parameters=operation_parameters or {},
                    operation_metrics=operation_metrics or {},
                    read=to_read_set(read, draft.snapshot(), table=draft.row.full_name),
                    user_info=user_info or {},
                )
            )

    def run(self, table: str, verb: Verb, properties: CommitProperties | None = None) -> dict[str, Any]:
        """Let a verb of `operations/` make one version of a table; what it says it did."""
        noted = properties or CommitProperties()
        with self._statement():
            draft = self._drafts.get_writable(table)
            done = verb(draft.to_target(self._written))
            done = done.noting(noted.app_transactions or (), noted.custom_metadata or {})
            if done.commit is not None:
                draft.propose(done.commit)
            return done.metrics
