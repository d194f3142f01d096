"""Catalog: opens a store; gives access to tables, transactions and the catalog as of an instant."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.catalog.delta_logs import CatalogFiles
from deltalakedb.catalog.entries import TableInfo, is_promoted_by_writes, require_table, table_info, within
from deltalakedb.catalog.grants import CatalogGrants
from deltalakedb.catalog.iceberg_access import IcebergAccess
from deltalakedb.catalog.instants import Instant, to_epoch_ms
from deltalakedb.catalog.names import CatalogNames
from deltalakedb.catalog.storage_options import STORAGE_OPTIONS, options_of
from deltalakedb.catalog.tokens import CatalogTokens
from deltalakedb.catalog.uri import CatalogUri, parse_catalog_uri
from deltalakedb.catalog.view import CatalogView, wait_for_instant
from deltalakedb.exceptions import ConfigError
from deltalakedb.rights import Right, Rights, current_access
from deltalakedb.runtime.caller import current_caller
from deltalakedb.runtime.config import Config, load_config
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.store import SchemaMode, Store, open_store, registry
from deltalakedb.store.audit import read_audit
from deltalakedb.store.names import parse_namespace, parse_table_name
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from deltalakedb.telemetry import record_spans

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.iceberg.mirror.mirroring import MirroredTable
    from deltalakedb.iceberg.pyiceberg_catalog import PyIcebergCatalog
    from deltalakedb.mirror.engine import MirrorEngine
    from deltalakedb.operations.definition import PropertyValue, SchemaLike
    from deltalakedb.store.search import SearchHit
    from deltalakedb.store.writer import SqlTxnLogWriter
    from deltalakedb.table import DeltaTable
    from deltalakedb.transactions.transaction import CatalogTransaction

Progress = Callable[[int], None]


def connect(uri: str | os.PathLike[str] | None = None, warehouse: str | None = None, **config: Any) -> Catalog:
    """Open a catalog, by default that of `DL_CATALOG`; its schema is created or migrated as `sql.schema` says."""
    record_spans()
    return open_catalog(uri, warehouse, **config)


def open_catalog(
    uri: str | os.PathLike[str] | CatalogUri | None = None, warehouse: str | None = None, **config: Any
) -> Catalog:
    """Open a catalog without adding spans to the application's tracer; used for table addresses."""
    origin = str(config.pop("origin", "python"))
    if warehouse is not None:
        config["warehouse"] = warehouse
    address, settings = locate_catalog(uri, **config)
    if ":/" in (settings.warehouse or ""):
        from deltalakedb.mirror.put_lock import check_warehouse

        check_warehouse(settings)
    return Catalog(open_catalog_store(address, settings), address, settings, origin=origin)


def begin(
    uri: str | os.PathLike[str] | None = None,
    message: str | None = None,
    lock: Sequence[str] | None = None,
    **config: Any,
) -> CatalogTransaction:
    """Begin a transaction on a catalog that is opened for it and closed when the transaction ends."""
    from deltalakedb.transactions.transaction import CatalogTransaction

    catalog = connect(uri, **config)
    try:
        return CatalogTransaction(catalog, message=message, lock=lock, owns_catalog=True)
    except BaseException:
        catalog.close()
        raise


def locate_catalog(uri: str | os.PathLike[str] | CatalogUri | None = None, **config: Any) -> tuple[CatalogUri, Config]:
    """Return the catalog's address and the settings in force, from keywords, environment and configuration file."""
    if isinstance(uri, CatalogUri):
        address, settings = uri, load_config(config)
    else:
        settings = load_config({"catalog": uri, **config})
        if settings.catalog is None:
            raise ConfigError(
                "no catalog given: pass a path or a URI such as deltasql://sqlite//data/catalog.db (dl: --catalog), or "
                "set DL_CATALOG"
            )
        address = parse_catalog_uri(settings.catalog)
    if address.warehouse is not None and config.get("warehouse") is None:
        settings = replace(settings, warehouse=address.warehouse)
    return address, settings


