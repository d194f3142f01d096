"""CatalogTransaction: statements over any number of tables that are committed together, or not at all."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from deltalakedb.catalog.iceberg_access import IcebergAccess
from deltalakedb.exceptions import DeltaError, OutcomeUnknownError, StoreError
from deltalakedb.log.checks.properties import to_properties
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.definition import PropertyValue, SchemaLike
from deltalakedb.operations.describe import set_comment, set_tags
from deltalakedb.operations.evolution import SchemaMode
from deltalakedb.operations.target import WrittenFiles
from deltalakedb.operations.write import WriteMode, WriteRequest
from deltalakedb.store.connection import Row
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.store.proposals import JoinedTransaction, Outcome
from deltalakedb.transaction import AppProgress, CommitProperties, PostCommitHookProperties
from deltalakedb.transactions import definitions, statements
from deltalakedb.transactions.commit import commit_drafts, remove_files_of_dropped
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts, IcebergFiles
from deltalakedb.transactions.intent_locks import take_locks
from deltalakedb.transactions.life import TransactionLife, hold

if TYPE_CHECKING:
    from deltalakedb.alter import TableAlterer
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.pyiceberg_catalog import PyIcebergCatalog
    from deltalakedb.merge import TableMerger
    from deltalakedb.operations.target import Verb
    from deltalakedb.store.snapshot import SqlSnapshot
    from deltalakedb.table import DeltaTable
    from deltalakedb.transactions.read_sets import ReadLike
    from deltalakedb.writer.properties import WriterProperties

T = TypeVar("T")


class CatalogTransaction(TransactionLife, IcebergAccess):
    """A unit of work over many tables: `with catalog.begin() as tx: ...`.

    The transaction sees all tables as they were when it began, with its own changes on top. It holds no lock and no
    connection while it is open. Leaving the block commits; an exception rolls everything back. Only one thread may
    use it at a time; a second one gets an error.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        message: str | None = None,
        lock: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        owns_catalog: bool = False,
        token: str | None = None,
        continues: tuple[str, Sequence[Row]] | None = None,  # another process's transaction: its id and its cut
    ) -> None:
        txn_id, pinned = continues or (str(uuid.uuid4()), None)
        super().__init__(txn_id, message)
        self.token = token or txn_id  # by it another process finds the outcome, or prevents it: `resolve_outcome`
        self.joined: tuple[JoinedTransaction, ...] = ()  # what the commit commits too (`store/proposals.py`)
        self.outcome: Outcome | None = None  # with the registry rows; also None if there was nothing to commit
        self.catalog = catalog
        self._owns_catalog = owns_catalog
        self._busy = threading.Lock()
        self._written = WrittenFiles()
        self._after_commit: list[Callable[[], None]] = []
        locked = [parse_table_name(name) for name in lock or ()]
        only = None if tables is None else [*map(parse_table_name, tables), *locked]
        # Before the cut is pinned, so that the pinned state of locked tables cannot become outdated.
        self._locks = take_locks(self, locked, pinned) if locked else None
        try:
            self._drafts = Drafts(catalog, only, pinned)
        except BaseException:
            if self._locks is not None:
                self._locks.release()
            raise

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

    def _open_iceberg(self, storage_options: Mapping[str, str] | None) -> PyIcebergCatalog:
        from deltalakedb.iceberg.opening import open_in_transaction

        return open_in_transaction(self, storage_options)

    def app_version(self, table: str, app_id: str) -> int | None:
        """Return an application's version from its last `txn` action in a table; None if there is none, or no table.

        This counts as a read: if another transaction records a version of this application first, the commit fails.
        """
        with self._statement():
            return statements.app_version(self._drafts, table, app_id)

    # -- changing rows

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
        commit_props = (commit_properties or CommitProperties()).joined(app_transactions, user_info)
        table_config = {**(properties or {}), **to_properties(configuration, table=table)}
        options = statements.TableOptions(name, description, table_config, location, storage_options)
        statements.write_rows(self, table, data, request, options, commit_props)

    def delete(
        self,
        table: str,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        *,
        commit_properties: CommitProperties | None = None,
    ) -> dict[str, Any]:
        """Delete the rows for which a predicate is true, or all rows; return the metrics of `DeltaTable.delete`."""
        return self.table(table).delete(predicate, writer_properties, commit_properties=commit_properties)

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
        arguments = (updates, new_values, predicate, writer_properties, error_on_type_mismatch)
        return self.table(table).update(*arguments, commit_properties=commit_properties)

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
        return self.table(table).merge(
            source, predicate, source_alias, target_alias, merge_schema, error_on_type_mismatch, writer_properties,
            max_spill_size=max_spill_size, max_temp_directory_size=max_temp_directory_size,
            commit_properties=commit_properties,
        )  # fmt: skip

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
        parameters, metrics, info = operation_parameters or {}, operation_metrics or {}, user_info or {}
        commit = ProposedCommit(tuple(actions), operation, parameters, operation_metrics=metrics, user_info=info)
        with self._statement():
            statements.propose_actions(self._drafts, table, commit, read)

    def set_app_version(self, table: str, app_id: str, version: int) -> None:
        """Record an application's version in a table, with this transaction's last commit to it."""
        with self._statement():
            statements.set_app_version(self._drafts, table, app_id, version)

    # -- creating and changing tables

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        partition_by: Sequence[str] | str = (),
        *,
        location: str | os.PathLike[str] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        mode: Literal["error", "ignore"] = "error",
    ) -> None:
        """Create an empty table. Its files are stored at `location`, or in the warehouse at `<namespace>/<name>`."""
        with self._statement():
            definitions.create_table(
                self._drafts, name, schema, partition_by, properties, description, mode, location, storage_options
            )

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Remove a table from the catalog. `undrop_table` brings one back if the catalog chose its folder.

        Its files are kept for `catalog.drop_retention`, or deleted with the commit (`purge`). For a table created at a
        given location, the last commit removes our fence, and the files stay with their user.
        """
        with self._statement():
            definitions.drop_table(self._drafts, name, purge)

    def undrop_table(self, name: str, as_: str | None = None) -> None:
        """Bring a dropped table back, under its old name or a new one, with its files and its history."""
        with self._statement():
            definitions.undrop_table(self._drafts, name, as_)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; its location, versions and history stay the same."""
        with self._statement():
            definitions.rename_table(self._drafts, name, new_name)

    def set_properties(self, table: str, properties: Mapping[str, PropertyValue]) -> None:
        """Set table properties; if one needs a table feature, the table's protocol is upgraded too."""
        with self._statement():
            definitions.set_properties(self._drafts, table, properties)

    def add_columns(self, table: str, columns: SchemaLike) -> None:
        """Add nullable columns at the end of the schema: a schema, fields, or text such as "note string, at date"."""
        with self._statement():
            definitions.add_columns(self._drafts, table, columns)

    def alter(self, table: str) -> TableAlterer:
        """Return `DeltaTable.alter`; each of its methods is one statement of the transaction."""
        return self.table(table).alter

    def set_comment(self, table: str, text: str | None, column: str | None = None) -> None:
        """Set the comment on a table, or on one of its columns (nested ones as `a.b`); None removes it."""
        self.run(table, partial(set_comment, text=text, column=column))

    def set_tags(self, table: str, tags: Mapping[str, PropertyValue | None], column: str | None = None) -> None:
        """Set tags on a table, or on one of its columns; other tags stay. The value None removes a tag."""
        self.run(table, partial(set_tags, tags=tags, column=column))

    # -- upkeep. Vacuum is not part of it: deleted files cannot be rolled back

    def optimize(self, table: str, zorder: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
        """Run `DeltaTable.optimize.compact`, or `z_order` on the columns `zorder`; `options` are other arguments."""
        optimizer = self.table(table).optimize
        return optimizer.compact(**options) if zorder is None else optimizer.z_order(zorder, **options)

    def restore(self, table: str, target: int | datetime | str, **options: Any) -> dict[str, Any]:
        """Run `DeltaTable.restore`, to a version that existed when the transaction began."""
        return self.table(table).restore(target, **options)

    def repair(self, table: str, dry_run: bool = False) -> dict[str, Any]:
        """Run `DeltaTable.repair`."""
        return self.table(table).repair(dry_run)

    # -- statements of other parts of this package: verbs of `operations/`, commits of other engines

    def run(self, table: str, verb: Verb, properties: CommitProperties | None = None) -> dict[str, Any]:
        """Run a verb of `operations/`, which makes one version of a table; return its metrics."""
        return dict(self.run_all({table: verb}, properties)[table])

    def run_all(self, verbs: Mapping[str, Verb], properties: CommitProperties | None = None) -> dict[str, Any]:
        """Run verbs of `operations/` on several tables in parallel, one version each; return their metrics by table.

        If one fails, none of them takes effect.
        """
        with self._statement():
            return statements.run(self._drafts, self._written, verbs, properties)

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
            statements.begin_table(
                self._drafts, self._written, name, new, verb, commit_properties, location, storage_options
            )

    def run_statement(self, statement: Callable[[Drafts, WrittenFiles], T]) -> T:
        """Run a statement on the drafts, such as those of `iceberg/`, which add versions of Iceberg tables and views.

        The files that it writes are recorded, to be deleted if the transaction does not commit.
        """
        with self._statement():
            result = statement(self._drafts, self._written)
            self._written.sync()
            return result

    def use_iceberg_files(self, files: IcebergFiles) -> None:
        """Set how the statements of `iceberg/` reach files, for the rest of the transaction."""
        self._drafts.iceberg_files = files

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call a function once the transaction is committed; it must not raise."""
        self._after_commit.append(callback)

    def draft_at(self, location: str) -> TableDraft | None:
        """Return the table at a location, with what this transaction has staged for it so far."""
        with self._statement():
            return self._drafts.find_at(location)

    def find_draft(self, name: TableName) -> TableDraft | None:
        """Return the table of this name, as the transaction sees it."""
        with self._statement():
            return self._drafts.find(name)

    def is_about(self, table: str, table_id: int, base: SqlSnapshot | None = None) -> bool:
        """Return whether a name belongs to the table with this id; if so, it is from now on identified by its id.

        With `base` its changes are based on that version: later commits count as concurrent, and may conflict. This is
        ignored for a table that is not managed yet, because its first write promotes its newest version.
        """
        with self._statement():
            is_about = self._drafts.identify(parse_table_name(table), table_id)
            if is_about and base is not None:
                self._drafts.get(table).go_on_from(base)
            return is_about

    def use_options(self, table: str, storage_options: Mapping[str, str] | None) -> None:
        """Set storage options for a table's files, for the rest of the transaction."""
        with self._statement():
            self._drafts.get(table).use_options(storage_options)

    # -- commit and rollback

    def commit(self) -> dict[str, int]:
        """Commit everything in one SQL transaction; return the last version of each table.

        After a StoreError the outcome may be unknown: call commit() again to find out. It never commits twice.
        """
        self._check_can_end()
        with hold(self._busy, self.txn_id):
            try:
                # The outcome is unknown until the database has answered.
                self._state = "unknown"
                outcome = commit_drafts(
                    self.catalog, self._drafts.used, txn_id=self.txn_id, token=self.token, message=self.message,
                    absent=self._drafts.absent, listed=self._drafts.listed, joined=self.joined,
                )  # fmt: skip
                self.outcome = outcome
                self.result = {} if outcome is None else outcome.versions
                self._state = "committed"
                if any(draft.dropped for draft in self._drafts.used):
                    remove_files_of_dropped(self._drafts.used, self._written)
                self._written.forget()
                for callback in self._after_commit:
                    callback()
            except DeltaError as error:
                is_undecided = isinstance(error, StoreError | OutcomeUnknownError)
                if not is_undecided and self._state != "committed":  # files of a committed version must stay
                    self._state = "failed"
                    self._remove_files()
                raise
            finally:
                if self._state != "unknown":
                    self._release()
        return self.result

    def rollback(self) -> None:
        """Give up all changes. Data files that the transaction wrote are deleted as far as possible."""
        self._check_can_end()
        if self._state == "unknown":
            self._written.forget()  # the files may belong to a version, and the reserved locations to tables
            self._drafts.reserved.clear()
        self._state = "rolled back"
        self._remove_files()
        self._release()

    def _give_up(self, error: BaseException) -> None:  # noqa: ARG002  any error has the same effect
        self.rollback()

    def _remove_files(self) -> None:
        if self._written.remove():
            # Some files of new tables are left. Upkeep deletes them when the reservations expire: do not release these.
            self._drafts.reserved.clear()

    def _release(self) -> None:
        if self._locks is not None:
            self._locks.release()
        if self._drafts.reserved:
            self._drafts.release_reserved(self.txn_id, is_committed=self._state == "committed")
        if self._owns_catalog:
            self.catalog.close()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """Run a statement: the transaction must be open; files that it wrote are deleted if it fails."""
        with hold(self._busy, self.txn_id):
            self._check_open()
            with self._written.of_statement():
                yield
