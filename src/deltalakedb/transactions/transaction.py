"""CatalogTransaction: statements over any number of tables that become true at once, or not at all."""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.definitions.table import PropertyValue, SchemaLike, to_schema, to_texts, with_columns, with_properties
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    OutcomeUnknownError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    VersionTakenError,
    redact,
)
from deltalakedb.log.actions import Action, AddFile, AppTransaction, Metadata
from deltalakedb.log.codec import to_json
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.mirror.detach import fence_off
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.registered import require_table
from deltalakedb.transactions.commit import commit_drafts
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.intent_locks import IntentLocks
from deltalakedb.transactions.read_sets import ReadLike, to_read_set
from deltalakedb.transactions.writes import WriteMode, check_mode, is_spark_frame, write_data, write_spark_frame
from deltalakedb.transactions.written_files import WrittenFiles

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.table import DeltaTable

State = Literal["open", "unknown", "committed", "failed", "rolled back"]


class CatalogTransaction:
    """A unit of work over many tables: `with catalog.begin() as tx: ...`.

    It sees all tables as they were when it began, with its own changes on top, and holds no lock and no connection
    while it is open. Leaving the block commits; leaving it by an exception makes nothing of it true. It belongs to one
    thread at a time: a second thread that uses it meanwhile gets an error.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        message: str | None = None,
        lock: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        owns_catalog: bool = False,
    ) -> None:
        self.txn_id = str(uuid.uuid4())
        self.message = message
        self.result: dict[str, int] = {}
        """The last version of each table, by name, once the transaction is committed."""
        # Whoever knows the id can ask what became of it, or see to it that nothing does: `transactions/settle.py`.
        self._token = self.txn_id
        self._catalog = catalog
        self._owns_catalog = owns_catalog
        self._state: State = "open"
        self._entered = False
        self._busy = threading.Lock()
        self._written = WrittenFiles()
        locked = [parse_table_name(name) for name in lock or ()]
        only = None if tables is None else [*map(parse_table_name, tables), *locked]
        # Before the cut: what is claimed is seen as nobody will change it any more.
        self._locks = self._take_locks(locked)
        try:
            self._drafts = Drafts(catalog, only)
        except BaseException:
            self._release()
            raise

    def __repr__(self) -> str:
        return f"CatalogTransaction({self.txn_id!r}, {self._state})"

    @property
    def is_open(self) -> bool:
        """Whether it takes statements."""
        return self._state == "open"

    @property
    def is_undecided(self) -> bool:
        """Whether a commit was tried whose outcome nobody knows yet; `commit()` again tells."""
        return self._state == "unknown"

    # -- the block

    def __enter__(self) -> CatalogTransaction:
        if self._entered:
            raise DeltaError(f"transaction {self.txn_id} was entered before; begin another one")
        self._check_open()
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "open":  # ended inside the block, by commit() or rollback()
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise self._two_threads()
        try:
            self._check_open()
            yield
        finally:
            self._busy.release()

    def _check_open(self) -> None:
        if self._state == "open":
            return
        ended = "may or may not be committed: commit() again tells" if self._state == "unknown" else f"is {self._state}"
        raise DeltaError(f"transaction {self.txn_id} {ended}; begin another one for further statements")

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
            return TransactionTable.bind(self._catalog, self._drafts.get(name))

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

    # -- how far applications have come

    def app_version(self, table: str, app_id: str) -> int | None:
        """How far an application has come in a table, as its last `txn` action says; None: nowhere, or no such table.

        Two transactions that note the same application conflict, so that what is decided by it is decided once.
        """
        with self._statement():
            draft = self._drafts.find(parse_table_name(table))
            if draft is None:
                return None
            noted = draft.app_transactions.get(app_id) or draft.snapshot().app_transaction(app_id)
            return None if noted is None else noted.version

    def set_app_version(self, table: str, app_id: str, version: int) -> None:
        """Note in a table, with this transaction's last commit to it, how far an application has come."""
        with self._statement():
            draft = self._drafts.get_writable(table)
            draft.app_transactions[app_id] = AppTransaction(app_id, version, time.time_ns() // 1_000_000)

    # -- commits that another engine makes

    def draft_at(self, location: str) -> TableDraft | None:
        """The table whose files lie there, with what this transaction has staged on it so far."""
        with self._statement():
            return self._drafts.find_at(location)

    def find_draft(self, name: TableName) -> TableDraft | None:
        """The table of a name, as this transaction sees it."""
        with self._statement():
            return self._drafts.find(name)

    def stage(
        self,
        commit: ProposedCommit,
        *,
        location: str,
        version: int,
        name: TableName | None = None,
        written: Sequence[AddFile] = (),
    ) -> None:
        """Take in a finished commit that stands at `version` of the table at `location`, as the transaction sees it.

        `name` is what the table is called if this commit creates it. `written` are the files that were made for it:
        they go if the transaction does not commit.
        """
        from deltalakedb.storage import open_data_storage

        with self._statement():
            draft = self._drafts.find_at(location)
            is_new = draft is None
            if draft is None:
                draft = self._new_draft(name, location)
            draft.check_writable()
            expected = (-1 if draft.base is None else draft.base.version) + len(draft.commits) + 1
            if version != expected:
                raise VersionTakenError(
                    f"table {draft.row.full_name}: transaction {self.txn_id} is at version {expected - 1} of it, so "
                    f"version {version} cannot come next",
                    table=draft.row.full_name,
                    version=version,
                )
            if is_new:
                self._drafts.add(draft)
            draft.propose(commit)
            if written:
                self._written.remember(open_data_storage(location, draft.options), written)

    def _new_draft(self, name: TableName | None, location: str) -> TableDraft:
        if name is None:
            raise TableNotFoundError(f"there is no table at {redact(location)}, and no name for a new one")
        taken = self._drafts.find(name)
        if taken is not None:
            raise TableExistsError(
                f"the table {taken.row.full_name} exists already, at {redact(taken.row.location)}; drop or rename it, "
                "or choose another name"
            )
        return self._drafts.new_at(name, location)

    # -- tables

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
        """A new, empty table. Its files go to `location`, or below the warehouse to `<namespace>/<name>`."""
        if mode not in ("error", "ignore"):
            raise ConfigError(f"the mode of a creation is error or ignore, not {mode!r}")
        with self._statement():
            target = parse_table_name(name)
            existing = self._drafts.find(target)
            if existing is not None:
                if mode == "ignore":
                    return
                raise TableExistsError(
                    f"the table {existing.row.full_name} exists already; drop or rename it, or choose another name"
                )
            draft, first = self._drafts.new(
                target,
                to_schema(schema),
                partition_by=partition_by,
                location=location,
                properties=properties or {},
                description=description,
                options=storage_options,
            )
            metadata = first[1]
            parameters = {
                "isManaged": "false",
                "description": description,
                "partitionBy": to_json(list(metadata.partition_columns)),
                "properties": to_json(dict(metadata.configuration)),
            }
            self._drafts.add(draft)
            draft.propose(ProposedCommit(first, "CREATE TABLE", parameters, fenced=True))

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Take a table out of the catalog; its last commit takes our fence off, so that any writer can have its files.

        With `purge` the files are deleted too, once the transaction is committed.
        """
        with self._statement():
            draft = self._drafts.get(name)
            if purge and draft.row.mode != "managed":
                raise DeltaError(
                    f"{draft.row.full_name} is a {draft.row.mode} table: its files belong to others and are not "
                    "deleted; drop it without purge"
                )
            if purge:
                self._drafts.refuse_tables_inside(draft)
            elif draft.row.mode == "managed" and not draft.is_new:
                draft.check_writable()
                last = fence_off(draft.snapshot().protocol)
                draft.propose(replace(last, operation="DROP TABLE", operation_parameters={"name": draft.row.full_name}))
            draft.dropped, draft.purge = True, purge
            self._drafts.hide(draft)

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name; its location, versions and history stay."""
        with self._statement():
            draft, new = self._drafts.get(name), parse_table_name(new_name)
            other = self._drafts.find(new)
            if other is not None and other is not draft:
                raise TableExistsError(f"the table {other.row.full_name} exists already; drop or rename it first")
            old = draft.row.full_name
            renamed = replace(draft.row, namespace=new.namespace, name=new.name)
            if draft.row.mode == "managed":
                draft.check_writable()
                # Whoever rebuilds a catalog from the files finds the name there.
                parameters = {"from": old, "to": renamed.full_name}
                draft.propose(ProposedCommit((), "RENAME TABLE", parameters))
            self._drafts.rename(draft, renamed)

    def set_properties(self, table: str, properties: Mapping[str, PropertyValue]) -> None:
        """Set table properties; where one needs a table feature, the table's protocol is raised with it."""
        with self._statement():
            draft = self._drafts.get_writable(table)
            snapshot = draft.snapshot()
            actions = with_properties(
                snapshot.protocol,
                snapshot.metadata,
                properties,
                table=draft.row.full_name,
                has_files=snapshot.totals().num_files > 0,
            )
            if actions:
                parameters = {"properties": to_json(to_texts(properties))}
                draft.propose(ProposedCommit(tuple(actions), "SET TBLPROPERTIES", parameters))

    def add_columns(self, table: str, columns: SchemaLike) -> None:
        """Add nullable columns at the end of the schema: a schema, fields, or text such as "note string, at date"."""
        with self._statement():
            draft = self._drafts.get_writable(table)
            snapshot = draft.snapshot()
            actions = with_columns(snapshot.protocol, snapshot.metadata, columns, table=draft.row.full_name)
            added = next(action.schema_string for action in actions if isinstance(action, Metadata))
            draft.propose(ProposedCommit(tuple(actions), "ADD COLUMNS", {"schema": added}))

    # -- the end

    def commit(self) -> dict[str, int]:
        """Make all of it true, in one SQL transaction; the last version of each table.

        After a StoreError the outcome may be unknown: commit() again finds out, it never commits twice.
        """
        if self._state not in ("open", "unknown"):
            self._check_open()
        if not self._busy.acquire(blocking=False):
            raise self._two_threads()
        try:
            # Until the database has answered, nobody can say what has become of it.
            self._state = "unknown"
            outcome = commit_drafts(
                self._catalog, self._drafts.used, txn_id=self.txn_id, token=self._token, message=self.message
            )
            self.result = {} if outcome is None else outcome.versions
            self._state = "committed"
            # What was created and dropped again is no part of any version.
            self._written.remove({draft.row.location for draft in self._drafts.used if draft.is_new and draft.dropped})
            self._written.forget()
        except (StoreError, OutcomeUnknownError):
            raise
        except DeltaError:
            self._state = "failed"
            self._written.remove()
            raise
        finally:
            self._busy.release()
            if self._state != "unknown":
                self._release()
        return self.result

    def rollback(self) -> None:
        """Give it up: nothing of it becomes true. Data files it has written are removed, as far as that can be done."""
        if self._state == "unknown":
            self._written.forget()  # they may be part of a version
        elif self._state != "open":
            self._check_open()
        self._state = "rolled back"
        self._written.remove()
        self._release()

    def _take_locks(self, names: Sequence[TableName]) -> IntentLocks | None:
        if not names:
            return None
        with self._catalog.store.read() as conn:
            rows = [require_table(conn, name) for name in names]
        locks = IntentLocks(self._catalog.store, list({row.table_id: row for row in rows}.values()), self.txn_id)
        locks.take(self._catalog.config.concurrency_lock_timeout)
        # A transaction that is forgotten, neither committed nor rolled back, must not keep its claims for ever.
        weakref.finalize(self, locks.release)
        return locks

    def _release(self) -> None:
        if self._locks is not None:
            self._locks.release()
        if self._owns_catalog:
            self._catalog.close()

    def _two_threads(self) -> DeltaError:
        return DeltaError(
            f"transaction {self.txn_id} is used by two threads at once; give each thread a transaction of its own"
        )
