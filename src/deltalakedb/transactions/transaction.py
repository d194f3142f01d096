"""CatalogTransaction: statements over any number of tables that become true at once, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.definitions.properties import to_properties
from deltalakedb.definitions.table import PropertyValue
from deltalakedb.exceptions import ConfigError, TableExistsError
from deltalakedb.log.actions import Action, AppTransaction
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.operations.evolution import SchemaMode
from deltalakedb.operations.write import WriteMode, WriteRequest, to_rows, write
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties
from deltalakedb.transactions.descriptions import DescriptionStatements
from deltalakedb.transactions.read_sets import ReadLike, to_read_set
from deltalakedb.transactions.writes import begin_table, is_spark_frame, write_spark_frame

if TYPE_CHECKING:
    from deltalakedb.operations.creation import NewTable
    from deltalakedb.operations.target import Verb
    from deltalakedb.table import DeltaTable
    from deltalakedb.writer.properties import WriterProperties


class CatalogTransaction(DescriptionStatements):
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

        Rows, the definition, the history and applications are told apart (docs/transactions.md, "What counts as read"):
        a commit that only adds rows does not disturb a transaction that looked at the schema alone.
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
        schema_mode: SchemaMode = None,
        predicate: str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        location: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        target_file_size: int | None = None,
        writer_properties: WriterProperties | None = None,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,  # noqa: ARG002  the mirror sees to both
        app_transactions: Sequence[AppTransaction] = (),
        user_info: Mapping[str, Any] | None = None,
    ) -> None:
        """Write data into a table, which is created when it does not exist: one version.

        Data is anything that exports Arrow, pandas or polars, or a DataFrame of Spark, which Spark then writes. `mode`
        is that of `write_deltalake`: `error` and `ignore` write only if there is no such table, `append` adds rows,
        `overwrite` replaces all rows the transaction sees, or those that match `predicate`. The other arguments are
        those of `write_deltalake` too; `properties` are like `configuration`, any name is taken.
        """
        columns = [partition_by] if isinstance(partition_by, str) else partition_by
        request = WriteRequest(mode, columns, schema_mode, predicate, target_file_size, writer_properties)
        request.check()
        noted = (commit_properties or CommitProperties()).joined(app_transactions, user_info)
        given = {**(properties or {}), **to_properties(configuration, table=table)}
        if is_spark_frame(data):
            write_spark_frame(
                self, table, data, request, location=location, properties=given, description=description,
                storage_options=storage_options, app_transactions=noted.app_transactions or (),
                user_info=noted.custom_metadata or {},
            )  # fmt: skip
            return
        with self._statement():
            target = parse_table_name(table)
            draft = self._drafts.find(target)
            if draft is None:
                self._write_new(
                    target, data, request, noted, location=location, properties=given, description=description,
                    options=storage_options, called=name,
                )  # fmt: skip
                return
            if mode == "ignore":
                return
            if mode == "error":
                raise TableExistsError(
                    f"the table {draft.row.full_name} exists already; mode append or overwrite writes to it"
                )
            self._drafts.make_writable(draft)
            draft.use_options(storage_options)
            done = write(draft.to_target(self._written), data, request)
            self._propose(draft, done, noted)

    def _write_new(
        self, name: TableName, data: Any, request: WriteRequest, noted: CommitProperties, **definition: Any
    ) -> None:
        from deltalakedb.data import arrow_to_schema

        reader = to_rows(data)
        draft, first = self._drafts.new(
            name, arrow_to_schema(reader.schema), partition_by=request.partition_by or (), **definition
        )
        done = begin_table(draft, first, partial(write, data=reader, request=request), self._written)
        self._drafts.add(draft)
        self._propose(draft, done, noted)

    def begin_table(
        self,
        name: str,
        new: NewTable,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        location: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """A new table, whose first version is what a verb of `operations/` makes of it while it is empty."""
        with self._statement():
            noted = (commit_properties or CommitProperties()).joined()
            target = parse_table_name(name)
            if self._drafts.find(target) is not None:
                raise TableExistsError(f"the table {target} exists already; choose another name")
            draft, first = self._drafts.new(
                target, new.schema, partition_by=new.partition_by, location=location, properties=new.properties or {},
                description=new.description, options=storage_options, called=new.name,
            )  # fmt: skip
            done = begin_table(draft, first, verb, self._written)
            self._drafts.add(draft)
            self._propose(draft, done, noted)

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