def open_catalog_store(address: CatalogUri, settings: Config, *, schema: SchemaMode | None = None) -> Store:
    """Open the catalog's database; `schema` overrides `sql.schema` (`manual` does not check the schema at all)."""
    return open_store(
        address.engine,
        address.target,
        schema=schema or settings.sql_schema,
        max_connections=settings.sql_max_connections,
        busy_timeout_seconds=settings.sql_busy_timeout,
    )


class Catalog(CatalogFiles, CatalogGrants, CatalogNames, CatalogTokens, IcebergAccess):
    """A database of Delta logs and Iceberg metadata. Call `close()` when done, or use it in a `with` block."""

    def __init__(self, store: Store, uri: CatalogUri, config: Config, *, origin: str = "python") -> None:
        self.uri = uri
        self.config = config
        self.store = store
        self.origin = origin
        self._given_options: dict[str, dict[str, str]] = {}

    @property
    def actor(self) -> str:
        """The name in the audit trail: the caller of `dl serve`, the setting `actor` (`DL_ACTOR`), or the OS user."""
        caller = current_caller()
        return caller.name if caller else self.config.actor or _os_user()

    def __repr__(self) -> str:
        return f"Catalog({str(self.uri)!r})"

    def close(self) -> None:
        """Finish pending mirror work, for a few seconds at most, and close the database connections."""
        if "mirror" in self.__dict__:
            self.mirror.close()
        self.store.close()

    @cached_property
    def writer(self) -> SqlTxnLogWriter:
        """The writer that commits to this catalog's tables."""
        from deltalakedb.store.writer import SqlTxnLogWriter

        return SqlTxnLogWriter(
            self.store,
            retries=self.config.concurrency_retries,
            lock_wait_seconds=self.config.concurrency_lock_timeout,
        )

    @cached_property
    def rights(self) -> Rights:
        """What the callers of an endpoint of this catalog may do."""
        return Rights(self.store, is_on=self.config.rights_mode == "on")

    @cached_property
    def mirror(self) -> MirrorEngine:
        """The engine that copies commits into `_delta_log`; created with the first commit."""
        from deltalakedb.mirror.engine import MirrorEngine

        return MirrorEngine(self.store, config=self.config, options_of=self.storage_options_of, address=self.uri)

    def use_options(self, table: TableRow, options: Mapping[str, str] | None) -> None:
        """Use storage options for a table as long as this catalog is open; only some of them are ever stored."""
        if options:
            self._given_options[table.location] = {**self._given_options.get(table.location, {}), **options}

    def storage_options_of(self, table: TableRow) -> dict[str, str] | None:
        """Return a table's stored storage options, overridden by those passed since the catalog was opened."""
        given_options = self._given_options.get(table.location)
        return options_of(table, given_options) if given_options or STORAGE_OPTIONS in table.properties else None

    # -- transactions

    def begin(
        self, message: str | None = None, lock: Sequence[str] | None = None, tables: Sequence[str] | None = None
    ) -> CatalogTransaction:
        """Begin a transaction over any number of tables; use it in a `with` block.

        `lock` names tables that a long transaction rewrites: other writers that would change their rows wait, up to a
        limit. `tables` restricts the transaction to these tables, which makes `begin` cheaper in a large catalog.
        """
        from deltalakedb.transactions.transaction import CatalogTransaction

        return CatalogTransaction(self, message=message, lock=lock, tables=tables)

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- names

    def tables(self, namespace: str | None = None, *, dropped: bool = False) -> list[str]:
        """Return the full names of all tables, or of those in one namespace and the namespaces inside it.

        With `dropped`, return the tables that can be undropped instead; `dropped_tables` has more about them.
        """
        if dropped:
            return [table.full_name for table in self.dropped_tables(namespace)]
        with self.store.read(single=True) as conn:
            rows = registry.list_tables(conn)
        return [row.full_name for row in within(rows, namespace)]

    def table_infos(self, namespace: str | None = None) -> list[TableInfo]:
        """Return what the registry and the heads record about each table; no table is opened."""
        with self.store.read() as conn:
            rows, heads = registry.list_tables(conn), registry.list_heads(conn)
        return [table_info(row, heads.get(row.table_id)) for row in within(rows, namespace)]

    def table_info(self, name: str) -> TableInfo:
        """Return what the registry and the head record about one table; it is not opened."""
        with self.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
            return table_info(row, registry.read_head(conn, row.table_id))

    def table(
        self, name: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open a table. One row is read, however many files the table has."""
        from deltalakedb.table import DeltaTable

        return DeltaTable.from_catalog(self, name, version=version, storage_options=storage_options)

    def create_table(
        self,
        name: str,
        schema: SchemaLike | None = None,
        partition_by: Sequence[str] | str = (),
        *,
        location: str | os.PathLike[str] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        mode: Literal["error", "ignore"] = "error",
    ) -> DeltaTable:
        """Create an empty managed table; without a location its files are stored in the warehouse.

        If a Delta table exists at the location, it is attached under this name, and its first write through the
        catalog makes it managed (`catalog.promote_on_write`). Pass `schema=None` to accept the table as it is.
        """
        if location is not None and self.attach_existing(
            name,
            location,
            schema,
            partition_by,
            properties=properties,
            description=description,
            storage_options=storage_options,
        ):
            return self.table(name, storage_options=storage_options)
        if schema is None:
            raise ConfigError(f"the table {name} needs a schema, unless a Delta table is at its location already")
        with self.begin(tables=[name]) as tx:
            tx.create_table(
                name,
                schema,
                partition_by,
                location=location,
                properties=properties,
                description=description,
                storage_options=storage_options,
                mode=mode,
            )
        return self.table(name, storage_options=storage_options)

    def attach_existing(
        self,
        name: str,
        location: str | os.PathLike[str],
        schema: SchemaLike | None = None,
        partition_by: Sequence[str] | str = (),
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        description: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> bool:
        """Attach the Delta table at a location, as CREATE at that location does; return False if there is none.

        Its first write through the catalog makes it managed. A table attached by `attach_table` stays a follower.
        """
        from deltalakedb.catalog.registration import Wanted, attach_existing
        from deltalakedb.operations.definition import to_schema, to_texts
        from deltalakedb.storage.location import canonical_location

        target, canonical = parse_table_name(name), canonical_location(location, storage_options)
        with self.store.read() as conn:
            if registry.resolve_table(conn, target.namespace, target.name) or registry.table_by_location(
                conn, canonical
            ):
                return False  # the transaction that creates the table raises the error
        columns = [partition_by] if isinstance(partition_by, str) else partition_by
        wanted = Wanted(None if schema is None else to_schema(schema), columns, to_texts(properties or {}), description)
        return attach_existing(self, target, canonical, wanted, storage_options)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; its location, versions and history stay the same."""
        with self.begin(tables=[name, new_name]) as tx:
            tx.rename_table(name, new_name)

    def set_properties(self, name: str, properties: Mapping[str, PropertyValue]) -> None:
        """Set table properties; if one needs a table feature, the table's protocol is upgraded too."""
        with self.begin(tables=[name]) as tx:
            tx.set_properties(name, properties)

    def add_columns(self, name: str, columns: SchemaLike) -> None:
        """Add nullable columns at the end of the schema: a schema, fields, or text such as "note string, at date"."""
        with self.begin(tables=[name]) as tx:
            tx.add_columns(name, columns)

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Remove a table from the catalog. With `purge`, the files of a managed table are deleted too.

        A table whose folder the catalog chose can be undropped for `catalog.drop_retention`. A table created at a
        given location is detached first, so that its files are complete and any writer can use them. The files of a
        follower belong to others and are left alone.
        """
        with self.store.read() as conn:
            table = require_table(conn, parse_table_name(name))
        current_access().require(Right.MANAGE, table)
        table = self.finish_promotion(table)
        if table.mode == "managed" and table.files_owner == "user" and not purge:
            from deltalakedb.mirror.detach import detach
            from deltalakedb.store.registry_check import check_can_drop

            check_can_drop(table.full_name, SqlTxnLogReader(self.store, table).snapshot().metadata)
            detach(self.store, table, self.mirror, actor=self.actor, origin=self.origin)
        with self.begin(tables=[name]) as tx:
            tx.drop_table(name, purge)

    def finish_promotion(self, table: TableRow) -> TableRow:
        """Return the table after finishing a promotion that died: it left our fence in the files; a drop removes it."""
        from deltalakedb.mirror.promote import has_own_fence

        if not is_promoted_by_writes(table) or not has_own_fence(self.store, table, self.storage_options_of(table)):
            return table
        self.promote_table(table.full_name)
        return replace(table, mode="managed")

    def mirror_iceberg(self, name: str, storage_options: Mapping[str, str] | None = None) -> MirroredTable:
        """Let Delta readers read an Iceberg table: bring the `_delta_log` in its location up to its newest version.

        Each version that changed rows or columns becomes a commit; Delta writers are refused. Raises CannotMirrorError
        if Delta readers could not read the newest version, or would read it wrongly.
        """
        from deltalakedb.iceberg.opening import mirror_table

        return mirror_table(self, name, storage_options)

    def _open_iceberg(self, storage_options: Mapping[str, str] | None) -> PyIcebergCatalog:
        from deltalakedb.iceberg.opening import open_catalog

        return open_catalog(self, storage_options)

    # -- comments and tags, which are stored in the tables' own metadata: each change of them makes a version

    def set_comment(self, table: str, text: str | None, column: str | None = None) -> None:
        """Set the comment on a table, or on one of its columns (nested ones as `a.b`); None removes it."""
        with self.begin(tables=[table]) as tx:
            tx.set_comment(table, text, column)

    def set_tags(self, table: str, tags: Mapping[str, PropertyValue | None], column: str | None = None) -> None:
        """Set tags on a table, or on one of its columns; other tags stay. The value None removes a tag."""
        with self.begin(tables=[table]) as tx:
            tx.set_tags(table, tags, column)

    def search(
        self, text: str | None = None, *, tag: str | None = None, namespace: str | None = None
    ) -> list[SearchHit]:
        """Return the tables that contain every word of `text` in names, columns, comments or tags, ignoring case.

        `tag` is `pii` or `pii=yes`, on the table or one of its columns. `namespace` includes nested namespaces.
        This is one SQL query; no table is opened.
        """
        from deltalakedb.store.search import Wanted, search_tables

        parsed_namespace = None if namespace is None else parse_namespace(namespace)
        with self.store.read(single=True) as conn:
            return search_tables(conn, Wanted.of(text, tag), parsed_namespace)

    # -- history and audit

    def history(
        self, name: str, limit: int | None = None, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """Return a table's commits, newest first, in `deltalake`'s format: the fields of commitInfo and the version.

        The versions of Iceberg tables and views have the same form.
        """
        with self.store.read() as conn:
            table = require_table(conn, parse_table_name(name))
        if table.is_delta:
            return self.table(name).history(limit, since=since, until=until)
        from deltalakedb.iceberg.describing import history

        between = (None if instant is None else to_epoch_ms(instant) for instant in (since, until))
        return history(self, table, limit, *between)

    def audit(
        self,
        since: Instant | None = None,
        until: Instant | None = None,
        actor: str | None = None,
        table: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the audit trail, newest first."""
        with self.store.read() as conn:
            table_id = require_table(conn, parse_table_name(table)).table_id if table is not None else None
            rows = read_audit(
                conn,
                since_ms=None if since is None else to_epoch_ms(since),
                until_ms=None if until is None else to_epoch_ms(until),
                actor=actor,
                table_id=table_id,
                limit=limit,
            )
        return [
            {
                "at_ms": row.at_ms,
                "actor": row.actor,
                "origin": row.origin,
                "action": row.action,
                "table": row.table_name,
                "details": row.details,
            }
            for row in rows
        ]

    def sql(self, text: str) -> pa.Table:
        """Run one SELECT over the `dl_*` tables and views, on a connection that cannot write."""
        return self.store.select(text)

    def at(self, instant: Instant) -> CatalogView:
        """Return the whole catalog as of an instant: a datetime, epoch milliseconds or a transaction id.

        What it shows never changes: the call waits until nothing can be committed at that instant any more.
        """
        return CatalogView(self, wait_for_instant(self.store, instant))


@cache
def _os_user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # this user id has no name, as in many containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
