"""TransactionTables: Iceberg tables and views in a transaction: reads are pinned, changes are staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from deltalakedb.exceptions import NamespaceNotFoundError, TableExistsError
from deltalakedb.iceberg import statements
from deltalakedb.iceberg.catalog import LoadedTable
from deltalakedb.iceberg.file_io import open_file_io, remember_writes
from deltalakedb.iceberg.metadata_files import delete_old_files
from deltalakedb.iceberg.statements import Step, TableChange, current_metadata, metadata_file, no_such
from deltalakedb.log.protocol.proposal import WHOLE_TABLE
from deltalakedb.store.names import TableName, name_key
from deltalakedb.store.namespaces import find_namespace
from deltalakedb.store.proposals import NEW_TABLE
from deltalakedb.store.registry import ICEBERG, VIEW
from deltalakedb.transactions import definitions
from deltalakedb.transactions.drafts import IcebergFiles

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.drafts import Drafts
    from deltalakedb.transactions.transaction import CatalogTransaction

T = TypeVar("T")


class TransactionTables:
    """The Iceberg tables and views of a catalog, as one transaction sees them.

    A table that is loaded counts as read: if another transaction changes it first, the commit fails. Files that
    PyIceberg writes are deleted if the transaction does not commit.
    """

    def __init__(self, tx: CatalogTransaction, storage_options: Mapping[str, str] | None = None) -> None:
        self._tx = tx
        tx.use_iceberg_files(IcebergFiles(None, storage_options))

    @property
    def address(self) -> str:
        return str(self._tx.catalog.uri)

    def _run(self, statement: Callable[[Drafts, WrittenFiles], T]) -> T:
        return self._tx.run_statement(statement)

    # -- reading

    def list_tables(self, namespace: str) -> list[str]:
        """Return the names of the tables directly in a namespace, those of Delta tables included."""
        return [name for name, mode in self._names(namespace) if mode != VIEW]

    def list_views(self, namespace: str) -> list[str]:
        """Return the names of the views directly in a namespace."""
        return [name for name, mode in self._names(namespace) if mode == VIEW]

    def _names(self, namespace: str) -> list[tuple[str, str]]:
        rows = self._run(lambda drafts, _: drafts.rows())
        found = [(row.name, row.mode) for row in rows if name_key(row.namespace) == name_key(namespace)]
        if not found:
            self._run(lambda drafts, _: _require_namespace(drafts, namespace))
        return found

    def load_table(self, name: TableName) -> LoadedTable:
        """Load a table with the transaction's own changes."""
        return self._run(lambda drafts, _: _load(drafts, name, "table"))

    def load_view(self, name: TableName) -> LoadedTable:
        """Load a view with the transaction's own changes."""
        return self._run(lambda drafts, _: _load(drafts, name, "view"))

    def table_exists(self, name: TableName) -> bool:
        """Return whether an Iceberg table has this name."""
        return self._mode_of(name) == ICEBERG

    def view_exists(self, name: TableName) -> bool:
        """Return whether a view has this name."""
        return self._mode_of(name) == VIEW

    def _mode_of(self, name: TableName) -> str | None:
        draft = self._run(lambda drafts, _: drafts.find(name))
        return None if draft is None else draft.row.mode

    def open_io(self, table: LoadedTable) -> FileIO:
        """Return the FileIO of a table; it records what it creates."""
        written = self._run(lambda _, written: written.for_table(table.table_uuid))
        file_io = open_file_io(table.metadata["location"], table.options)
        return remember_writes(file_io, written, table.options)

    # -- changing

    def create_table(self, name: TableName, request: Mapping[str, Any], *, stage: bool = False) -> LoadedTable:
        """Create a table, or with `stage` prepare one for a later statement of the transaction."""
        self._run(lambda drafts, _: _require_namespace(drafts, name.namespace))
        if stage:
            return self._run(lambda drafts, _: _stage(drafts, name, request))
        return self._change(lambda drafts, written: statements.create_table(drafts, written, name, request))

    def commit(self, changes: Sequence[TableChange]) -> list[LoadedTable]:
        """Stage changes of tables; the commit of the transaction makes them visible, all or none."""
        return [self._change(partial(statements.change_table, change=change)) for change in changes]

    def register_table(self, name: TableName, metadata_location: str, *, overwrite: bool = False) -> LoadedTable:
        """Register the table that a metadata file describes."""
        self._run(lambda drafts, _: _require_namespace(drafts, name.namespace))
        return self._change(
            lambda drafts, _: statements.register_table(
                drafts, name, metadata_location, overwrite=overwrite, load=statements.loader(drafts)
            )
        )

    def rename_table(self, source: TableName, target: TableName) -> None:
        """Rename a table; its location stays the same."""

        def statement(drafts: Drafts, _: WrittenFiles) -> None:
            _find(drafts, source, "table")
            _require_namespace(drafts, target.namespace)
            definitions.rename_table(drafts, str(source), str(target))

        self._run(statement)

    def drop_table(self, name: TableName, *, purge: bool = False) -> None:
        """Drop a table; with `purge` its files are deleted after the commit."""
        self._drop(name, "table", purge=purge)

    def create_view(self, name: TableName, request: Mapping[str, Any]) -> LoadedTable:
        """Create a view."""
        self._run(lambda drafts, _: _require_namespace(drafts, name.namespace))
        return self._change(lambda drafts, written: statements.create_view(drafts, written, name, request))

    def register_view(self, name: TableName, metadata_location: str) -> LoadedTable:
        """Register the view that a metadata file describes."""
        self._run(lambda drafts, _: _require_namespace(drafts, name.namespace))
        return self._change(
            lambda drafts, _: statements.register_view(drafts, name, metadata_location, load=statements.loader(drafts))
        )

    def drop_view(self, name: TableName) -> None:
        """Drop a view."""
        self._drop(name, "view", purge=False)

    def _drop(self, name: TableName, kind: str, *, purge: bool) -> None:
        def statement(drafts: Drafts, _: WrittenFiles) -> None:
            _find(drafts, name, kind)
            definitions.drop_table(drafts, str(name), purge)

        self._run(statement)

    def _change(self, statement: Callable[[Drafts, WrittenFiles], Step]) -> LoadedTable:
        def with_result(drafts: Drafts, written: WrittenFiles) -> tuple[Step, LoadedTable]:
            step = statement(drafts, written)
            return step, _loaded(drafts, step.draft)

        step, loaded = self._run(with_result)
        if step.old_files:
            self._tx.after_commit(partial(delete_old_files, step.old_files, step.draft.options))
        return loaded

    # -- namespaces are not part of a transaction

    def namespaces(self) -> list[str]:
        """Return all namespaces."""
        return self._tx.catalog.namespaces()

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        return dict(self._tx.catalog.namespace(namespace).properties)


