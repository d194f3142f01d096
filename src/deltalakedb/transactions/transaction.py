"""CatalogTransaction: statements over any number of tables that are committed together, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, TableExistsError
from deltalakedb.log.checks.properties import to_properties
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.operations.definition import PropertyValue
from deltalakedb.operations.evolution import SchemaMode
from deltalakedb.operations.write import WriteMode, WriteRequest, to_rows, write
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.transaction import AppProgress, CommitProperties, PostCommitHookProperties
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

    The transaction sees all tables as they were when it began, with its own changes on top. It holds no lock and no
    connection while it is open. Leaving the block commits; an exception rolls everything back. Only one thread may
    use it at a time; a second one gets an error.
    """

    # -- reading

    def tables(self) -> list[str]:
        """Return the names of the tables, as this transaction sees them."""
        return self._drafts.names()

    def table(self, name: str) -> DeltaTable:
        """Open a table as it was when the transaction began, with its own changes. The commit checks what you read.

        Reads of rows, of the definition, of the history and of application versions are recorded separately
        (docs/transactions.md, "What counts as read"): a commit that only adds rows does not conflict with a
        transaction that only read the schema.
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
        post_commithook_properties: PostCommitHookProperties | None = None,  # noqa: ARG002  the mirror does both
        app_transactions: Sequence[AppProgress] = (),
        user_info: Mapping[str, Any] | None = None,
    ) -> None:
        """Write data into a table as one version; the table is created if it does not exist.

        Data is anything that exports Arrow, pandas or polars, or a Spark DataFrame, which Spark then writes. `mode`
        is that of `write_deltalake`: `error` and `ignore` write only if there is no such table, `append` adds rows,
        `overwrite` replaces all rows the transaction sees, or those that match `predicate`. The other arguments are
        those of `write_deltalake` too; `properties` is like `configuration`, but accepts any name.
        """
        columns = [partition_by] if isinstance(partition_by, str) else partition_by
        request = WriteRequest(mode, columns, schema_mode, predicate, target_file_size, writer_properties)
        request.check()
        commit_props = (commit_properties or CommitProperties()).joined(app_transactions, user_info)
        table_config = {**(properties or {}), **to_properties(configuration, table=table)}
        if is_spark_frame(data):
            write_spark_frame(
                self, table, data, request, location=location, properties=table_config, description=description,
                storage_options=storage_options, app_transactions=commit_props.actions(),
                user_info=commit_props.custom_metadata or {},
            )  # fmt: skip
            return
        with self._statement():
            target = parse_table_name(table)
            draft = self._drafts.find(target)
            if draft is None:
                self._write_new(
                    target, data, request, commit_props, location=location, properties=table_config,
                    description=description, options=storage_options, called=name,
                )  # fmt: skip
                return
            if mode == "ignore":
                return
            if mode == "error":
                raise TableExistsError(
                    f"A table already exists at: {draft.row.full_name}; mode error refuses it, "
                    "mode append or overwrite writes to it"
                )
            self._drafts.make_writable(draft)
            draft.use_options(storage_options)
            result = write(draft.to_target(self._written), data, request)
            self._propose(draft, result, commit_props)

    def _write_new(
        self, name: TableName, data: Any, request: WriteRequest, noted: CommitProperties, **definition: Any
    ) -> None:
        from deltalakedb.data import arrow_to_schema

        reader = to_rows(data)
        draft, first = self._drafts.new(
            name, arrow_to_schema(reader.schema), partition_by=request.partition_by or (), **definition
        )
        result = begin_table(draft, first, partial(write, data=reader, request=request), self._written)
        self._drafts.add(draft)
        self._propose(draft, result, noted)

    def begin_table(
        self,
        name: str,
        new: NewTable,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        location: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table whose first version is made by a verb of `operations/` that runs on the empty table."""
        with self._statement():
            commit_props = (commit_properties or CommitProperties()).joined()
            target = parse_table_name(name)
            if self._drafts.find(target) is not None:
                raise TableExistsError(f"the table {target} exists already; choose another name")
            draft, first = self._drafts.new(
                target, new.schema, partition_by=new.partition_by, location=location, properties=new.properties or {},
                description=new.description, options=storage_options, called=new.name,
            )  # fmt: skip
            result = begin_table(draft, first, verb, self._written)
            self._drafts.add(draft)
            self._propose(draft, result, commit_props)

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
        """Propose finished actions as one version of a table. Their data files must already exist.

        `read` says what you read to make them: None (nothing; but if the actions remove files, the whole table counts
        as read), "table", a predicate as SQL or filter lists, or a list of paths.
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
