"""IcebergCatalog: the Iceberg tables and views of a catalog, as the REST protocol sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.exceptions import (
    BadIcebergRequestError,
    DeltaError,
    NamespaceNotFoundError,
    OutcomeUnknownError,
    StorageError,
    StoreError,
    TableExistsError,
    VersionTakenError,
)
from deltalakedb.iceberg import statements
from deltalakedb.iceberg.delta.delta_lists import DeltaLists, StaleStateError
from deltalakedb.iceberg.delta.delta_tables import DeltaState, DeltaTables
from deltalakedb.iceberg.group_commits import ChangeRequest, commit_together, keep_version
from deltalakedb.iceberg.metadata_files import delete_old_files
from deltalakedb.iceberg.statements import ASSERT_CREATE, Step, TableChange, no_such
from deltalakedb.iceberg.turns import ATTEMPTS, LOST_RACES, Turns
from deltalakedb.rights import current_access
from deltalakedb.store import registry
from deltalakedb.store.iceberg import (
    VersionCache,
    read_iceberg_version,
    referenced_snapshots,
    tables_in,
)
from deltalakedb.store.names import TableName
from deltalakedb.store.namespaces import find_namespace
from deltalakedb.store.proposals import NEW_TABLE, Outcome
from deltalakedb.store.registry import VIEW, TableRow
from deltalakedb.transactions import definitions
from deltalakedb.transactions.drafts import IcebergFiles
from deltalakedb.transactions.transaction import CatalogTransaction

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.store.connection import Connection
    from deltalakedb.transactions.drafts import Drafts

Kind = Literal["table", "view"]
Statement = Callable[["Drafts", "WrittenFiles"], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """An Iceberg table or view: its registry row, and one version of its metadata."""

    name: TableName
    table_id: int
    table_uuid: str
    version: int
    metadata_location: str
    metadata: Mapping[str, Any]
    options: Mapping[str, str] | None = field(default=None, repr=False)
    """The storage options in force for its files."""
    delta: DeltaState | None = field(default=None, repr=False)
    """What the metadata was made of, if it is a Delta table."""


class IcebergCatalog:
    """Operations of the Iceberg REST protocol on a catalog. Each commits in one SQL transaction, or changes nothing."""

    def __init__(self, catalog: Catalog, files: IcebergFiles | None = None) -> None:
        self.catalog = catalog
        files = files or IcebergFiles(catalog.config)
        self._files = replace(files, cache=VersionCache())
        self._turns: Turns[ChangeRequest] = Turns()
        self._delta = DeltaTables(catalog, self._options_of)
        self._delta_lists = DeltaLists(catalog.store, self._options_of)

    # -- reading

    def list_tables(self, namespace: str) -> list[str]:
        """Return the names of the tables directly in a namespace, those of Delta tables included."""
        return [name for name, mode in self._names(namespace).items() if mode != VIEW]

    def list_views(self, namespace: str) -> list[str]:
        """Return the names of the views directly in a namespace."""
        return [name for name, mode in self._names(namespace).items() if mode == VIEW]

    def _names(self, namespace: str) -> dict[str, str]:
        with self.catalog.store.read() as conn:
            _require_namespace(conn, namespace)
            rows = tables_in(conn, namespace)
        return {row.name: row.mode for row in rows if current_access().sees(row)}

    def load_table(
        self, name: TableName, *, snapshots: Literal["all", "refs"] = "all", publish: bool = True
    ) -> LoadedTable:
        """Load a table; with `refs` only the snapshots that branches and tags refer to.

        Of a Delta table the files that its metadata names are written first. Without `publish` they may be missing.
        """
        return self._load(name, "table", only_refs=snapshots == "refs", publish=publish)

    def load_view(self, name: TableName) -> LoadedTable:
        """Load a view."""
        return self._load(name, "view")

    def _load(self, name: TableName, kind: Kind, *, only_refs: bool = False, publish: bool = True) -> LoadedTable:
        with self.catalog.store.read() as conn:
            table = self._require(conn, name, kind)
            if not table.is_delta:
                head = registry.read_head(conn, table.table_id)
                assert head is not None, "an Iceberg table is registered with its first version"
                ids = referenced_snapshots(conn, table.table_id, head.current_version) if only_refs else None
                loaded = read_iceberg_version(conn, table.table_id, head.current_version, snapshots=ids)
        if table.is_delta:
            return self._load_delta(table, publish=publish)
        return self._loaded(table, loaded.version, loaded.metadata_location, loaded.metadata)

    def _load_delta(self, table: TableRow, *, publish: bool) -> LoadedTable:
        state = self._published(table) if publish else self._delta.load(table)
        return LoadedTable(
            TableName(table.namespace, table.name),
            table.table_id,
            table.table_uuid,
            state.opened.head.current_version,
            state.metadata_location,
            state.metadata,
            self._options_of(table),
            state,
        )

    def _options_of(self, table: TableRow) -> dict[str, str] | None:
        """The storage options in force for a table's files."""
        return {**(self.catalog.storage_options_of(table) or {}), **(self._files.options or {})} or None

    def _published(self, table: TableRow) -> DeltaState:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._delta_lists.publish(self._delta.load(table))
            except StaleStateError:
                if attempt == ATTEMPTS:
                    raise
                LOST_RACES.sleep(attempt)
        raise AssertionError("the last attempt returns or raises")

    def table_exists(self, name: TableName) -> bool:
        """Return whether a table has this name, of either format."""
        mode = self._mode_of(name)
        return mode is not None and mode != VIEW

    def view_exists(self, name: TableName) -> bool:
        """Return whether a view has this name."""
        return self._mode_of(name) == VIEW

    def table_id(self, name: TableName) -> int:
        """Return the id of a table."""
        with self.catalog.store.read(single=True) as conn:
            return self._require(conn, name, "table").table_id

    def _mode_of(self, name: TableName) -> str | None:
        with self.catalog.store.read(single=True) as conn:
            row = _find(conn, name)
        return None if row is None else row.mode

    def _require(self, conn: Connection, name: TableName, kind: Kind) -> TableRow:
        row = _find(conn, name)
        if row is None:
            _require_namespace(conn, name.namespace)
            raise no_such(name, kind)
        if (row.mode == VIEW) != (kind == "view"):
            raise no_such(name, kind)
        return row

    def _require_native(self, conn: Connection, name: TableName, kind: Kind) -> None:
        if self._require(conn, name, kind).is_delta:
            raise BadIcebergRequestError(
                f"{name} is a Delta table: Iceberg clients read it, and Delta clients or `dl` rename and drop it"
            )

    # -- tables

    def create_table(self, name: TableName, request: Mapping[str, Any], *, stage: bool = False) -> LoadedTable:
        """Create a table, or with `stage` prepare one: its location is reserved, and a later commit creates it."""
        self._check_creates(name)
        if stage:
            with self.catalog.store.read(single=True) as conn:
                row = registry.resolve_table(conn, name.namespace, name.name)
            if row is not None and current_access().sees(row):
                raise TableExistsError(f"Table already exists: {name}")
            current_access().require_create(name, row)
            metadata = statements.stage_table(self.catalog, self._files, name, request)
            return LoadedTable(name, NEW_TABLE, metadata["table-uuid"], -1, "", metadata, self._files.options)
        return self._one(name, lambda drafts, written: statements.create_table(drafts, written, name, request))

    def commit(self, changes: Sequence[TableChange], *, token: str | None = None) -> list[LoadedTable]:
        """Apply changes of any number of tables in one SQL transaction; return the tables as they are then.

        `token` identifies the request: if it was committed before, nothing is changed again.
        """
        names = [change.name for change in changes]
        _refuse_repeated_names(names)
        if self._is_committed(token):
            return [self._load_committed(name) for name in names]
        self._admit(changes)
        if any(requirement.get("type") == ASSERT_CREATE for change in changes for requirement in change.requirements):
            return self._commit_alone(changes, token)
        request = ChangeRequest(changes, token)
        with self._turns.lead(request) as group:
            if group:
                commit_together(self.catalog, self._files, group)
        if request.error is not None:
            if self._was_committed(token, request.error):
                return [self._load_committed(name) for name in names]
            raise request.error
        if request.tables is None:
            return self._commit_alone(changes, request.token)
        for table in request.tables:
            delete_old_files(table.old_files, table.draft.options)
        return [
            self._loaded(table.draft.row, table.version, table.metadata_location, table.metadata)
            for table in request.tables
        ]

    def _admit(self, changes: Sequence[TableChange]) -> None:
        """Raise unless the caller may change all these tables; one that must stay hidden does not exist."""
        access = current_access()
        if access.is_trusted:
            return
        for change in changes:
            name = change.name
            with self.catalog.store.read(single=True) as conn:
                row = registry.resolve_table(conn, name.namespace, name.name)
            if row is not None and access.admit(row) is None:
                if any(requirement.get("type") == ASSERT_CREATE for requirement in change.requirements):
                    access.require_create(name, row)
                self._check_namespace(name)
                raise no_such(name, "table")

    def _commit_alone(self, changes: Sequence[TableChange], token: str | None) -> list[LoadedTable]:
        """Apply changes of one request, some of which may create tables or append to Delta tables."""
        names = [change.name for change in changes]
        rows = [self._find_table(name) for name in names]
        if any(row is not None and row.is_delta for row in rows):
            # Reading manifests needs the extra `iceberg`, which only loading tables does without.
            from deltalakedb.iceberg.delta.delta_appends import token_of

            token = token_of(changes, rows) or token
        if self._is_committed(token):
            return [self._load_committed(name) for name in names]

        def statement(drafts: Drafts, written: WrittenFiles) -> list[Step]:
            return [self._change(drafts, written, change) for change in changes]

        return self._run(names, statement, token=token)

    def _find_table(self, name: TableName) -> TableRow | None:
        """Return the registry row of a name, None if it is free; NamespaceNotFoundError without its namespace."""
        with self.catalog.store.read(single=True) as conn:
            row = _find(conn, name)
        if row is None:
            self._check_namespace(name)
        return row

    def _change(self, drafts: Drafts, written: WrittenFiles, change: TableChange) -> Step:
        draft = drafts.find(change.name)
        if draft is not None and draft.row.is_delta:
            from deltalakedb.iceberg.delta.delta_appends import DeltaAppends

            return DeltaAppends(self._delta).append(drafts, draft, change)
        return statements.change_table(drafts, written, change)

    def _is_committed(self, token: str | None) -> bool:
        if token is None:
            return False
        with self.catalog.store.read(single=True) as conn:
            return conn.one("select_token", client_token=token) is not None

    def _was_committed(self, token: str | None, error: Exception) -> bool:
        """Whether the first try of a request was committed, so that `error` is only of its repeat."""
        try:
            return self._is_committed(token)
        except StoreError:
            if isinstance(error, OutcomeUnknownError):  # as unknown as before
                raise error from None
            raise

    def rename_table(self, source: TableName, target: TableName) -> None:
        """Rename a table, also into another namespace; its location stays the same."""
        self._rename(source, target, "table")

    def rename_view(self, source: TableName, target: TableName) -> None:
        """Rename a view, also into another namespace."""
        self._rename(source, target, "view")

    def _rename(self, source: TableName, target: TableName, kind: Kind) -> None:
        with self.catalog.store.read() as conn:
            self._require_native(conn, source, kind)
            _require_namespace(conn, target.namespace)
        with self._begin([source, target]) as tx:
            tx.rename_table(str(source), str(target))

    def drop_table(self, name: TableName, *, purge: bool = False) -> None:
        """Drop a table. Its files stay, so that it can be registered again; with `purge` they are deleted."""
        self._drop(name, "table", purge=purge)

    def drop_view(self, name: TableName) -> None:
        """Drop a view."""
        self._drop(name, "view")

    def _drop(self, name: TableName, kind: Kind, *, purge: bool = False) -> None:
        with self.catalog.store.read() as conn:
            self._require_native(conn, name, kind)
        with self._begin([name]) as tx:
            tx.run_statement(lambda drafts, _: definitions.drop_table(drafts, str(name), purge))

    def register_table(self, name: TableName, metadata_location: str, *, overwrite: bool = False) -> LoadedTable:
        """Register the table that a metadata file describes; with `overwrite` an existing table gets its metadata."""
        self._check_creates(name)
        return self._one(
            name,
            lambda drafts, _: statements.register_table(
                drafts, name, metadata_location, overwrite=overwrite, load=statements.loader(drafts)
            ),
        )

    def unregister_table(self, name: TableName) -> LoadedTable:
        """Remove a table from the catalog and return its last version; its files stay."""
        table = self.load_table(name)
        self.drop_table(name)
        return table

    # -- views

    def create_view(self, name: TableName, request: Mapping[str, Any]) -> LoadedTable:
        """Create a view."""
        self._check_creates(name)
        return self._one(name, lambda drafts, written: statements.create_view(drafts, written, name, request))

    def replace_view(
        self, name: TableName, requirements: Sequence[Mapping[str, Any]], updates: Sequence[Mapping[str, Any]]
    ) -> LoadedTable:
        """Apply a client's commit to a view."""
        change = TableChange(name, requirements, updates)
        return self._one(name, lambda drafts, written: statements.replace_view(drafts, written, change))

    def register_view(self, name: TableName, metadata_location: str) -> LoadedTable:
        """Register the view that a metadata file describes."""
        self._check_creates(name)
        return self._one(
            name,
            lambda drafts, _: statements.register_view(drafts, name, metadata_location, load=statements.loader(drafts)),
        )

    # -- transactions

    def _check_namespace(self, name: TableName) -> None:
        with self.catalog.store.read(single=True) as conn:
            _require_namespace(conn, name.namespace)

    def _check_creates(self, name: TableName) -> None:
        """Raise unless a table or a view of this name may be created, or the name is that of one which can be seen."""
        self._check_namespace(name)
        access = current_access()
        if access.is_trusted:
            return
        with self.catalog.store.read(single=True) as conn:
            row = registry.resolve_table(conn, name.namespace, name.name)
        if row is None or not access.sees(row):
            access.require_create(name, row)

    def _begin(self, names: Sequence[TableName], token: str | None = None) -> CatalogTransaction:
        tx = CatalogTransaction(self.catalog, tables=[str(name) for name in names], token=token)
        tx.use_iceberg_files(self._files)
        return tx

    def _one(self, name: TableName, statement: Callable[[Drafts, WrittenFiles], Step]) -> LoadedTable:
        (table,) = self._run([name], lambda drafts, written: [statement(drafts, written)])
        return table

    def _run(self, names: Sequence[TableName], statement: Statement, token: str | None = None) -> list[LoadedTable]:
        """Run a statement in a transaction of its own; if another commit was faster, run it again on the new state."""
        keys = {name.key for name in names}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._turns.take(keys), self._begin(names, token) as tx:
                    steps = tx.run_statement(statement)
            except DeltaError as error:
                if self._was_committed(token, error):
                    return [self._load_committed(name) for name in names]
                if attempt == ATTEMPTS or not isinstance(error, VersionTakenError):
                    raise
                LOST_RACES.sleep(attempt)
                continue
            for step in steps:
                delete_old_files(step.old_files, step.draft.options)
            return [self._result(step, name, tx.outcome) for step, name in zip(steps, names, strict=True)]
        raise AssertionError("the last attempt returns or raises")

    def _result(self, step: Step, name: TableName, outcome: Outcome | None) -> LoadedTable:
        kind: Kind = "view" if step.draft.row.mode == VIEW else "table"
        if outcome is None:
            return self._load(name, kind)
        if step.draft.row.is_delta or outcome.repeated or not step.draft.iceberg:
            return self._load_committed(name, kind)
        row = outcome.tables[step.draft.pinned.full_name]
        keep_version(self._files, step.draft, outcome)
        version = outcome.versions[row.full_name]
        return self._loaded(row, version, step.draft.iceberg[-1].metadata_location, step.metadata)

    def _load_committed(self, name: TableName, kind: Kind = "table") -> LoadedTable:
        """Load a table after a commit; if that fails, the client must not take the commit for failed."""
        try:
            return self._load(name, kind)
        except (StorageError, StoreError) as error:
            raise OutcomeUnknownError(f"{name}: the commit is done, but the table cannot be loaded: {error}") from error

    def _loaded(
        self, table: TableRow, version: int, metadata_location: str, metadata: Mapping[str, Any]
    ) -> LoadedTable:
        name = TableName(table.namespace, table.name)
        options = self._options_of(table)
        return LoadedTable(name, table.table_id, table.table_uuid, version, metadata_location, metadata, options)


def _refuse_repeated_names(names: Sequence[TableName]) -> None:
    if len({name.key for name in names}) != len(names):
        raise BadIcebergRequestError("a request changes each table once; it names one of them twice")


def _find(conn: Connection, name: TableName) -> TableRow | None:
    """Return the table or view of a name, if the caller may know of it, and has the right that the request needs."""
    return current_access().admit(registry.resolve_table(conn, name.namespace, name.name))


def _require_namespace(conn: Connection, namespace: str) -> None:
    if find_namespace(conn, namespace) is None or not current_access().sees_namespace(namespace):
        raise NamespaceNotFoundError(f"Namespace does not exist: {namespace}")