def _find(drafts: Drafts, name: TableName, kind: str) -> TableDraft:
    """Return the table or view of a name; what it is counts as read, its metadata does not."""
    draft = drafts.find(name)
    if draft is None:
        _require_namespace(drafts, name.namespace)
        raise no_such(name, kind)
    if draft.row.mode != (VIEW if kind == "view" else ICEBERG):
        raise no_such(name, kind, is_delta=draft.row.is_delta)
    return draft


def _load(drafts: Drafts, name: TableName, kind: str) -> LoadedTable:
    draft = _find(drafts, name, kind)
    draft.use_options(drafts.iceberg_files.options)
    current_metadata(draft, kind)
    draft.note_read(WHOLE_TABLE)
    return _loaded(drafts, draft)


def _loaded(drafts: Drafts, draft: TableDraft) -> LoadedTable:
    row = draft.row
    version = (-1 if draft.head is None else draft.head.current_version) + len(draft.iceberg)
    metadata = draft.iceberg_metadata
    assert metadata is not None, "the metadata was read or made by the statement"
    options = draft.options or drafts.iceberg_files.options
    name = TableName(row.namespace, row.name)
    return LoadedTable(name, row.table_id, row.table_uuid, version, metadata_file(draft), metadata, options)


def _stage(drafts: Drafts, name: TableName, request: Mapping[str, Any]) -> LoadedTable:
    if drafts.find(name) is not None:
        raise TableExistsError(f"Table already exists: {name}")
    metadata = statements.stage_table(drafts.catalog, drafts.iceberg_files, name, request)
    drafts.reserved.append(metadata["table-uuid"])
    return LoadedTable(name, NEW_TABLE, metadata["table-uuid"], -1, "", metadata, drafts.iceberg_files.options)


def _require_namespace(drafts: Drafts, namespace: str) -> None:
    """Raise unless the namespace exists, or the transaction creates it with a table."""
    with drafts.catalog.store.read(single=True) as conn:
        if find_namespace(conn, namespace) is not None:
            return
    if not any(name_key(draft.row.namespace) == name_key(namespace) for draft in drafts.used if not draft.dropped):
        raise NamespaceNotFoundError(f"Namespace does not exist: {namespace}")
